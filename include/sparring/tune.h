/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: which algorithm a collective will take, and why; and which codec is the fastest.
 *
 * Without a model, or where there are racks (SPARRING_TOPOLOGY), of whose uplinks it knows nothing,
 * "auto" goes by rules: by size, by who shares a host or a rack, by the links. With one it
 * takes the algorithm that the model says is the fastest for this size, density and growth of the
 * union; a compressed allreduce then also becomes a dense one where that is faster. A model is a
 * few constants, seconds per byte, per entry and so on, equal on all ranks: measured by
 * spr_comm_tune(), or given by SPARRING_MODEL, which sparring-tune writes. And of calls of one kind
 * that a job makes again and again, spr_comm_tune_for() and spr_codec_tune() measure all that can
 * do them. What is measured differs from run to run, and so may the algorithms and, unless
 * SPARRING_DETERMINISM is canonical, the last bits of sums; a model and trials that are given
 * (SPARRING_TRIALS) make the same choices again.
 *
 * What a codec's last step has brought counts as well. So all ranks create, load, clear and use a
 * codec at the same steps, and with the same communicators; where one did not, a step may fail with
 * MISMATCH, on all of them, after which they choose without a history.
 */
#ifndef SPARRING_TUNE_H
#define SPARRING_TUNE_H

#include <sparring/codec.h>
#include <sparring/comm.h>
#include <sparring/sparse.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Measure this communicator's links and CPUs with a few collectives of its own, and choose
 * algorithms by that from now on, until the ranks are others (spr_comm_shrink(), spr_comm_grow()).
 * Collective; blocks, for some tenths of a second, or seconds where many ranks share few CPUs or
 * links are slow. Nothing else may be posted meanwhile. Measures while nothing else runs, or what
 * else runs is measured, too. It counts as collectives of the communicator. May be called again. A
 * rank alone: OK, nothing is measured. With SPARRING_MODEL=measure spr_comm_create() does it.
 * Errors: as in dense.h.
 */
spr_status spr_comm_tune(spr_comm *comm);

/* The model as a value of SPARRING_MODEL, the same text on all ranks; "" when there is none. `text`
 * has room for `bytes`, of which SPR_MODEL_BYTES suffice, and is returned. Any thread. */
#define SPR_MODEL_BYTES 1280
const char *spr_comm_model(spr_comm *comm, char *text, size_t bytes);

/*
 * Call every algorithm that can do an "allreduce" or a "sparse_allreduce" of `count` elements, the
 * latter with lists of at most `most_entries` (0 for a dense one) at positions that each rank draws
 * for itself and a dense result, and have "auto" take the fastest of them for such calls from now
 * on, until the ranks are others (spr_comm_shrink(), spr_comm_grow()): for calls of that collective
 * and size of elements with these count and most_entries, or some that differ by a tenth at most.
 * The last 32 kinds are remembered. Racks make no difference to it. Takes as long as one call of
 * each, and then 3 rounds of those that are not far behind the fastest, or, within a second, up to
 * 31; with a model, those predicted to take 5 times as long as the fastest are left out. Needs
 * memory for two such vectors meanwhile, or one and a list, of 1 MiB at least, which it writes
 * between calls, as a job computes between its own, besides what the calls need. Lists that are
 * alike, clusters, and those that are mostly much shorter than `most_entries` are better tried by
 * spr_comm_tune_list(). Collective, with the same arguments on all ranks; blocks. Nothing else may
 * be under way, or be posted meanwhile. It counts as collectives of the communicator. A rank alone:
 * OK, nothing is measured. Errors: INVALID, NOMEM (on all ranks), and as in dense.h.
 */
spr_status spr_comm_tune_for(spr_comm *comm, const char *collective, size_t count, spr_dtype dtype,
                             size_t most_entries);
/* Likewise for a "sparse_allreduce" of `count` fp32 elements, each rank with its own list instead
 * of one that is drawn: one of the job's, so that what is clustered, alike or short in it counts.
 * The list is read only, and has at most `most_entries`, which is the same on all ranks, and what
 * later calls say. Needs memory for the result. INVALID on all ranks, if the list of one is no
 * list. */
spr_status spr_comm_tune_list(spr_comm *comm, const spr_sparse *list, size_t count,
                              size_t most_entries);
