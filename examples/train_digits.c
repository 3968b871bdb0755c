/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Data-parallel training with Sparring, dense and compressed, side by side.
 *
 * Every rank computes the gradient of its own images; the ranks average it, either exactly
 * (spr_allreduce) or compressed with error feedback (spr_compressed_allreduce); then every rank
 * makes the same step of momentum SGD; of plain SGD where the codec has the momentum (dgc, onebit).
 * Weights start equal and stay equal to the bit, which is checked.
 */
#include "digits.h"
#include "digits_method.h"
#include "digits_net.h"
#include "digits_options.h"
#include "digits_report.h"
#include "digits_trace.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sparring/sparring.h>

enum { DRAWN_TRAIN = 60000, DRAWN_TEST = 2000, ERROR_BYTES = 8192 };

/* Drawn test images are numbered from here on, far behind those for training. */
static const uint64_t first_drawn_test = UINT64_C(1) << 32;

typedef struct trainer {
    const digits_options *options;
    spr_comm *comm;
    int rank, size;
    digits_net net;
    digits_set train, test;      /* this rank's part */
    int64_t all_train, all_test; /* images on all ranks */
    uint32_t *order;             /* the training images, shuffled */
    size_t next;                 /* place in `order` of the next image */
    digits_random shuffler;
    float *parameters, *velocity; /* velocity: running sum of gradients, the momentum */
    float *gradient;
} trainer;

static _Noreturn void die(int rank, const char *what, const char *why)
{
    fprintf(stderr, "train_digits: rank %d: %s%s%s\n", rank, what, *why ? ": " : "", why);
    exit(1);
}

static void require(const trainer *t, spr_status status, const char *what)
{
    if (status != SPR_OK)
        die(t->rank, what, spr_last_error(t->comm));
}

