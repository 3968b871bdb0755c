/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/collective_options.h"

#include <stdio.h>
#include <string.h>

#include <sparring/sparring.h>

#include "collectives/collective.h"
#include "tools/codec_spec.h"

/* Appends to a list in words. */
static void append(char *list, size_t bytes, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

enum options_next take_collective(int count, char *const *words, const char *const *names,
                                  int name_count, int *kind)
{
    char list[256] = "";

    if (count > 1)
        return options_wrong("one collective only, not '%s' and '%s'", words[0], words[1]);
    for (int i = 0; count == 1 && i < name_count; i++) {
        if (strcmp(words[0], names[i]) == 0) {
            *kind = i;
            return OPTIONS_RUN;
        }
        append(list, sizeof list, names[i]);
    }
    return count == 0 ? OPTIONS_RUN
                      : options_wrong("unknown collective '%s'; there is: %s", words[0], list);
}

enum options_next check_algorithm(const char *collective, const char *algorithm)
{
    const char *name;
    char list[256] = "auto, all";

    if (strcmp(algorithm, "auto") == 0 || strcmp(algorithm, "all") == 0)
        return OPTIONS_RUN;
    for (int i = 0; (name = spr_algorithm_name(collective, i)) != NULL; i++) {
        if (strcmp(name, algorithm) == 0)
            return OPTIONS_RUN;
        append(list, sizeof list, name);
    }
    return options_wrong("%s has no algorithm '%s'; there is: %s", collective, algorithm, list);
}

enum options_next check_codec(const char *codec, double *densities, size_t *density_count)
{
    spr_layout layout = {.id = 1, .rows = 1, .columns = 1};
    char text[32] = "";
    spr_codec *made;

    if (spr_codec_create(codec, &layout, 1, &made) != SPR_OK)
        return options_wrong("--codec: %s", spr_last_error(NULL));
    const char *ratio = strstr(spr_codec_spec(made), "ratio="); /* of bytes=, too */
    if (ratio != NULL)
        snprintf(text, sizeof text, "%.*s", (int)strcspn(ratio + 6, ",+"), ratio + 6);
    spr_codec_destroy(made);
    if (codec_takes_density(codec))
        return OPTIONS_RUN;
    if (*density_count > 0)
        return options_wrong("--density and the codec '%s' exclude each other", codec);
    if (codec_goes_by_ratio(codec) && option_density(text, 0, densities))
        *density_count = 1;
    return OPTIONS_RUN;
}
