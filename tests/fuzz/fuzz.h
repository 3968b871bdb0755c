/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the fuzz targets share. A target is one file with the two functions below: it takes bytes
 * that come from outside to a decoder, and checks what the decoder made of them.
 *
 * Linked with libFuzzer (make fuzz), or with replay.c's main into a test that runs the seeds and
 * the files of tests/fuzz/corpus/TARGET.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One input. Always returns 0; ends the process when a property does not hold. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Inputs made by the real encoders: calls fuzz_emit for each. */
void fuzz_seeds(void);
/* Set by whoever calls fuzz_seeds(). */
extern void (*fuzz_emit)(const char *name, const void *data, size_t bytes);

/* The input that runs, for messages; or NULL. */
extern const char *fuzz_current;
_Noreturn void fuzz_failed(const char *file, int line, const char *what);
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_failed(__FILE__, __LINE__, #condition))

/* Reading an input: zeros when nothing is left. */
struct fuzz_in {
    const uint8_t *at;
    size_t left;
};
void fuzz_take(struct fuzz_in *in, void *to, size_t bytes);
uint64_t fuzz_number(struct fuzz_in *in, size_t bytes); /* of up to 8 */
static inline uint8_t fuzz_u8(struct fuzz_in *in) { return (uint8_t)fuzz_number(in, 1); }
static inline uint16_t fuzz_u16(struct fuzz_in *in) { return (uint16_t)fuzz_number(in, 2); }
static inline uint32_t fuzz_u32(struct fuzz_in *in) { return (uint32_t)fuzz_number(in, 4); }
static inline uint64_t fuzz_u64(struct fuzz_in *in) { return fuzz_number(in, 8); }
/* A copy of what is left, in memory of just that size, so that a step beyond it is seen; one
 * terminating zero for a text. free(). */
void *fuzz_rest(struct fuzz_in *in);
char *fuzz_rest_text(struct fuzz_in *in);
/* Environment of the process until fuzz_environ_end: the lines NAME=value of `text`, which is cut
 * up and must live as long. */
void fuzz_environ_begin(char *text);
void fuzz_environ_end(void);

/* Writing a seed. */
struct fuzz_seed {
    uint8_t data[1 << 16];
    size_t bytes;
};
void fuzz_put(struct fuzz_seed *s, const void *data, size_t bytes);
void fuzz_put_u8(struct fuzz_seed *s, unsigned value);
void fuzz_put_u16(struct fuzz_seed *s, unsigned value);
/* Emits and empties it. */
void fuzz_emit_seed(const char *name, struct fuzz_seed *s);
/* Seeds of a byte that tells how to treat a text, then the text. */
struct fuzz_text {
    const char *name;
    unsigned mode;
    const char *text;
};
void fuzz_emit_texts(const struct fuzz_text *list, size_t count);
/* Seeds that are short and written by hand. */
struct fuzz_script {
    const char *name;
    uint8_t bytes[40];
    size_t count; /* of bytes */
};
void fuzz_emit_scripts(const struct fuzz_script *list, size_t count);

#endif
