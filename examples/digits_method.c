/* SPDX-License-Identifier: BSD-2-Clause */
#include "digits_method.h"

#include <stdlib.h>
#include <string.h>

static spr_status make_codec(const digits_method *method, int number, spr_codec **codec)
{
    spr_status status =
        spr_codec_create(method->name[number], method->layout, method->parameters, codec);

    if (status == SPR_OK && method->quality)
        (void)spr_codec_watch(*codec, 10, 1e4, -0.05); /* no limit here is wrong */
    return status;
}

/* A wrong codec shall not be found when it is its turn. */
static spr_status try_all(const digits_method *method)
{
    spr_status status = SPR_OK;

    for (int i = 0; i < method->codecs && status == SPR_OK; i++) {
        spr_codec *codec;

        status = make_codec(method, i, &codec);
        if (status == SPR_OK)
            spr_codec_destroy(codec);
    }
    return status;
}

spr_status digits_method_open(digits_method *method, const char *text, const spr_layout *layout,
                              size_t parameters, bool quality)
{
    spr_status status;

    *method = (digits_method){.layout = layout, .parameters = parameters, .quality = quality};
    if (strcmp(text, METHOD_DENSE) == 0)
        return SPR_OK;
    method->names = strdup(text);
    if (!method->names)
        return SPR_ERR_NOMEM;
    for (char *next = method->names, *name; (name = strsep(&next, ";"));) {
        if (method->codecs == METHOD_CODECS_MAX) {
            digits_method_close(method);
            return SPR_ERR_TOO_SMALL;
        }
        method->name[method->codecs++] = name;
    }
    method->current = method->codecs == 1 ? 0 : -1;
    status = method->codecs == 1 ? make_codec(method, 0, &method->codec) : try_all(method);
    if (status)
        digits_method_close(method);
    return status;
}

void digits_method_close(digits_method *method)
{
    spr_codec_destroy(method->codec);
    free(method->names);
    method->codec = NULL;
    method->names = NULL;
}

spr_status digits_method_choose(digits_method *method, spr_comm *comm, float *gradient)
{
    spr_choice_options options = SPR_CHOICE_OPTIONS_INIT;
    int chosen;
    spr_status status;

    if (method->codecs < 2)
        return SPR_OK;
    options.current = method->current;
    status = spr_codec_choose(comm, method->name, method->codecs, method->layout,
                              method->parameters, gradient, &options, &chosen);
    if (status || chosen == method->current)
        return status;
    if (method->codec) {
        const float *residual = spr_codec_residual(method->codec);

        for (size_t i = 0; i < spr_codec_elements(method->codec); i++)
            gradient[i] += residual[i];
    }
    spr_codec_destroy(method->codec);
    method->codec = NULL;
    method->current = chosen;
    return chosen < method->codecs ? make_codec(method, chosen, &method->codec) : SPR_OK;
}

const char *digits_method_name(const digits_method *method)
{
    return method->codec ? method->name[method->current] : METHOD_DENSE;
}

double digits_method_momentum(const digits_method *method, double momentum)
{
    const char *name = digits_method_name(method);
    bool preset = strncmp(name, "dgc", 3) == 0 || strncmp(name, "onebit", 6) == 0;
    bool corrected = (preset && !strstr(name, "feedback=")) || strstr(name, "feedback=momentum") ||
                     strstr(name, "feedback=nesterov");

    return corrected ? 0 : momentum;
}
