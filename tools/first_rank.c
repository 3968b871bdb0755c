/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/first_rank.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"

/* Twice as long as sparring-run leaves the others to report. */
#define PATIENCE_S 1.0

bool first_rank(void)
{
    /* RANK alone is too common a name. */
    static const char *const names[][2] = {{"SPARRING_RANK", NULL}, {"RANK", "WORLD_SIZE"},
                                           {"PMIX_RANK", NULL},     {"OMPI_COMM_WORLD_RANK", NULL},
                                           {"PMI_RANK", NULL},      {"SLURM_PROCID", NULL}};

    for (size_t i = 0; i < SPR_ARRAY_LEN(names); i++)
        if (getenv(names[i][0]) && (!names[i][1] || getenv(names[i][1])))
            return strcmp(getenv(names[i][0]), "0") == 0;
    return true;
}

void first_rank_first(void)
{
    const char *factor = getenv("SPARRING_TIME_FACTOR");
    double seconds = PATIENCE_S * (factor && strtod(factor, NULL) > 1 ? strtod(factor, NULL) : 1);
    struct timespec patience = {.tv_sec = (time_t)seconds};

    patience.tv_nsec = (long)((seconds - (double)patience.tv_sec) * 1e9);
    if (!first_rank())
        (void)nanosleep(&patience, NULL);
}
