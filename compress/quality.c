/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/quality.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"
#include "compress/codec_internal.h"
#include "compress/kernels/kernels.h"

enum {
    LANES = 4,
    BATCH = 256,   /* elements */
    SMOOTHED = 16, /* samples in the mean cosine, about */
};

/* ---- Sums ---- */

/* g, a, s: gradient, accumulated, sent. In lanes, so that compilers make vectors of it. */
static void add_finite(struct spr_quality_sums *sums, const float *g, const float *a,
                       const float *s, size_t n)
{
    double gg[LANES] = {0}, aa[LANES] = {0}, ss[LANES] = {0}, ee[LANES] = {0}, gs[LANES] = {0};

    for (size_t at = 0; at < n; at += LANES)
        for (size_t i = 0; i < LANES; i++) {
            double x = (double)g[at + i], y = (double)a[at + i], z = (double)s[at + i];

            gg[i] += x * x;
            aa[i] += y * y;
            ss[i] += z * z;
            ee[i] += (y - z) * (y - z);
            gs[i] += x * z;
        }
    for (size_t i = 0; i < LANES; i++) {
        sums->gg += gg[i];
        sums->aa += aa[i];
        sums->ss += ss[i];
        sums->ee += ee[i];
        sums->gs += gs[i];
    }
}

/* s NULL: nothing is sent. */
static void add(struct spr_quality_sums *sums, const float *g, const float *a, const float *s,
                size_t n)
{
    static const float zeros[BATCH];

    for (size_t at = 0, m; at < n; at += m) {
        const float *z = s ? s + at : zeros;

        m = spr_min_size(BATCH, n - at);
        if (m == BATCH && spr_all_finite(g + at, m) && spr_all_finite(a + at, m) &&
            spr_all_finite(z, m)) {
            add_finite(sums, g + at, a + at, z, m);
            continue;
        }
        for (size_t i = 0; i < m; i++) {
            float x[LANES] = {g[at + i]}, y[LANES] = {a[at + i]}, one[LANES] = {z[i]};

            sums->not_finite += isfinite(x[0]) ? 0 : 1;
            if (isfinite(x[0]) && isfinite(y[0]) && isfinite(one[0]))
                add_finite(sums, x, y, one, LANES);
        }
    }
}

/* An element that was taken for one that is not sent, and `kept` for all of it. */
static void add_sent(struct spr_quality_sums *sums, float g, float kept, float a, float s)
{
    double dk = isfinite(g) && isfinite(kept) ? (double)kept : 0;

    sums->sent++;
    sums->aa -= dk * dk;
    sums->ee -= dk * dk;
    if (!isfinite(g) || !isfinite(a) || !isfinite(s))
        return;
    sums->aa += (double)a * (double)a;
    sums->ee += ((double)a - (double)s) * ((double)a - (double)s);
    sums->ss += (double)s * (double)s;
    sums->gs += (double)g * (double)s;
}

static void clear(struct spr_quality *q)
{
    for (size_t i = 0; i <= q->count; i++)
        q->parameters[i].sums = (struct spr_quality_sums){0};
}

/* ---- What a step sends ---- */

/* What the walk over it needs. */
struct look {
    const spr_codec *codec;
    const float *gradient, *accumulated;
    const uint32_t *index; /* of a list */
    bool feedback, stays;  /* there is a residual, and what is sent is in it for now */
    const float *whole; /* of a list that is coded later: its values; NULL: what is left is kept */
    struct spr_quality_parameter *at;
};

/* Of an element; neighbours are in the same one most of the time. */
static struct spr_quality_parameter *parameter_of(struct look *look, size_t element)
{
    const struct spr_quality *q = &look->codec->quality;
    size_t low = 0, high = q->count;

    if (look->at && element - look->at->offset < look->at->elements)
        return look->at;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (q->parameters[middle].offset <= element)
            low = middle;
        else
            high = middle;
    }
    return look->at = &q->parameters[low];
}

static void take_entries(void *context, size_t first, size_t end, const float *sent)
{
    struct look *look = context;

    for (size_t i = first; i < end; i++) {
        size_t e = look->index[i];
        float g = look->gradient[e], kept = look->accumulated[e], s = sent[i - first];

        /* With feedback the rest is there already, or all of it is; or nothing was coded yet. */
        float a = look->whole ? look->whole[i] : look->stays ? kept : look->feedback ? kept + s : g;
        add_sent(&parameter_of(look, e)->sums, g, kept, a, s);
    }
}

static void take_elements(void *context, size_t first, size_t end, const float *sent)
{
    struct look *look = context;

    for (size_t next; first < end; sent += next - first, first = next) {
        struct spr_quality_parameter *p = parameter_of(look, first);

        next = spr_min_size(end, p->offset + p->elements);
        add(&p->sums, look->gradient + first, look->accumulated + first, sent, next - first);
        p->sums.sent += next - first;
    }
}

