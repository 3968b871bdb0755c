/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/first_rank.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"

/* Twice as long as sparring-run leaves the others to report. */
#define PATIENCE_S 1

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
    const char *text = getenv("SPARRING_TIME_FACTOR");
    double factor = text ? strtod(text, NULL) : 1;
    struct timespec patience = {.tv_sec = PATIENCE_S};

    if (factor >= 1 && factor <= 1000)
        patience.tv_sec = (time_t)(PATIENCE_S * factor);
    if (!first_rank())
        (void)nanosleep(&patience, NULL);
}