/* Ends the job when any rank has an error to tell; the lowest of those tells it. */
static void require_all(const trainer *t, const char *error)
{
    int64_t mine = *error ? t->rank : t->size, lowest;

    require(t, spr_allreduce(t->comm, &mine, &lowest, 1, SPR_INT64, SPR_MIN, NULL), "allreduce");
    if (lowest == t->rank)
        die(t->rank, error, "");
    if (lowest < t->size)
        exit(1);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- Preparation ----------------------------------------------------------------------------- */

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

/* Image i of a set belongs to rank i % size. */
static void load_images(trainer *t)
{
    const digits_options *o = t->options;
    size_t size = (size_t)t->size, rank = (size_t)t->rank;
    size_t wanted = o->epochs * o->steps_per_epoch * o->batch; /* if none is repeated */
    digits_shard train = {rank, size, SIZE_MAX}, test = {rank, size, SIZE_MAX};
    char error[ERROR_BYTES] = "";

    if (o->mnist) {
        if (!digits_set_read(&t->train, o->mnist, "train", &train, error, sizeof(error)))
            digits_set_read(&t->test, o->mnist, "t10k", &test, error, sizeof(error));
    } else {
        train.count = min_size(wanted, DRAWN_TRAIN / size + 1);
        test.first += first_drawn_test;
        test.count = (DRAWN_TEST + size - 1 - rank) / size;
        if (!digits_set_draw(&t->train, o->seed, &train, error, sizeof(error)))
            digits_set_draw(&t->test, o->seed, &test, error, sizeof(error));
    }
    if (!*error && t->train.count < o->batch)
        snprintf(error, sizeof(error), "%zu images for a batch of %llu", t->train.count,
                 (unsigned long long)o->batch);
    require_all(t, error);

    int64_t count[2] = {(int64_t)t->train.count, (int64_t)t->test.count};
    require(t, spr_allreduce(t->comm, count, count, 2, SPR_INT64, SPR_SUM, NULL), "allreduce");
    t->all_train = count[0];
    t->all_test = count[1];
    require_all(t, t->all_test == 0 ? "no image for the test" : "");
}

static void prepare(trainer *t)
{
    openblas_set_num_threads(1); /* one core per rank */
    load_images(t);
    t->order = malloc(t->train.count * sizeof(uint32_t));
    t->parameters = malloc(t->net.elements * sizeof(float));
    t->velocity = malloc(t->net.elements * sizeof(float));
    bool failed = !t->order || !t->parameters || !t->velocity;
    require_all(t, failed ? "no memory for the weights" : "");

    void *gradient;
    require(t, spr_mem_alloc(t->comm, t->net.elements * sizeof(float), &gradient), "gradient");
    t->gradient = gradient;
}

/* A wrong codec string is wrong usage: it ends the job now, not after the first training. */
static void check_methods(const trainer *t)
{
    for (size_t i = 0; i < t->options->methods; i++) {
        digits_method method;
        spr_status status = digits_method_open(&method, t->options->method[i], t->net.layout,
                                               NET_PARAMETERS, false);
        if (status != SPR_OK) {
            fprintf(stderr, "train_digits: method '%s': %s\n", t->options->method[i],
                    status == SPR_ERR_TOO_SMALL ? "more than 16 codecs" : spr_last_error(NULL));
            exit(2);
        }
        digits_method_close(&method);
    }
}

/* ---- Training -------------------------------------------------------------------------------- */

static void shuffle(trainer *t)
{
    for (size_t i = t->train.count; i > 1; i--) {
        size_t j = digits_random_bits(&t->shuffler) % i;
        uint32_t swap = t->order[i - 1];
        t->order[i - 1] = t->order[j];
        t->order[j] = swap;
    }
    t->next = 0;
}

/* Every method starts from the same weights and sees the same images in the same order. */
static void reset(trainer *t)
{
    digits_net_init(&t->net, t->parameters, t->options->seed);
    memset(t->velocity, 0, t->net.elements * sizeof(float));
    for (size_t i = 0; i < t->train.count; i++)
        t->order[i] = (uint32_t)i;
    t->shuffler = digits_random_seed(t->options->seed, UINT64_MAX - (uint64_t)t->rank);
    shuffle(t);
}

static const uint32_t *next_batch(trainer *t)
{
    if (t->next + t->options->batch > t->train.count)
        shuffle(t);
    const uint32_t *batch = t->order + t->next;
    t->next += t->options->batch;
    return batch;
}

/* Linear warm-up over the first eighteenth of the steps, then linear decay to zero. */
static double learning_rate(const digits_options *o, uint64_t step)
{
    double steps = (double)(o->epochs * o->steps_per_epoch);
    double warm_up = floor(steps / 18) + 1;
    double up = ((double)step + 1) / warm_up;
    double down = (steps - (double)step) / (steps - warm_up + 1);
    return o->rate * fmin(up, down);
}

static void update(trainer *t, const digits_method *method, uint64_t step)
{
    float momentum = (float)digits_method_momentum(method, t->options->momentum);
    float rate = (float)learning_rate(t->options, step);

    for (size_t i = 0; i < t->net.elements; i++) {
        t->velocity[i] = momentum * t->velocity[i] + t->gradient[i];
        t->parameters[i] -= rate * t->velocity[i];
    }
}

static void average_gradient(trainer *t, spr_codec *codec)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    call.name = "gradient";

    if (codec)
        require(t, spr_compressed_allreduce(t->comm, codec, t->gradient, SPR_AVG, &call),
                "compressed allreduce");
    else
        require(t,
                spr_allreduce(t->comm, t->gradient, t->gradient, t->net.elements, SPR_FP32, SPR_AVG,
                              &call),
                "allreduce");
}

static spr_stats statistics(const trainer *t)
{
    spr_stats stats = {.struct_size = sizeof(stats)};
    require(t, spr_comm_stats(t->comm, &stats), "statistics");
    return stats;
}

/* Nanoseconds of work for the codec on this rank: not sending, not waiting. */
static uint64_t compress_ns(const spr_stats *stats)
{
    return stats->select_ns + stats->encode_ns + stats->merge_ns + stats->decode_ns;
}