/* Positions as they go over TCP, cut into blocks where the list is, not where its chunks are. */
static void take_positions(struct look *look, size_t count)
{
    for (size_t at = 0, n; at < count; at += n) {
        const uint32_t *index = look->index + at;
        uint32_t first = at > 0 ? index[-1] + 1 : 0;

        n = spr_min_size(SPR_INDEX_BLOCK, count - at);
        double each = (double)spr_index_bitpack_bytes(index, n, first) / (double)n;
        for (size_t i = 0; i < n; i++)
            parameter_of(look, index[i])->sums.packed += each;
    }
}

/* Returns the bytes of the values. */
static size_t look_at_list(struct look *look, const struct spr_codec_step *step)
{
    const spr_codec *codec = look->codec;

    look->index = step->index;
    look->stays = step->bound_union && look->feedback;
    look->accumulated = look->feedback ? codec->residual : look->gradient;
    for (size_t i = 0; i < codec->quality.count; i++) {
        struct spr_quality_parameter *p = &codec->quality.parameters[i];
        add(&p->sums, look->gradient + p->offset, look->accumulated + p->offset, NULL, p->elements);
    }
    if (!step->dense)
        take_positions(look, step->count);
    look->whole = spr_codec_codes_later(codec, codec->slot) ? step->value : NULL;
    if (codec->vtype == SPR_V_CODED)
        return spr_codec_each_sent(codec, codec->slot, step->dense ? NULL : step->index,
                                   step->value, step->count, take_entries, look);
    take_entries(look, 0, step->count, step->value);
    return step->count * spr_vtype_bytes(codec->vtype);
}

static size_t look_at_vector(struct look *look, const struct spr_codec_step *step)
{
    const spr_codec *codec = look->codec;
    bool rounded = codec->vtype == SPR_V_FP16 || codec->vtype == SPR_V_BF16;

    /* What is rounded one by one is still in the residual, if it is kept at all. */
    look->accumulated = rounded && look->feedback ? codec->residual : step->vector;
    return spr_codec_each_sent(codec, codec->slot, NULL, step->vector, codec->elements,
                               take_elements, look);
}

static void look_at_factors(struct look *look)
{
    const struct spr_quality *q = &look->codec->quality;
    const struct spr_lowrank *l = &look->codec->lowrank;

    look->accumulated = look->codec->residual;
    for (size_t t = 0; t < l->count; t++) {
        const struct spr_lowrank_tensor *tensor = &l->tensors[t];

        if (tensor->rows * tensor->columns == 0)
            continue;
        if (spr_lowrank_is_dense(tensor, l->rank)) {
            take_elements(look, tensor->offset, tensor->offset + tensor->rows * tensor->columns,
                          look->accumulated + tensor->offset);
            continue;
        }
        for (size_t row = 0; row < tensor->rows; row += SPR_LOWRANK_LANES) {
            size_t rows = spr_min_size(SPR_LOWRANK_LANES, tensor->rows - row);
            size_t first = tensor->offset + row * tensor->columns;

            spr_lowrank_sent(l, t, row, rows, q->rows);
            take_elements(look, first, first + rows * tensor->columns, q->rows);
        }
        /* Not elements, but the entries of two factors. */
        parameter_of(look, tensor->offset)->sums.sent =
            spr_skinny_floats(tensor->rows, l->rank) + spr_skinny_floats(tensor->columns, l->rank);
    }
}

/* ---- Conclusions ---- */

static double root(double x) { return x > 0 ? sqrt(x) : 0; }

static double ratio(double x, double y) { return y > 0 ? x / y : 0; }

static const char *name_of(const struct spr_quality_parameter *p)
{
    return p->name ? p->name : "unnamed";
}

/* Tells of an alert when it begins. */
static bool begins(struct spr_quality_parameter *p, unsigned alert, bool on, bool off)
{
    bool before = (p->alerts & alert) != 0;

    if (on)
        p->alerts |= alert;
    else if (off)
        p->alerts &= ~alert;
    return on && !before;
}

static void watch_residual(const spr_codec *codec, struct spr_quality_parameter *p)
{
    double limit = codec->quality.residual_limit, norm = root(p->sums.ee);

    p->largest_gradient = fmax(p->largest_gradient, root(p->sums.gg));
    double most = limit * p->largest_gradient;
    /* Before the first gradient there may be a residual, that of a checkpoint. */
    if (most > 0 && begins(p, SPR_ALERT_RESIDUAL, norm > most, norm < most / 2))
        spr_warn(SPR_SUB_CODEC,
                 "codec %s, parameter %s (id %llu), step %llu: the residual's norm is %.3g, the "
                 "gradient's was at most %.3g: more is left over than is ever sent; send more "
                 "(ratio, levels), or without feedback",
                 codec->spec, name_of(p), (unsigned long long)p->id,
                 (unsigned long long)codec->quality.last_step, norm, p->largest_gradient);
}