/* Likewise for the steps of a codec, as sums of such vectors or lists of fp32 values; its state
 * stays as it is. A rank whose codec has made a step, and sends lists, takes the last one. Where
 * steps are neither, but vectors of coded values, nothing is measured, nor with union=hosts, for
 * which there is one algorithm. Of a codec with two rounds (powersgd) the first one is. */
spr_status spr_codec_tune(spr_comm *comm, spr_codec *codec);

/* What these have found, and what SPARRING_TRIALS gave, as a value of SPARRING_TRIALS, the same
 * text on all ranks; "" when there is nothing. Of each kind of call the fastest algorithm and its
 * time; it holds for as many ranks on as many hosts. `text` has room for `bytes`, of which
 * SPR_TRIALS_BYTES suffice, and is returned. Any thread. */
#define SPR_TRIALS_BYTES 4096
const char *spr_comm_trials(spr_comm *comm, char *text, size_t bytes);

/* What the model says of an algorithm, and what it took. */
typedef struct spr_prediction {
    const char *algorithm; /* a name of spr_algorithm_name() */
    /* NaN: there is no model, or it has no formula for this. Infinite: not before the codec's
     * union is known. */
    double seconds;
    int chosen;      /* not 0: "auto" takes this one */
    double measured; /* by a trial, see spr_comm_trials(); NaN: in none, or soon left out */
} spr_prediction;

/*
 * Predictions for "allreduce" or "sparse_allreduce" of `count` elements. Sparse: lists of at most
 * `most_entries` (more than 0), whose union had `last_union` entries lately (0: not known, taken
 * for that of independent positions). Fills at most `capacity` of `predictions`, of which one is
 * chosen, and returns how many there are. Any thread. Errors: INVALID, FORKED (negative).
 */
int spr_comm_predict(spr_comm *comm, const char *collective, size_t count, spr_dtype dtype,
                     size_t most_entries, size_t last_union, spr_prediction *predictions,
                     int capacity);
/* Likewise for the next step of a codec, which does not run. */
int spr_codec_predict(spr_comm *comm, spr_codec *codec, spr_prediction *predictions, int capacity);

/* What a codec, or a dense sum, made of a gradient (spr_codec_choose()); the same on all ranks. */
typedef struct spr_codec_trial {
    const char *spec; /* as it was given; "dense" */
    double seconds;   /* of a step: of the slowest rank, the median of five */
    double error;     /* of the first step, relative_error of spr_codec_quality: the largest one */
    double bytes;     /* of it, as a part of the vector: `ratio` there, the largest one */
    int allowed;      /* not 0: within the bounds */
} spr_codec_trial;

typedef struct spr_choice_options {
    size_t struct_size;
    double most_error; /* no codec with a larger error; 0: any */
    double most_bytes; /* none that sends a larger part; below 1 dense is none, either; 0: any */
    int current;       /* place of the one in use, which stays unless another one takes at most 0.9
                        * of its time, or it is not allowed; -1: none is in use. Where ranks
                        * differ, after a failure or as some are new, the largest one counts. */
    spr_codec_trial *trials; /* out, count + 1: those of the codecs, and dense; may be NULL */
} spr_choice_options;
#define SPR_CHOICE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(spr_choice_options), 0, 0, -1, 0                                                    \
    }

/*
 * Which of `count` codecs makes steps of this gradient the fastest, or whether dense does: *chosen
 * is its place in `specs`, `count` for dense, the same on all ranks. Measured, on links and CPUs as
 * they are now: of each codec a new one is made, and does six steps, in turns with the others. So
 * it takes 6 (count + 1) steps, and the memory of all the codecs and of one more vector. `gradient`
 * has the elements of the layout and stays as it is; layout, specs and bounds are the same on all
 * ranks. Codecs in use are not touched. To go on with another one, add spr_codec_residual() of the
 * old one to the next gradient: no gradient is lost, but for what feedback=momentum and nesterov
 * keep beside it; a residual of an earlier learning rate is to be scaled as
 * spr_codec_set_learning_rate() says. A codec with warm-up is judged by its start.
 * Collective; blocks. Nothing else may be posted meanwhile. It counts as collectives of the
 * communicator. Errors: INVALID (a wrong spec, or nothing is within the bounds), NOMEM, MISMATCH,
 * all on all ranks, and those of dense.h.
 */
spr_status spr_codec_choose(spr_comm *comm, const char *const *specs, int count,
                            const spr_layout *layout, size_t parameters, const float *gradient,
                            const spr_choice_options *options, int *chosen);

#ifdef __cplusplus
}
#endif
#endif