static void dump_gradient(const trainer *t, uint64_t step)
{
    digits_trace trace = {(uint32_t)t->rank, (uint32_t)step, (uint32_t)t->size, t->net.elements};
    char error[ERROR_BYTES] = "";

    digits_trace_write(t->options->dump, &trace, t->gradient, error, sizeof(error));
    require_all(t, error);
}

/* One step; adds its loss, times and bytes to *sum. The first one of an epoch chooses a codec,
 * where there are several. */
static void train_step(trainer *t, digits_method *method, uint64_t step, bool dump,
                       digits_result *sum)
{
    const uint32_t *batch = next_batch(t);

    double start = now_ms();
    double loss = digits_net_gradient(&t->net, t->parameters, &t->train, batch, t->options->batch,
                                      t->gradient);
    double computed = now_ms();
    if (dump)
        dump_gradient(t, step);

    spr_stats before = statistics(t);
    double call = now_ms();
    if (step % t->options->steps_per_epoch == 0)
        require(t, digits_method_choose(method, t->comm, t->gradient), "choose a codec");
    double chosen = now_ms();
    average_gradient(t, method->codec);
    double averaged = now_ms();
    spr_stats after = statistics(t);

    double update_start = now_ms();
    update(t, method, step);
    double end = now_ms();

    double compress = (double)(compress_ns(&after) - compress_ns(&before)) * 1e-6;
    compress = fmin(compress, averaged - call); /* several threads can work at the same time */
    sum->loss += loss;
    sum->compute_ms += computed - start + end - update_start;
    sum->compress_ms += compress;
    sum->communicate_ms += averaged - call - compress;
    sum->choose_ms += chosen - call;
    sum->sent_bytes += (double)(after.sent_bytes - before.sent_bytes);
}

/* Turn sums over `steps` steps on this rank into means over steps and ranks; test the weights. */
static digits_result finish_epoch(trainer *t, digits_result sum, uint64_t steps)
{
    double scale = 1.0 / (double)steps;
    digits_result mean = {
        .loss = sum.loss * scale,
        .accuracy = (double)digits_net_correct(&t->net, t->parameters, &t->test) * t->size /
                    (double)t->all_test,
        .compute_ms = sum.compute_ms * scale,
        .compress_ms = sum.compress_ms * scale,
        .communicate_ms = sum.communicate_ms * scale,
        .choose_ms = sum.choose_ms * scale,
        .sent_bytes = sum.sent_bytes * scale,
    };
    size_t numbers = sizeof(mean) / sizeof(double);

    require(t, spr_allreduce(t->comm, &mean, &mean, numbers, SPR_FP64, SPR_AVG, NULL), "allreduce");
    return mean;
}

/* Ranks that drift apart train different networks: end the job when one bit differs. */
static void check_identical(const trainer *t)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a over words */
    for (size_t i = 0; i < t->net.elements; i++) {
        uint32_t word;
        memcpy(&word, &t->parameters[i], sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x100000001B3);
    }
    int64_t mine = (int64_t)hash, least, most;
    require(t, spr_allreduce(t->comm, &mine, &least, 1, SPR_INT64, SPR_MIN, NULL), "allreduce");
    require(t, spr_allreduce(t->comm, &mine, &most, 1, SPR_INT64, SPR_MAX, NULL), "allreduce");
    if (least != most)
        die(t->rank, "the weights differ between ranks", "");
}

/* Train once by one method. Loss and accuracy are those of the last epoch, the rest are means over
 * all steps. */
