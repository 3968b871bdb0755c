/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What algorithms are chosen by, as text: models (collectives/model.c) and trials
 * (collectives/trials.c). Input: a byte, odd for a trial, the text.
 */
#include <math.h>
#include <stdlib.h>

#include <sparring/tune.h>

#include "base/util.h"
#include "collectives/trials.h"
#include "tests/fuzz/fuzz.h"

/* What is taken is printed as the same again. */
static void read_model(const char *text)
{
    struct spr_model first, second;
    struct spr_error error = {.rank = -1};
    char printed[SPR_MODEL_BYTES], again[SPR_MODEL_BYTES];
    spr_status status = spr_model_parse(text, &first, &error);

    if (status != SPR_OK) {
        FUZZ_CHECK(status == SPR_ERR_INVALID && error.status == status && *error.text);
        return;
    }
    spr_model_print(&first, printed, sizeof printed);
    FUZZ_CHECK(strlen(printed) < sizeof printed - 1);
    FUZZ_CHECK(spr_model_parse(printed, &second, &error) == SPR_OK);
    FUZZ_CHECK(!strcmp(spr_model_print(&second, again, sizeof again), printed));
}

/* But for its time, of which three digits are printed. */
static void read_trial(const char *text)
{
    struct spr_tried first, second;
    char printed[SPR_TRIED_BYTES], again[SPR_TRIED_BYTES];
    int best = 0;

    if (!spr_tried_parse(text, &first))
        return;
    for (int i = 1; i < SPR_ALGORITHMS; i++)
        if (first.seconds[i] < first.seconds[best])
            best = i;
    FUZZ_CHECK(first.seconds[best] > 0 && isfinite(first.seconds[best]));
    spr_tried_print(&first, printed, sizeof printed);
    FUZZ_CHECK(strlen(printed) < sizeof printed - 1);
    FUZZ_CHECK(spr_tried_parse(printed, &second));
    FUZZ_CHECK(isfinite(second.seconds[best]));
    spr_tried_print(&second, again, sizeof again);
    FUZZ_CHECK(!strcmp(printed, again));
    FUZZ_CHECK(spr_kind_near(&first.kind, &second.kind, 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    bool trial = fuzz_u8(&in) & 1;
    char *text = fuzz_rest_text(&in);

    (trial ? read_trial : read_model)(text);
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"model", 0,
         "latency=1e-05,grant=1e-05,message=1e-06,byte=1e-09,copy=2e-10,reduce=1e-10,encode=2e-09,"
         "merge=4e-09,take=1e-09,clear=1e-10,stream=1e-10,exposed=0.5,load=2,"
         "allreduce.ring=-5e-06,sparse_allreduce.hosts=0.25"},
        {"model_short", 0, "latency=1,grant=2"},
        {"model_twice", 0, "latency=1,latency=1"},
        {"dense", 1, "allreduce:8/4:1024x4=flat@1.2e-05"},
        {"halves", 1, "allreduce:2/1:25557032x4:fp16/fp32=ring@0.25"},
        {"sparse", 1, "sparse_allreduce:8/8:25557032x4:255571=direct@0.0419"},
        {"bounded", 1, "sparse_allreduce:8/8:4000x4:40:bf16/coded:bounded=union@3"},
        {"coded", 1, "sparse_allreduce:8/4:25557032x4:coded8/coded4=hosts@0.4"},
        {"bounded_hosts", 1, "sparse_allreduce:8/4:4000x4:40:fp16/fp16:hosts=hosts@3"},
        {"bounded_plain", 1, "sparse_allreduce:8/8:4000x4:40:bounded=hosts@1e-05"},
        {"long", 1,
         "sparse_allreduce:2147483647/2147483647:18446744073709551615x8:18446744073709551615:"
         "coded64/coded64:bounded=hierarchical@1.23e-300"},
        {"none", 1, "allreduce:8/4:1024x4=flat@inf"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
