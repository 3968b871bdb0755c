/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Communicator: a fixed group of ranks that sum gradients together.
 *
 * Thread rule: all calls on one communicator may come from any thread; collectives must be posted
 * in the same order on all ranks. No call here waits for a dead rank beyond its deadline.
 */
#ifndef SPARRING_COMM_H
#define SPARRING_COMM_H

#include <sparring/bootstrap.h>
#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who moves the bytes when nobody waits. */
enum {
    SPR_PROGRESS_DEFAULT = 0, /* from SPARRING_PROGRESS, else a thread */
    SPR_PROGRESS_THREAD,      /* a library thread progresses whenever no caller does */
    SPR_PROGRESS_CALLER       /* only spr_comm_progress, spr_test and spr_wait do */
};

/*
 * Options of spr_comm_create. A zero or NULL field means "from the environment or the
 * configuration file, else the default". Strings are copied.
 */
typedef struct spr_comm_options {
    size_t struct_size;         /* sizeof(spr_comm_options) */
    spr_bootstrap *bootstrap;   /* user-supplied; NULL: found from the environment */
    const char *root;           /* "host:port" of rank 0; with rank and size set: no environment */
    const char *file;           /* path of a shared file to meet at, instead of root */
    int rank, size;             /* used when size > 0, with a root or file of here or the
                                 * environment; without one, behind any launcher */
    const char *transports;     /* "auto", or a list such as "shm,verbs,epoll" */
    const char *interface_name; /* "eth0" or an address; list with commas */
    int progress;               /* SPR_PROGRESS_... */
    double timeout_s;           /* deadline of an operation; default 600 */
    double init_timeout_s;      /* deadline of spr_comm_create; default 30 */
    const void *secret;         /* the job's secret, secret_bytes bytes; copied and wiped */
    size_t secret_bytes;
} spr_comm_options;

#define SPR_COMM_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(spr_comm_options), NULL, NULL, NULL, 0, 0, NULL, NULL, SPR_PROGRESS_DEFAULT, 0.0,   \
            0.0, NULL, 0                                                                           \
    }

/*
 * Create the communicator of all ranks of the job. Collective; blocks until all ranks are connected
 * or init_timeout_s passed. `options` may be NULL. On error *comm is untouched and
 * spr_last_error(NULL) of this thread says which ranks are missing. Errors: INVALID, BOOTSTRAP
 * (deadline; ranks named), AUTH, MISMATCH (versions or settings differ), UNSUPPORTED (a transport
 * asked for does not work here, or none reaches a rank), RANK_LOST, SYSTEM, NOMEM.
 */
spr_status spr_comm_create(const spr_comm_options *options, spr_comm **comm);

/* This rank, and the number of ranks. Never fail. */
int spr_comm_rank(const spr_comm *comm);
int spr_comm_size(const spr_comm *comm);

/*
 * Move bytes and complete requests as far as possible without blocking. Returns the number of
 * events handled (0: nothing to do now) or a negative status when the communicator is revoked and
 * the others have been told why.
 */
int spr_comm_progress(spr_comm *comm);

/*
 * A file descriptor that becomes readable when spr_comm_progress() has something to do. To sleep:
 * spr_comm_arm() first; when it returns SPR_OK poll the descriptor, when SPR_IN_PROGRESS call
 * spr_comm_progress() at once. Owned by the communicator. Only with SPR_PROGRESS_CALLER.
 */
int spr_comm_fd(spr_comm *comm);
spr_status spr_comm_arm(spr_comm *comm);

/*
 * Give up: all running and later requests on this rank end with SPR_ERR_REVOKED, the other ranks
 * are told. Local and quick (never waits for anybody). `reason` may be NULL. A process that is to
 * end after it calls spr_comm_destroy() first, or any collective, which is refused when the others
 * know: else they may see its death before they hear the reason.
 */
void spr_comm_abort(spr_comm *comm, const char *reason);

/* What spr_comm_shrink() did. */
typedef struct spr_shrink_info {
    size_t struct_size; /* sizeof(spr_shrink_info) */
    uint32_t epoch;     /* of the communicator: 1 at first, one more with every shrink or grow */
    int lost;           /* ranks that are no longer there */
    /* Operations are counted from 1 in the order of posting; those of a spr_comm_grow() that failed
     * count, those that made this communicator do not. All ranks that are left have the result of
     * every operation up to this one that did not fail before. */
    uint32_t last_operation;
    /* How many later ones of the caller this rank has a result of, which others that are left have
     * not. More than 0: do not apply these, or restore the model from a rank on which it is 0;
     * codecs have taken back what they sent in them. */
    int redo;
} spr_shrink_info;

#define SPR_SHRINK_INFO_INIT                                                                       \
    {                                                                                              \
        sizeof(spr_shrink_info), 0, 0, 0, 0                                                        \
    }

/*
 * After a failure (or at any time): go on with the ranks that are left. Every one of them calls it;
 * a rank that has not noticed the failure yet does with its next operation, which returns REVOKED.
 * Running requests end first, as after spr_comm_abort(). All that are left agree on who that is and
 * on what has succeeded: an operation that one of them lacks has failed for all. Codecs of such
 * operations take back what they sent (spr_compressed_allreduce); no other call may use a codec of
 * this communicator meanwhile. Ranks are renumbered, in the same order. The next operation works.
 *
 * A rank from which nothing is heard for patience_s seconds (0: init_timeout_s) is given up. Of a
 * network that was cut in two, the part with more ranks goes on, of two halves the one with the
 * lowest rank. `info` may be NULL. Blocks; never waits for a dead rank. Errors: EXPELLED (the
 * others go on without this rank) and DEADLINE (no agreement within 8 * patience_s), after which
 * only spr_comm_destroy() is left; INVALID, UNSUPPORTED (more than 1024 ranks), FORKED.
 */