static digits_result train_by(trainer *t, const char *text, bool dump)
{
    const digits_options *o = t->options;
    digits_result whole = {0};
    digits_method method;
    uint64_t step = 0;

    if (digits_method_open(&method, text, t->net.layout, NET_PARAMETERS, o->quality) != SPR_OK)
        die(t->rank, text, spr_last_error(NULL));
    reset(t);
    for (uint64_t epoch = 1; epoch <= o->epochs; epoch++) {
        digits_result sum = {0};
        for (uint64_t i = 0; i < o->steps_per_epoch; i++, step++)
            train_step(t, &method, step, dump && digits_options_dumps(o, step), &sum);
        digits_result mean = finish_epoch(t, sum, o->steps_per_epoch);
        if (t->rank == 0)
            digits_report_epoch(digits_method_name(&method), epoch, &mean);
        whole.loss = mean.loss;
        whole.accuracy = mean.accuracy;
        whole.compute_ms += mean.compute_ms / (double)o->epochs;
        whole.compress_ms += mean.compress_ms / (double)o->epochs;
        whole.communicate_ms += mean.communicate_ms / (double)o->epochs;
        whole.choose_ms += mean.choose_ms / (double)o->epochs;
        whole.sent_bytes += mean.sent_bytes / (double)o->epochs;
    }
    check_identical(t);
    if (o->quality && method.codec && t->rank == 0)
        digits_report_quality(method.codec, NET_PARAMETERS);
    digits_method_close(&method);
    return whole;
}

/* ---- The program ----------------------------------------------------------------------------- */

/* True when every other method is at most one point less accurate than dense. */
static bool check_accuracy(const trainer *t, const digits_result *result)
{
    size_t at = digits_options_find(t->options, METHOD_DENSE);
    double dense = result[at].accuracy;
    bool all = true;

    for (size_t i = 0; i < t->options->methods; i++) {
        bool passed = result[i].accuracy >= dense - 0.01 - 1e-9; /* one point exactly passes */
        if (t->rank == 0 && i != at)
            printf("# check: %s %.2f%%, %s %.2f%%: %s\n", t->options->method[i],
                   100 * result[i].accuracy, METHOD_DENSE, 100 * dense,
                   passed ? "passed" : "FAILED, more than 1 point below");
        all = all && passed;
    }
    return all;
}

static void write_json(const trainer *t, const digits_run *run, const digits_result *result)
{
    char error[ERROR_BYTES];

    if (t->options->json && t->rank == 0 &&
        digits_report_json(t->options->json, run, t->options->method, result, t->options->methods,
                           error, sizeof(error)))
        die(t->rank, error, "");
}

static bool train_all(trainer *t, int argc, char **argv)
{
    const digits_options *o = t->options;
    digits_result result[METHODS_MAX];
    digits_run run = {
        .argc = argc,
        .argv = argv,
        .ranks = t->size,
        .elements = t->net.elements,
        .batch = o->batch,
        .steps = o->epochs * o->steps_per_epoch,
        .train_images = (size_t)t->all_train,
        .test_images = (size_t)t->all_test,
        .images = o->mnist ? "of MNIST" : "drawn",
        .quick = o->quick,
    };

    if (t->rank == 0)
        digits_report_start(&run);
    for (size_t i = 0; i < o->methods; i++)
        result[i] = train_by(t, o->method[i], i == 0);
    if (t->rank == 0)
        digits_report_table(&run, o->method, result, o->methods,
                            digits_options_find(o, METHOD_DENSE));
    write_json(t, &run, result);
    return !o->check || check_accuracy(t, result);
}

int main(int argc, char **argv)
{
    digits_options options;
    trainer t = {.options = &options};

    digits_options_parse(&options, argc, argv);
    if (digits_net_create(&t.net, options.batch)) {
        fputs("train_digits: no memory for the network\n", stderr);
        return 1;
    }
    check_methods(&t);
    if (spr_comm_create(NULL, &t.comm) != SPR_OK) {
        fprintf(stderr, "train_digits: %s\n", spr_last_error(NULL));
        return 1;
    }
    t.rank = spr_comm_rank(t.comm);
    t.size = spr_comm_size(t.comm);
    prepare(&t);
    bool passed = train_all(&t, argc, argv);

    spr_mem_free(t.comm, t.gradient);
    spr_comm_destroy(t.comm);
    free(t.velocity);
    free(t.parameters);
    free(t.order);
    digits_net_destroy(&t.net);
    digits_set_free(&t.test);
    digits_set_free(&t.train);
    digits_options_free(&options);
    return passed ? 0 : 1;
}