static void watch_cosine(const spr_codec *codec, struct spr_quality_parameter *p)
{
    /* The cosine of vectors that have nothing to do with each other has a standard deviation of
     * 1 / sqrt(elements); four times that of the mean is no chance. */
    double chance = 4 / sqrt(SMOOTHED * (double)p->elements);
    double floor = codec->quality.cosine_floor - chance;

    if (codec->quality.cosine_floor <= -1 || p->sums.gg <= 0 || p->sums.ss <= 0)
        return;
    p->cosines += p->cosines < SMOOTHED;
    p->cosine += (p->sums.gs / sqrt(p->sums.gg * p->sums.ss) - p->cosine) / p->cosines;
    if (p->cosines == SMOOTHED &&
        begins(p, SPR_ALERT_COSINE, p->cosine < floor, p->cosine >= floor))
        spr_warn(SPR_SUB_CODEC,
                 "codec %s, parameter %s (id %llu), step %llu: what is sent has a mean cosine of "
                 "%.3f to the gradient: it is out of date; send more (ratio), or lower the "
                 "learning rate",
                 codec->spec, name_of(p), (unsigned long long)p->id,
                 (unsigned long long)codec->quality.last_step, p->cosine);
}

/* Bits per element; value_bytes: of all that is sent. Positions are packed, 16 bits each or a
 * bitmap, what is the least; none are sent with all elements, or with those that all ranks know. */
static double bits_of(const struct spr_quality_parameter *p, const struct spr_quality_sums *all,
                      double value_bytes)
{
    double n = (double)p->elements, sent = (double)p->sums.sent;
    double positions = sent < n ? fmin(fmin(p->sums.packed, 2 * sent), n / 8) : 0;

    return n > 0 ? 8 * (ratio(value_bytes * sent, (double)all->sent) + positions) / n : 0;
}

static void conclude(spr_codec *codec, double value_bytes)
{
    struct spr_quality *q = &codec->quality;
    struct spr_quality_parameter *all = &q->parameters[q->count];
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    q->last_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    q->last_step = codec->sent_as[codec->slot].step;
    q->samples++;
    for (size_t i = 0; i < q->count; i++) {
        struct spr_quality_sums *s = &q->parameters[i].sums;

        /* Differences of large numbers may be a little less than nothing. */
        s->aa = fmax(s->aa, 0);
        s->ee = fmax(s->ee, 0);
        all->sums.gg += s->gg;
        all->sums.aa += s->aa;
        all->sums.ss += s->ss;
        all->sums.ee += s->ee;
        all->sums.gs += s->gs;
        all->sums.packed += s->packed;
        all->sums.sent += s->sent;
        all->sums.not_finite += s->not_finite;
        q->parameters[i].target =
            codec->adapt.count > 0 ? (double)codec->adapt.parts[i].memory.ratio : codec->target;
    }
    all->target = codec->target;
    for (size_t i = 0; i <= q->count; i++)
        q->parameters[i].bits = bits_of(&q->parameters[i], &all->sums, value_bytes);
    for (size_t i = 0; i < q->count; i++) {
        watch_residual(codec, &q->parameters[i]);
        watch_cosine(codec, &q->parameters[i]);
    }
}

static struct look look_of(const spr_codec *codec, const float *gradient)
{
    return (struct look){
        .codec = codec,
        .gradient = gradient,
        .feedback = spr_codec_feedback(codec)->rule != SPR_FEEDBACK_OFF,
    };
}

void spr_quality_begun(spr_codec *codec, const float *gradient, const struct spr_codec_step *step,
                       uint64_t ns)
{
    struct spr_quality *q = &codec->quality;
    struct look look = look_of(codec, gradient);
    size_t bytes;

    q->encode_ns += ns;
    q->due = q->every > 0 && q->steps % q->every == 0;
    q->steps++;
    if (!q->due || (step->sum && !step->index)) /* factors: in the second round */
        return;
    q->due = false;
    clear(q);
    bytes = step->index ? look_at_list(&look, step) : look_at_vector(&look, step);
    conclude(codec, (double)bytes);
}

void spr_quality_factors(spr_codec *codec, const float *gradient)
{
    struct spr_quality *q = &codec->quality;
    struct look look = look_of(codec, gradient);

    if (!q->due)
        return;
    q->due = false;
    clear(q);
    look_at_factors(&look);
    size_t floats = spr_lowrank_p_floats(&codec->lowrank) + spr_lowrank_q_floats(&codec->lowrank);
    conclude(codec, (double)(floats * sizeof(float)));
}

