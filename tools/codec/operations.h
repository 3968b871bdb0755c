/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What `sparring-codec bench` measures. An operation is a row of functions; each file op_*.c adds
 * the rows of one kind, most of them by going through a registry, so that a coder that is new there
 * is measured without a line here.
 */
#ifndef SPR_TOOLS_CODEC_OPERATIONS_H
#define SPR_TOOLS_CODEC_OPERATIONS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/opt.h"
#include "compress/blocks.h"
#include "compress/select/select.h"
#include "tools/codec/data.h"

enum { OPERATION_NAME_BYTES = 64, TRIAL_PAGES = 16, ERROR_BYTES = SPR_ERROR_TEXT_BYTES };

/* What the time of an operation is divided by: R1, one stream that is read and summed; E, r += g.
 */
enum reference { REFERENCE_READ, REFERENCE_ADD };

/* The input, shared by all operations on it. */
struct vector {
    const float *x;
    size_t n;
    enum data kind;
    uint64_t seed;
};

/* An operation on a vector. */
struct trial {
    const struct operation *operation;
    const struct vector *vector;
    double density; /* of what is sent; NAN: does not apply */
    int slices;
    void *state; /* the operation's own */
    struct {
        void *at;
        size_t bytes;
    } pages[TRIAL_PAGES]; /* freed with the trial */
    int page_count;
    unsigned runs; /* so far */
    /* From check(). */
    double bits;  /* on the wire, per element of the vector; per index of an index coder */
    double error; /* |x - decoded| / |x|, Euclidean; NAN: does not apply */
    double items; /* other than elements that a run works on (indices, inputs); 0: elements */
};

struct operation {
    char name[OPERATION_NAME_BYTES];
    enum reference reference;
    bool by_density;                    /* once for each */
    bool sliced;                        /* can run on several threads */
    const void *what;                   /* what it is an operation of: the registry's entry */
    char options[OPERATION_NAME_BYTES]; /* "option=choice"; "": the defaults */
    /* False: *error says why; what was allocated is freed by the caller. */
    bool (*setup)(struct trial *trial, struct spr_error *error);
    /* Before each run, not timed. */
    void (*prepare)(struct trial *trial);
    /* A run: next(0), run() of all slices on all threads, next(1), run(), ... until next() is
     * false. */
    bool (*next)(struct trial *trial, int phase);
    void (*run)(struct trial *trial, int slice, int slices);
    /* Once, after a run: is the result right? Fills bits, error and items. */
    bool (*check)(struct trial *trial, struct spr_error *error);
    void (*close)(struct trial *trial); /* beside pages; setup may have failed */
};

/* A list that grows. */
struct operations {
    struct operation *rows;
    size_t count, room;
    bool failed; /* no memory */
};
void operations_add(struct operations *list, const struct operation *row, const char *format, ...)
    SPR_PRINTF(3, 4);
/* The row with the default options of a registry's entry, then with each other choice of each
 * option that has choices: "<kind> <entry>", "<kind> <entry>:<option>=<choice>". */
void operations_add_variants(struct operations *list, const struct operation *row, const char *kind,
                             const char *entry, const struct spr_opt *table, size_t options);
/* All of them; the references come first. */
bool operations_list(struct operations *list);
void operations_free(struct operations *list);

/* One per file. */
void op_reference_add(struct operations *list);
void op_index_add(struct operations *list);
void op_select_add(struct operations *list);
void op_value_add(struct operations *list);
void op_hybrid_add(struct operations *list);
void op_codec_add(struct operations *list);
void op_merge_add(struct operations *list);

/* Slots for those who need nothing there. */
void no_prepare(struct trial *trial);
void no_close(struct trial *trial);
bool one_phase(struct trial *trial, int phase);

/* The call of a selection in the slices of a trial; where its results go, and its workspace, is to
 * be set. */
struct spr_select select_call(const struct trial *trial, const struct spr_selector *selector,
                              const void *options, struct spr_select_state *state);
/* For next() and run() of selections. False: the list is complete. */
bool select_phase(struct spr_select *call, bool *emitting, int phase);
void select_slice(struct spr_select *call, bool emitting, int slice);

/* Pages of a trial, zeroed. NULL: *error is set. */
void *trial_pages(struct trial *trial, size_t bytes, struct spr_error *error);
void trial_free(struct trial *trial);

/* The options of an entry: the defaults, the row's choice, and the density as its "ratio" or
 * "density", where it has one. */
bool trial_options(const struct trial *trial, const struct spr_opt *table, size_t options,
                   void *fields, struct spr_error *error);
/* Is there such an option? */
bool has_density(const struct spr_opt *table, size_t options);

/* Elements [*begin, *end) of a slice. Slices begin at a window, so at a group of any coder. */
static inline void span_of(size_t n, int slice, int slices, size_t *begin, size_t *end)
{
    size_t windows = (n + SPR_WINDOW - 1) / SPR_WINDOW, parts = (size_t)slices;

    *begin = spr_min_size(n, windows * (size_t)slice / parts * SPR_WINDOW);
    *end = spr_min_size(n, windows * ((size_t)slice + 1) / parts * SPR_WINDOW);
}

/* The threshold of the last step as it would be: 3 % off, in turn to both sides; 0, not known,
 * where that would be no number. */
uint32_t hint_near(uint32_t threshold_bits, unsigned run);

/* |x - y| / |x|. Elements that are not finite have to be so in both, and do not count. */
double relative_error(const float *x, const float *y, size_t n);

#endif