spr_status spr_comm_shrink(spr_comm *comm, double patience_s, spr_shrink_info *info);

/* Options of spr_comm_grow. A zero or NULL field means its default. */
typedef struct spr_grow_options {
    size_t struct_size; /* sizeof(spr_grow_options) */
    /* Where members and newcomers meet, the same text for all: "host:port" or "unix:name", where
     * the members' rank 0 listens, or "file:path" of a file that all can see. NULL: SPARRING_MEET,
     * else where the ranks of the job met at its start (SPARRING_ROOT or SPARRING_FILE). */
    const char *meet;
    /* How long newcomers are waited for, or look for the members; 0: init_timeout_s. What follows
     * - members that have not called yet come, links are made - has the longer of the two. */
    double wait_s;
    /* Members; those of rank 0 count: */
    int newcomers; /* how many are awaited; 0: 1 */
    int at_least;  /* when wait_s is over, go on with so many; 0: all */
    /* Members, all of them: the rank that hands over its state. */
    int state_rank;
    /* That rank: its state, read during the call. No bytes: there is none. */
    const void *state;
    size_t state_bytes;
    /* Newcomers: memory for so many bytes (more than 0) of state, or NULL: none to be had, which
     * ends the call on all. It is the caller's; after an error of the call it holds rubbish. Called
     * once at most, in this thread. Without it a state that is handed over is an error. */
    void *(*take)(void *ctx, size_t bytes);
    void *ctx;
    /* Newcomers: transports, timeouts, secret and so on; NULL: from the environment. Its bootstrap,
     * rank and size are not used. Members have those of their communicator. */
    const spr_comm_options *create;
} spr_grow_options;

#define SPR_GROW_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(spr_grow_options), NULL, 0.0, 0, 0, 0, NULL, 0, NULL, NULL, NULL                    \
    }

/*
 * Take in new or restarted ranks, as after a death and spr_comm_shrink(). The members call it with
 * their communicator, on which nothing runs; newcomers with comm == NULL. All get one more
 * communicator, *grown, of the next epoch: the members first, in their order, then the newcomers.
 * The state of one member is handed over to the newcomers on the way. Operations are counted from 1
 * again. Collective; blocks. `options` may be NULL.
 *
 * After success the members destroy the old communicator; nothing else can be done with it, but to
 * free its memory (mem.h). On an error *grown is untouched, and the old communicator is as before:
 * it works, unless one of the members was lost or lacked the memory to say a word, then
 * spr_comm_shrink() it. All members have success, or none: where that cannot be known without a
 * shrink, the call makes one. Newcomers may call again after an error.
 *
 * A process keeps its rank only by staying: one that was expelled, or died and was restarted, is a
 * newcomer. spr_last_error(NULL) says what went wrong. Errors: BOOTSTRAP (deadline, with how many
 * came; a newcomer died), AUTH and MISMATCH (newcomers: secret, versions or settings differ),
 * RANK_LOST, REVOKED, EXPELLED, DEADLINE (of the old communicator), INVALID, NOMEM, SYSTEM, FORKED.
 */
spr_status spr_comm_grow(spr_comm *comm, const spr_grow_options *options, spr_comm **grown);

/*
 * Make communicators of parts of this one, such as the ranks of a pipeline stage. Ranks that give
 * the same color, 0 or more, get one of their own in *part: in the order of their keys and, where
 * those are equal, of their ranks here. A rank with a negative color gets NULL. Collective: every
 * rank calls it, in the same order as other collectives; it counts as up to three operations.
 * Blocks; when all have called, links are made within init_timeout_s. Nothing is shared: a part has
 * links and a thread of its own, the options of this communicator, but for SPARRING_TRACE_DIR and
 * SPARRING_TRACE_FILE, and its own memory (mem.h), failures and shrinks; either may be destroyed
 * first. spr_comm_grow() of a part needs a `meet` of its own.
 *
 * All ranks have success, or none, but where this communicator fails while they hear of it. After
 * an error *part is untouched, and this communicator works on unless it has failed; with
 * SPARRING_MODEL=measure a part may fail alone, when a rank is lost while it is measured.
 * spr_last_error(NULL) names the rank that could not. Errors: INVALID, FORKED, NOMEM, SYSTEM,
 * UNSUPPORTED, BOOTSTRAP (no links in time, or the part failed), and those of a collective.
 */
#define SPR_SPLIT_NONE (-1)
spr_status spr_comm_split(spr_comm *comm, int color, int key, spr_comm **part);

/* The number that a rank had when the communicator was created; -1: no such rank now. */
int spr_comm_initial_rank(const spr_comm *comm, int rank);

/*
 * Free the communicator. Running requests end with SPR_ERR_CANCELED (callbacks are called); handles
 * of requests that were not waited for die with it. Not collective: never waits for a dead rank;
 * waits at most 100 ms for sent bytes to leave and for the others' goodbye (200 ms when requests
 * run). comm may be NULL. In a forked child nothing is done.
 */
void spr_comm_destroy(spr_comm *comm);

/*
 * What went wrong last, in one line with rank, host, operation and remedy. With comm == NULL: the
 * last error of spr_comm_create or of another call without communicator, in this thread. Never
 * NULL; valid until the next call on the communicator (or in this thread).
 */
const char *spr_last_error(const spr_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