/* ---- Begin and end ---- */

/* The largest group of rows of a matrix that is sent as factors; at least 1. */
static size_t row_group_floats(const struct spr_lowrank *l)
{
    size_t floats = 1;

    for (size_t t = 0; t < l->count; t++)
        if (!spr_lowrank_is_dense(&l->tensors[t], l->rank))
            floats = spr_max_size(floats, spr_min_size(SPR_LOWRANK_LANES, l->tensors[t].rows) *
                                              l->tensors[t].columns);
    return floats;
}

spr_status spr_quality_open(spr_codec *codec, const spr_layout *layout, size_t parameters)
{
    struct spr_quality *q = &codec->quality;

    *q = (struct spr_quality){.every = 100, .residual_limit = 1e4, .cosine_floor = -0.05};
    q->parameters = spr_calloc(parameters + 1, sizeof(*q->parameters));
    if (!q->parameters)
        return SPR_ERR_NOMEM;
    q->count = parameters;
    for (size_t i = 0; i < parameters; i++) {
        q->parameters[i] = (struct spr_quality_parameter){
            .id = layout[i].id,
            .offset = layout[i].offset,
            .elements = layout[i].rows * layout[i].columns,
            .rows = layout[i].rows,
            .columns = layout[i].columns,
        };
        if (layout[i].name && !(q->parameters[i].name = spr_strdup(layout[i].name)))
            return SPR_ERR_NOMEM;
    }
    q->parameters[parameters] = (struct spr_quality_parameter){
        .elements = codec->elements,
        .rows = codec->elements,
        .columns = 1,
    };
    if (codec->selection->steps != &spr_codec_low_rank)
        return SPR_OK;
    q->rows = spr_malloc(row_group_floats(&codec->lowrank) * sizeof(float));
    return q->rows ? SPR_OK : SPR_ERR_NOMEM;
}

void spr_quality_close(spr_codec *codec)
{
    struct spr_quality *q = &codec->quality;

    for (size_t i = 0; i < q->count; i++)
        spr_free(q->parameters[i].name);
    spr_free(q->parameters);
    spr_free(q->rows);
}

spr_status spr_codec_watch(spr_codec *codec, unsigned every, double residual_limit,
                           double cosine_floor)
{
    if (!codec || !(residual_limit >= 0) || !(fabs(cosine_floor) <= 1))
        return spr_error_set(
            spr_thread_error(), SPR_ERR_INVALID, -1,
            "spr_codec_watch: a codec, a residual limit of at least 0 (got %g) and "
            "a floor of the cosine in [-1, 1] (got %g) must be given",
            residual_limit, cosine_floor);
    codec->quality.every = every;
    codec->quality.residual_limit = residual_limit;
    codec->quality.cosine_floor = cosine_floor;
    return SPR_OK;
}

spr_status spr_codec_measured(const spr_codec *codec, size_t parameter, spr_codec_quality *quality)
{
    bool all = parameter == SPR_ALL_PARAMETERS;

    if (!codec || !quality || quality->struct_size != sizeof(*quality) ||
        (!all && parameter >= codec->quality.count))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "spr_codec_measured: a codec, a parameter of its layout and a struct "
                             "of %zu bytes must be given",
                             sizeof(*quality));
    const struct spr_quality *q = &codec->quality;
    const struct spr_quality_parameter *p = &q->parameters[all ? q->count : parameter];
    const struct spr_quality_sums *s = &p->sums;
    *quality = (spr_codec_quality){
        .struct_size = sizeof(*quality),
        .name = all ? codec->spec : p->name,
        .id = p->id,
        .rows = p->rows,
        .columns = p->columns,
        .steps = q->steps,
        .encode_ns = q->encode_ns,
        .samples = q->samples,
        .step = q->last_step,
        .time_ns = q->last_ns,
        .not_finite = s->not_finite,
        .density = ratio((double)s->sent, (double)p->elements),
        .target_density = p->target,
        .bits = p->bits,
        .ratio = p->bits / 32,
        .bytes_in = q->samples > 0 ? p->elements * sizeof(float) : 0,
        .bytes_out = (uint64_t)(p->bits * (double)p->elements / 8 + 0.5),
        .relative_error = root(ratio(s->ee, s->aa)),
        .cosine = ratio(s->gs, root(s->gg) * root(s->ss)),
        .gradient_norm = root(s->gg),
        .residual_norm = root(s->ee),
        .variance_inflation = ratio(s->ss, s->aa),
        .alerts = p->alerts,
    };
    for (size_t i = 0; all && i < q->count; i++)
        quality->alerts |= q->parameters[i].alerts;
    return SPR_OK;
}
