/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Events of a flight recorder that somebody else wrote (base/trace_text.c). Input: the event, then
 * what is in the header's table of words.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/trace.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct spr_trace_header header;
    struct fuzz_in in = {data, size};
    char text[1024] = "";
    struct spr_event e;
    FILE *out = fmemopen(text, sizeof text - 1, "w");

    FUZZ_CHECK(out);
    fuzz_take(&in, &e, sizeof e);
    size_t words = in.left < sizeof header.words ? in.left : sizeof header.words;
    fuzz_take(&in, header.words, words);
    spr_trace_print(&header, &e, out);
    FUZZ_CHECK(!ferror(out) && fclose(out) == 0);
    FUZZ_CHECK(*text && strlen(text) < 400);
    for (const char *c = text; *c; c++) /* one line that harms no terminal */
        FUZZ_CHECK(*c >= ' ' && *c < 0x7f);
    memset(header.words, 0, words);
    return 0;
}

void fuzz_seeds(void)
{
    static struct fuzz_seed s;

    for (unsigned kind = 0; kind <= SPR_EV_COUNT; kind++) {
        struct spr_event e = {.ns = 1, .kind = (uint16_t)kind, .peer = 3, .c = 7};
        const char *name = spr_event_name((enum spr_event_kind)kind);

        e.a = UINT64_C(7) << 32 | 2u << 24 | 1;
        e.b = 'b';
        fuzz_put(&s, &e, sizeof e);
        fuzz_put(&s, (char[SPR_TRACE_WORD_BYTES]){""}, SPR_TRACE_WORD_BYTES);
        fuzz_put(&s, (char[SPR_TRACE_WORD_BYTES]){"direct"}, SPR_TRACE_WORD_BYTES);
        fuzz_put(&s, (char[SPR_TRACE_WORD_BYTES]){"allreduce"}, SPR_TRACE_WORD_BYTES);
        fuzz_emit_seed(name, &s);
    }
}
