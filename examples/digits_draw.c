/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Draws digits: strokes made of lines and arcs, bent, jittered, turned, sheared, scaled, shifted,
 * then rendered with a round pen, anti-aliased, over stray marks and noise.
 */
#include "digits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265f
#define RADIANS (PI / 180.0f)

enum { STYLES_MAX = 3, ARC_POINTS = 14, LINE_POINTS = 5, STRAY_MARKS = 3 };

/*
 * A stroke in a unit box, x to the right, y down. A line runs from (a, b) to (c, d). An arc has the
 * centre (a, b), the radii c, d and runs from `from` to `to` degrees: 0 right, 90 down.
 */
typedef struct stroke {
    uint8_t digit, style;
    uint8_t arc;
    float a, b, c, d, from, to;
} stroke;

#define LINE(digit, style, x0, y0, x1, y1)                                                         \
    {                                                                                              \
        digit, style, 0, x0, y0, x1, y1, 0, 0                                                      \
    }
#define ARC(digit, style, x, y, rx, ry, from, to)                                                  \
    {                                                                                              \
        digit, style, 1, x, y, rx, ry, from, to                                                    \
    }

static const uint8_t style_count[DIGITS_CLASSES] = {2, 3, 2, 2, 2, 2, 2, 2, 1, 2};

static const stroke strokes[] = {
    ARC(0, 0, .50f, .50f, .27f, .40f, -100, 260), ARC(0, 1, .50f, .50f, .19f, .40f, -80, 290),

    LINE(1, 0, .50f, .10f, .50f, .90f),           LINE(1, 1, .34f, .30f, .53f, .10f),
    LINE(1, 1, .53f, .10f, .53f, .90f),           LINE(1, 2, .36f, .28f, .52f, .10f),
    LINE(1, 2, .52f, .10f, .52f, .88f),           LINE(1, 2, .32f, .88f, .72f, .88f),

    ARC(2, 0, .50f, .32f, .24f, .22f, 180, 400),  LINE(2, 0, .68f, .46f, .26f, .90f),
    LINE(2, 0, .26f, .90f, .76f, .90f),           ARC(2, 1, .48f, .31f, .24f, .21f, 190, 405),
    LINE(2, 1, .65f, .46f, .36f, .78f),           ARC(2, 1, .34f, .82f, .09f, .07f, 300, 30),
    LINE(2, 1, .42f, .85f, .80f, .88f),

    ARC(3, 0, .47f, .30f, .23f, .20f, 190, 450),  ARC(3, 0, .47f, .70f, .26f, .20f, 270, 530),
    LINE(3, 1, .28f, .12f, .72f, .12f),           LINE(3, 1, .72f, .12f, .48f, .42f),
    ARC(3, 1, .47f, .66f, .25f, .24f, 270, 520),

    LINE(4, 0, .60f, .10f, .22f, .62f),           LINE(4, 0, .22f, .62f, .80f, .62f),
    LINE(4, 0, .60f, .10f, .60f, .90f),           LINE(4, 1, .30f, .12f, .27f, .53f),
    LINE(4, 1, .27f, .53f, .74f, .51f),           LINE(4, 1, .70f, .12f, .66f, .90f),

    LINE(5, 0, .72f, .12f, .34f, .12f),           LINE(5, 0, .34f, .12f, .30f, .46f),
    ARC(5, 0, .46f, .65f, .26f, .24f, 230, 500),  LINE(5, 1, .74f, .14f, .40f, .12f),
    ARC(5, 1, .42f, .29f, .12f, .17f, 270, 100),  ARC(5, 1, .40f, .68f, .26f, .22f, 270, 510),

    ARC(6, 0, .62f, .50f, .36f, .42f, 270, 170),  ARC(6, 0, .50f, .68f, .24f, .22f, 190, 550),
    LINE(6, 1, .62f, .10f, .30f, .58f),           ARC(6, 1, .50f, .68f, .23f, .21f, 200, 560),

    LINE(7, 0, .24f, .12f, .76f, .12f),           LINE(7, 0, .76f, .12f, .42f, .90f),
    LINE(7, 1, .24f, .14f, .74f, .12f),           LINE(7, 1, .74f, .12f, .44f, .90f),
    LINE(7, 1, .36f, .50f, .72f, .50f),

    ARC(8, 0, .50f, .30f, .20f, .19f, 90, 450),   ARC(8, 0, .50f, .70f, .25f, .21f, 270, 630),

    ARC(9, 0, .48f, .33f, .23f, .22f, 0, 360),    LINE(9, 0, .71f, .33f, .64f, .90f),
    ARC(9, 1, .48f, .32f, .23f, .21f, 0, 360),    ARC(9, 1, .34f, .44f, .37f, .44f, -20, 90),
};

