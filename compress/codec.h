/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codec: a parsed codec string and its state. Implements include/sparring/codec.h but for the
 * collective itself. Pure: knows nothing of ranks or transports.
 *
 * One step:  begin -> (the list is sent and summed) [-> next ->] -> commit [-> revoke] | abort
 *
 *   begin   residual += gradient, select, round; the selected entries are taken out of the
 *           residual (what rounding lost stays in it). After an abort: begin returns the same
 *           list, bit for bit, and does not add the gradient again (until spr_codec_drop).
 *   commit  the step is done, here. That all others have it, too, is known when the next one is.
 *   abort   the selected values go back into the residual, exact to the bit, from the list; the
 *           step is marked as absorbed.
 *   next    of a codec that makes its result of sums: random puts them to the positions, which all
 *           ranks know; powersgd sends in rounds, where what it sends depends on the sum of what it
 *           sent before.
 *   revoke  the step that was committed last has failed on another rank: as abort. When the next
 *           one had begun already (and was aborted), what was sent is added to the residual, that
 *           next step is dropped, and begin returns the list of the revoked one.
 *
 * Rounding never makes an infinity: a finite value beyond the largest finite fp16 or bf16 is sent
 * as that one, and the rest stays in the residual. NaN and Inf are sent as they are, so that the
 * failure shows on all ranks at once, and leave 0 in the residual (with "random": once they are
 * selected). With feedback=off what is not sent is lost, and so is a dropped step.
 *
 * Coded values (compress/coding.h) are sent as they are before that; what others make of them is
 * taken from the residual: at once (lists), or by the commit (none). A retry in another place,
 * after the loss of a rank, rounds anew. Without a selection, a coder that rounds at random (qsgd,
 * terngrad, natural, int8:rounding=stochastic) works as in its paper, without a residual.
 *
 * Sums are sent on as the values were, or as sums= says, and what that loses stays in the residual
 * of the rank that has summed them (codec_sums.c). They are exact where there is no feedback or the
 * positions are not sent, and, unless sums= names a coder, where that of the values rounds at
 * random.
 *
 * With union=bounded only the largest sums are sent on. An element that all ranks get nothing of
 * comes back to the residuals of those who have sent it, when the step is committed: it is taken by
 * all or by none (Li and Hoefler 2022, "Near-optimal sparse allreduce for distributed deep
 * learning", Ok-Topk). With union=hosts a host of several ranks sends only the largest of their
 * sums to others; all that each rank has sent is taken, and what is left out enters the residual of
 * the rank that has summed it, as does what rounding sums loses.
 *
 * Steps are numbered by commits, so that the number is the same on all ranks whatever has failed:
 * an aborted or dropped step leaves its number to the next one, a revoked one takes it back. A step
 * with sums makes sense only between ranks that are at the same number.
 *
 * Memory: the residual, with momentum a velocity, and as workspace lists: 16 bytes (24 with a
 * rounding, 8 more with momentum) per entry that may be sent, plus what its selector needs (topk:
 * 2 k + n / 8 bytes and at most 0.5 MB; random: 4 k); none: 8 bytes per element; coded values:
 * n / 16 bytes and at most 0.8 MB. What is sent is kept twice: of the step that was committed last
 * and of the one that runs. Nothing is allocated after spr_codec_create(), but room for what
 * sums have lost, when a step begins in a place where this rank rounds, or may leave out, more of
 * them than before: two lists of 8 bytes (dense: 4) per element of these, of which only pages in
 * use take memory; and what the selector needs for slices, when a step begins with more workers
 * than before, or with another ratio and that needs more.
 */
#ifndef SPR_COMPRESS_CODEC_H
#define SPR_COMPRESS_CODEC_H

#include <stdbool.h>
#include <stdio.h>

#include <sparring/codec.h>

#include "base/error.h"
#include "base/list.h"
#include "compress/chunk.h"

/* What a codec string stands for. */
struct spr_codec_kind {
    bool dense;       /* whole vectors, no selection */
    bool lists;       /* of indices and values; otherwise values only */
    bool coded;       /* SPR_V_CODED */
    bool round_sums;  /* sums are rounded before they are sent on, where there are several ranks */
    bool bound_union; /* likewise: the largest of them alone */
    bool bound_hosts; /* ... of those of a host of several ranks, where they were summed */
    bool conserves;   /* residual' = residual + gradient - sent */
};
/* INVALID, as spr_codec_create(). */
spr_status spr_codec_kind_of(const char *spec, struct spr_codec_kind *kind,
                             struct spr_error *error);

/* Whose step it is: coded values depend on it, and nothing else. */
struct spr_codec_place {
    struct spr_blocks blocks; /* of spr_codec_vector() elements */
    uint32_t rank;
    bool leaves_rest; /* whoever codes a dense vector writes step.rest */
    bool sums_first;  /* coded values of lists are summed with others' before they are coded */
    size_t most_lost; /* elements of spr_codec_keep_rest(), where they are more than rank's sums */
    struct spr_workers *workers; /* help while the step begins; the bits are the same. NULL: none */
};

/* What a step sends. Owned by the codec; valid until commit or abort. */
struct spr_codec_step {
    bool dense;            /* a whole vector is sent, no list */
    const float *vector;   /* dense: `elements` values, or, unless sum is NULL, `count` */
    float *sum;            /* where their sum over ranks goes, for spr_codec_next(), or NULL */
    uint64_t number;       /* of the step; with a sum, all ranks must be at the same */
    const uint32_t *index; /* count sorted indices; dense: NULL, or known to all ranks, not sent */
    const float *value;    /* count values */
    size_t count;          /* of the list, or with sum of the vector */
    enum spr_vtype vtype;  /* values fit this type without loss; or they are */
    struct spr_coding coding; /* ... coded so, without scratch */
    float *rest;              /* NULL, or where what coding loses of the vector is to be written */
    enum spr_vtype sum_vtype; /* of sums that are sent on; not FP32: spr_codec_keep_rest() */
    struct spr_coding sum_coding; /* ... coded so */
    bool bound_union;             /* the largest of them alone: spr_codec_take_back() */
};
/* A window of sums that this rank rounds, of a step that sends lists or a coded vector, and what
 * that has left of them, at ascending positions. Of a vector at all of them: pos is not read. */
struct spr_codec_rest {
    const struct spr_blocks *blocks; /* the same in all of a step */
    uint32_t owner, window;
    const uint16_t *pos;
    const float *rest;
    size_t count;
};

/* Does it send vectors, with values of one of the types that dense collectives sum? */
bool spr_codec_is_dense(const spr_codec *codec);
/* As in spr_codec_step. */
enum spr_vtype spr_codec_vtype(const spr_codec *codec);
/* How coded values are, without the seed of a step. */
struct spr_coding spr_codec_coding(const spr_codec *codec);
/* Entries of a list at most, as string and layout say: the same on all ranks. 0: it sends none. */
size_t spr_codec_most_entries(const spr_codec *codec);
/* Where there are several ranks, how are sums sent on? As in spr_codec_step. */
enum spr_vtype spr_codec_sum_vtype(const spr_codec *codec);
struct spr_coding spr_codec_sum_coding(const spr_codec *codec);
/* Where there are several ranks, are the largest of the sums alone sent on? */
bool spr_codec_bounds_union(const spr_codec *codec);
/* ... or, where several ranks share a host, the largest of the host's sums sent to others? Whoever
 * sums keeps those that are not: spr_codec_keep_rest(). */
bool spr_codec_bounds_hosts(const spr_codec *codec);
/* The list of the step that was committed last; valid until the next one begins. False: there is
 * none, or it is known no more. */
bool spr_codec_last_list(const spr_codec *codec, const uint32_t **index, const float **value,
                         size_t *count);
/* Does the next begin return the list of a step that was aborted? */
bool spr_codec_is_retry(const spr_codec *codec);
spr_status spr_codec_begin_at(spr_codec *codec, const float *gradient,
                              const struct spr_codec_place *place, struct spr_codec_step *step);
/* As one rank alone. */
spr_status spr_codec_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step);
/* Elements of the vector that the next step, or the retry of the last one, sends in its first
 * round; of a list: that its indices are below. */