typedef struct point {
    float x, y;
} point;

/* How one image differs from the plain figure; lengths in units of the box unless it says pixels.
 */
typedef struct variation {
    float xx, xy, yx, yy;             /* turn, scale and shear, box to pixels */
    float dx, dy;                     /* where the centre of the box goes, pixels */
    float bend[2], wave[2], phase[2]; /* sideways displacement bend * sin(wave * t + phase) */
    float pen;                        /* radius, pixels */
    float ink, paper, grain;          /* intensities 0..1: stroke, background, noise */
} variation;

digits_random digits_random_seed(uint64_t seed, uint64_t stream)
{
    digits_random random = {seed};
    random.state = digits_random_bits(&random) ^ stream * 0x9E3779B97F4A7C15u;
    random.state = digits_random_bits(&random);
    return random;
}

uint64_t digits_random_bits(digits_random *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

float digits_random_uniform(digits_random *random, float low, float high)
{
    float unit = (float)(digits_random_bits(random) >> 40) * 0x1p-24f;
    return low + unit * (high - low);
}

/* The sum of four 16-bit uniforms, scaled: near enough to a normal for weights and noise. */
float digits_random_normal(digits_random *random)
{
    uint64_t z = digits_random_bits(random);
    int32_t sum = (int32_t)(z & 0xFFFF) + (int32_t)(z >> 16 & 0xFFFF) +
                  (int32_t)(z >> 32 & 0xFFFF) + (int32_t)(z >> 48);
    return (float)(sum - 2 * 0xFFFF) * (1.7320508f / 65536.0f);
}

static variation variation_draw(digits_random *random)
{
    float angle = digits_random_uniform(random, -22, 22) * RADIANS;
    float shear = digits_random_uniform(random, -0.25f, 0.25f);
    float size = digits_random_uniform(random, 18, 24);
    float squeeze = digits_random_uniform(random, 0.75f, 1.10f);
    float cosine = size * cosf(angle), sine = size * sinf(angle);
    variation v = {
        .xx = cosine * squeeze,
        .xy = cosine * shear - sine,
        .yx = sine * squeeze,
        .yy = sine * shear + cosine,
        .dx = DIGITS_SIDE / 2.0f + digits_random_uniform(random, -2.2f, 2.2f),
        .dy = DIGITS_SIDE / 2.0f + digits_random_uniform(random, -2.2f, 2.2f),
        .pen = digits_random_uniform(random, 0.7f, 1.7f),
        .ink = digits_random_uniform(random, 0.65f, 1.0f),
        .paper = digits_random_uniform(random, 0.0f, 0.08f),
        .grain = digits_random_uniform(random, 0.02f, 0.12f),
    };
    for (int i = 0; i < 2; i++) {
        v.bend[i] = digits_random_uniform(random, 0, 0.05f);
        v.wave[i] = digits_random_uniform(random, 2, 8);
        v.phase[i] = digits_random_uniform(random, 0, 2 * PI);
    }
    return v;
}

/* Bend a point of the box, then map it to pixels. */
static point variation_map(const variation *v, point p)
{
    float x = p.x - 0.5f + v->bend[0] * sinf(v->wave[0] * p.y + v->phase[0]);
    float y = p.y - 0.5f + v->bend[1] * sinf(v->wave[1] * p.x + v->phase[1]);
    return (point){v->dx + v->xx * x + v->xy * y, v->dy + v->yx * x + v->yy * y};
}

/* Point t in 0..1 of a stroke. */
static point stroke_at(const stroke *s, float t)
{
    if (!s->arc)
        return (point){s->a + t * (s->c - s->a), s->b + t * (s->d - s->b)};
    float angle = (s->from + t * (s->to - s->from)) * RADIANS;
    return (point){s->a + s->c * cosf(angle), s->b + s->d * sinf(angle)};
}

/* Distance of p to the segment from a to b. */
static float segment_distance(point a, point b, point p)
{
    float ux = b.x - a.x, uy = b.y - a.y;
    float px = p.x - a.x, py = p.y - a.y;
    float length2 = ux * ux + uy * uy;
    float t = length2 > 0 ? (px * ux + py * uy) / length2 : 0;
    t = fminf(fmaxf(t, 0), 1);
    px -= t * ux;
    py -= t * uy;
    return sqrtf(px * px + py * py);
}

static int clamp_pixel(float x)
{
    return x < 0 ? 0 : x > DIGITS_SIDE - 1 ? DIGITS_SIDE - 1 : (int)x;
}

/* Draw a segment with a round pen; the coverage of a pixel falls over one pixel at the rim. */
static void segment_render(float *image, point a, point b, float pen, float ink)
{
    float reach = pen + 1;
    int left = clamp_pixel(fminf(a.x, b.x) - reach), right = clamp_pixel(fmaxf(a.x, b.x) + reach);
    int top = clamp_pixel(fminf(a.y, b.y) - reach), bottom = clamp_pixel(fmaxf(a.y, b.y) + reach);

    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            point centre = {(float)x + 0.5f, (float)y + 0.5f};
            float cover = pen + 0.5f - segment_distance(a, b, centre);
            cover = ink * fminf(fmaxf(cover, 0), 1);
            float *pixel = &image[y * DIGITS_SIDE + x];
            *pixel = fmaxf(*pixel, cover);
        }
    }
}

/* Each stroke is moved a little by itself before the whole figure is bent and mapped. */
static void stroke_render(float *image, stroke s, const variation *v, digits_random *random)
{
    int points = s.arc ? ARC_POINTS : LINE_POINTS;
    float slack = 0.03f;

    s.a += digits_random_uniform(random, -slack, slack);
    s.b += digits_random_uniform(random, -slack, slack);
    s.c += digits_random_uniform(random, -slack, slack);
    s.d += digits_random_uniform(random, -slack, slack);
    point last = variation_map(v, stroke_at(&s, 0));
    for (int i = 1; i < points; i++) {
        point next = variation_map(v, stroke_at(&s, (float)i / (float)(points - 1)));
        segment_render(image, last, next, v->pen, v->ink);
        last = next;
    }
}

/* Short faint lines anywhere: they say nothing about the digit. */
static void stray_render(float *image, digits_random *random)
{
    uint64_t marks = digits_random_bits(random) % (STRAY_MARKS + 1);
    for (uint64_t i = 0; i < marks; i++) {
        point a = {digits_random_uniform(random, 0, DIGITS_SIDE),
                   digits_random_uniform(random, 0, DIGITS_SIDE)};
        point b = {a.x + digits_random_uniform(random, -6, 6),
                   a.y + digits_random_uniform(random, -6, 6)};
        float ink = digits_random_uniform(random, 0.2f, 0.7f);
        segment_render(image, a, b, digits_random_uniform(random, 0.4f, 1.0f), ink);
    }
}

static uint8_t digit_render(uint8_t *pixels, uint64_t seed, uint64_t number)
{
    digits_random random = digits_random_seed(seed, number);
    uint64_t digit = digits_random_bits(&random) % DIGITS_CLASSES;
    uint64_t style = digits_random_bits(&random) % style_count[digit];
    variation v = variation_draw(&random);
    float image[DIGITS_PIXELS] = {0};

    stray_render(image, &random);
    for (size_t i = 0; i < sizeof(strokes) / sizeof(strokes[0]); i++)
        if (strokes[i].digit == digit && strokes[i].style == style)
            stroke_render(image, strokes[i], &v, &random);
    for (size_t i = 0; i < DIGITS_PIXELS; i++) {
        float grey = v.paper + (1 - v.paper) * image[i] + v.grain * digits_random_normal(&random);
        pixels[i] = (uint8_t)(255.0f * fminf(fmaxf(grey, 0), 1) + 0.5f);
    }
    return (uint8_t)digit;
}

int digits_set_alloc(digits_set *set, size_t count, char *error, size_t capacity)
{
    *set = (digits_set){count, malloc(count * DIGITS_PIXELS + 1), malloc(count + 1)};
    if (set->pixels && set->labels)
        return 0;
    snprintf(error, capacity, "no memory for %zu images", count);
    digits_set_free(set);
    return -1;
}

void digits_set_free(digits_set *set)
{
    free(set->pixels);
    free(set->labels);
    *set = (digits_set){0};
}

int digits_set_draw(digits_set *set, uint64_t seed, const digits_shard *shard, char *error,
                    size_t capacity)
{
    if (digits_set_alloc(set, shard->count, error, capacity))
        return -1;
    for (size_t i = 0; i < shard->count; i++) {
        uint64_t number = shard->first + i * shard->stride;
        set->labels[i] = digit_render(set->pixels + i * DIGITS_PIXELS, seed, number);
    }
    return 0;
}