size_t spr_codec_vector(const spr_codec *codec);
/* After a step whose `sum` is not NULL was summed over ranks there, in place. True: `step` is the
 * next round, to be summed likewise. False: there is none, and the gradient is the result. */
bool spr_codec_next(spr_codec *codec, float *gradient, struct spr_codec_step *step);
/* What others make of the step that runs, in the order of `vector` or `value`. Not of one with a
 * sum and no indices. */
void spr_codec_sent(const spr_codec *codec, const struct spr_codec_step *step, float *sent);
/* May the vectors of some ranks be summed before they are coded? Whoever codes such a sum keeps
 * what that loses. */
bool spr_codec_may_sum_first(const spr_codec *codec);
/* That is done in the step that runs: nothing of its vector alone is coded, and step.rest is not
 * written. */
void spr_codec_sums_first(spr_codec *codec);
/* The residual keeps rest * weight, when the step is committed. Each position once. */
void spr_codec_keep_rest(spr_codec *codec, const struct spr_codec_rest *r, float weight);
/* Of a step with bound_union, before its commit: an element that is zero in `result`, the whole
 * vector, was not sent on, and what this rank has put into it stays here. Without this all was. */
void spr_codec_take_back(spr_codec *codec, const float *result);
void spr_codec_commit(spr_codec *codec);
void spr_codec_abort(spr_codec *codec);
void spr_codec_revoke(spr_codec *codec);

/* For whoever may revoke a committed step: a place in its list, and how a codec that is destroyed,
 * loaded or used elsewhere is taken out of it. */
struct spr_codec_keeper {
    struct spr_list node;
    uint32_t operation;               /* of the step that was committed last */
    void *owner;                      /* NULL: in no list */
    void (*forget)(spr_codec *codec); /* clears owner */
};
struct spr_codec_keeper *spr_codec_keeper(spr_codec *codec);
spr_codec *spr_codec_of_keeper(struct spr_list *node);
/* What whoever sums remembers of the steps that it did for this codec; zero at first. */
struct spr_codec_history {
    uint64_t era;          /* the rest is of this one; 0: of none */
    size_t union_entries;  /* of the last sparse result; 0: none */
    const char *algorithm; /* of the last step */
};
struct spr_codec_history *spr_codec_history(spr_codec *codec);
/* Hash of everything that must be equal on all ranks: spec and layout. */
uint64_t spr_codec_hash(const spr_codec *codec);
/* The canonical string, e.g. "topk:ratio=0.01,count=0+fp16". */
const char *spr_codec_spec(const spr_codec *codec);
/* `sparring-perf --codec help`: every codec with its options. */
void spr_codec_help(FILE *out);

#endif
