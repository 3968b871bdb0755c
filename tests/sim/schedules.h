/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Simulated schedules: everything that happens to a job, drawn from one 64-bit seed.
 *
 *   schedule_draw    seed -> schedule: ranks, links, operations, faults, odd calls (schedules.c)
 *   schedule_print   ... in words (schedule_print.c)
 *   schedule_play    schedule -> play: the real engine runs it (schedule_play.c)
 *   schedule_check   play -> NULL, or what is wrong with it (schedule_check.c, schedule_codec.c)
 */
#ifndef TESTS_SIM_SCHEDULES_H
#define TESTS_SIM_SCHEDULES_H

#include <stdio.h>

#include <sparring/sparring.h>

#include "base/rng.h"
#include "compress/codec.h"
#include "tests/sim/world.h"

#define SCHEDULE_RANKS 9
#define SCHEDULE_OPERATIONS 6
#define SCHEDULE_FAULTS 3

enum schedule_kind {
    SCHEDULE_ALLREDUCE,
    SCHEDULE_REDUCE_SCATTER,
    SCHEDULE_ALLGATHER,
    SCHEDULE_BROADCAST,
    SCHEDULE_BARRIER,
    SCHEDULE_SENDRECV,
    SCHEDULE_SPARSE,
    SCHEDULE_COMPRESSED,
    SCHEDULE_KINDS
};

struct schedule_operation {
    enum schedule_kind kind;
    spr_dtype dtype;
    spr_op op;
    int root;              /* of a broadcast; the shift of a sendrecv */
    const char *algorithm; /* NULL: the library's choice */
    bool in_place;
    bool whole;                 /* whole numbers */
    double density;             /* of sparse lists */
    size_t count;               /* as passed to the call */
    size_t in_count, out_count; /* elements of the buffers */
    bool list;                  /* sparse: the result as a list too */
};

enum schedule_fault_kind {
    /* These must not be seen by anybody: */
    SCHEDULE_SLOW,  /* rank: a slow port */
    SCHEDULE_DELAY, /* rank -> peer: frames take longer */
    SCHEDULE_LATE,  /* rank: "sent" comes late */
    SCHEDULE_NAP,   /* rank: paused, shorter than any limit */
    /* These may end the job: */
    SCHEDULE_KILL,     /* rank */
    SCHEDULE_PAUSE,    /* rank: beyond every deadline, then it goes on */
    SCHEDULE_SILENCE,  /* rank -> peer: frames vanish */
    SCHEDULE_BREAK,    /* rank, peer: the link is lost; both or one of them see it */
    SCHEDULE_CORRUPT,  /* rank -> peer: one bit of a frame */
    SCHEDULE_TRUNCATE, /* rank -> peer: the link ends within a frame */
    SCHEDULE_REPLAY,   /* rank -> peer: a frame comes twice */
    SCHEDULE_FAULT_KINDS
};

struct schedule_fault {
    enum schedule_fault_kind kind;
    int rank, peer;
    uint64_t at_ns, until_ns;
    uint64_t nth;         /* frame */
    double amount;        /* bit/s, or seconds */
    bool sees, peer_sees; /* BREAK */
};

/* Who may write another rank's memory and says nothing is waited for so long; naps are shorter. */
#define SCHEDULE_EXPEL_S 0.5

/* One rank does not do as the others. */
enum schedule_odd {
    SCHEDULE_EVEN,
    SCHEDULE_OTHER_COUNT, /* operation `odd_operation` of rank `odd_rank` is another one ... */
    SCHEDULE_OTHER_OP,
    SCHEDULE_OTHER_KIND,
    SCHEDULE_MISSING, /* ... is never called, nor are those behind it */
    SCHEDULE_CANCEL,  /* ... is cancelled after the post */
    SCHEDULE_ABORT,   /* instead, the rank aborts the communicator */
    SCHEDULE_ODDS
};

struct schedule {
    const char *model; /* by which algorithms are chosen; NULL: none */
    int indices;       /* SPARRING_INDICES: SPR_INDICES_... */
    int zstd;          /* SPARRING_ZSTD */
    int determinism;   /* SPARRING_DETERMINISM: SPR_DETERMINISM_... */
    uint64_t seed;
    struct spr_rng rng; /* of drawing, then of playing */
    int ranks;
    int host[SCHEDULE_RANKS];      /* of each rank */
    int rack[SCHEDULE_RANKS];      /* of each host */
    uint32_t rate[SCHEDULE_RANKS]; /* of each rank's link, as algorithms know it; 0: not at all */
    struct spr_sim_options links;
    size_t eager_bytes, eager_window;
    size_t priority_bytes; /* 0: all operations are as urgent */
    double timeout_s;
    uint32_t first;    /* number of the first operation: some wrap, or change sign */
    const char *codec; /* of the compressed operations; the state goes from one to the next */
    struct spr_codec_kind kind; /* of that: of schedule_begin() */
    bool low_rank;              /* ... it sends factors, in two rounds */
    size_t codec_elements;
    int depth[SCHEDULE_RANKS];         /* operations in flight at most; 1: blocking calls */
    uint64_t think_ns[SCHEDULE_RANKS]; /* at most, before each call */
    bool leave;                        /* ranks that are done say goodbye while others still work */
    enum schedule_odd odd;
    int odd_rank, odd_operation;
    int operations, faults;
    struct schedule_operation operation[SCHEDULE_OPERATIONS];
    struct schedule_operation odd_call; /* what the odd rank calls instead */
    struct schedule_fault fault[SCHEDULE_FAULTS];
};

/* The rank whose elements a sendrecv of `rank` receives. */
static inline int schedule_source(const struct schedule_operation *o, int rank, int ranks)
{
    return ((rank - o->root) % ranks + ranks) % ranks;
}

/* How urgent an operation is to a rank. */
int schedule_priority(const struct schedule *s, int rank, int operation);

void schedule_draw(struct schedule *s, uint64_t seed);
void schedule_print(const struct schedule *s, FILE *out);
/* Bit r: rank r is really at fault, so that an error may name it. 0: all must succeed. */
unsigned schedule_culprits(const struct schedule *s);
/* Is there an operation that the ranks disagree on? It fails alone. */
static inline bool schedule_mismatches(const struct schedule *s)
{
    return s->ranks > 1 && s->odd >= SCHEDULE_OTHER_COUNT && s->odd <= SCHEDULE_OTHER_KIND;
}
/* Gradients of compressed operations are whole numbers up to this. Codecs have factors of 0.5, so
 * that nothing that they add up is rounded, and is less than twice as much. */
#define SCHEDULE_LARGEST 25
/* What a rank calls. */
static inline const struct schedule_operation *schedule_call_of(const struct schedule *s, int rank,
                                                                int k)
{
    bool odd = s->odd != SCHEDULE_EVEN && rank == s->odd_rank && k == s->odd_operation;

    return odd ? &s->odd_call : &s->operation[k];
}
static inline uint64_t schedule_below(struct schedule *s, uint64_t n)
{
    return spr_rng_below(&s->rng, n);
}

/* What one rank knows of one operation. */
struct schedule_call {
    char *in, *out;
    spr_sparse list, result;
    spr_request *request;
    bool posted, ended;
    spr_status status; /* of the post, then of the request */
    uint64_t posted_ns, ended_ns;
    uint32_t out_crc; /* of `out` when the call was over */
    /* Compressed: residual and velocity before the call, what a new step adds to the residual, and
     * what was sent once it ended well. */
    float *before, *velocity, *entered, *sent;
    bool revoked; /* it succeeded, and a shrink took that back */
};

struct schedule_play {
    struct schedule schedule;
    struct world world;
    uint64_t now_ns;
    spr_codec *codec[SCHEDULE_RANKS];
    struct schedule_call call[SCHEDULE_RANKS][SCHEDULE_OPERATIONS];
    int next[SCHEDULE_RANKS];              /* the next operation to call */
    uint64_t next_call_ns[SCHEDULE_RANKS]; /* not before */
    bool left[SCHEDULE_RANKS];             /* said goodbye */
    uint64_t leave_ns[SCHEDULE_RANKS];     /* then it closes its links */
    int64_t live, live_bytes, most_bytes;  /* of memory: before, and at most */
    bool failed;                           /* a communicator did */
    int revoked;                           /* steps of codecs that were taken back */
    int deadlines, right_deadlines;        /* errors, and those that name one who is at fault */
    char failure[1024];
};

/* True: it went well. Otherwise play->failure says what did not. Frees everything. */
bool schedule_play(struct schedule_play *play, const struct schedule *schedule);

/* The pieces, in order. Each returns false with play->failure set. */
void schedule_begin(struct schedule_play *play, const struct schedule *schedule);
bool schedule_run(struct schedule_play *play);
bool schedule_check(struct schedule_play *play);
bool schedule_check_codecs(struct schedule_play *play);
/* Of the schedule's codec, with the layout of its vector. */
spr_codec *schedule_codec(const struct schedule *s);
/* The residual of an element when the gradient has entered, rounded as in select/feedback.h. */
float schedule_residual_after(const spr_codec *codec, float residual, float velocity,
                              float gradient);
/* What a new step of this gradient adds to the codec's residual: with momentum the velocity. */
void schedule_enter(const spr_codec *codec, const float *gradient, float *entered, size_t n);
/* After a step that failed: is the velocity that of before, or, where its gradient has entered, of
 * that alone? */
bool schedule_check_velocity(struct schedule_play *play, int rank, int operation, bool entered);
/* Of numbers of this size, how much may be lost: nothing of whole numbers, unless values are coded,
 * which are as long as floats: their sums are rounded, and so is what stays; or they come of
 * factors, to each of which all of a row or column adds. */
double schedule_codec_bound(const struct schedule *s, double size);
bool schedule_check_call(struct schedule_play *play, int rank, int operation); /* when it ended */
/* After a failure, for jobs whose ranks are all still there or dead. */
bool schedule_shrink(struct schedule_play *play);
/* Take down and free; `good`: what came before was. */
bool schedule_end(struct schedule_play *play, bool good);
/* One rank makes its next call, or works on those that it made. */
bool schedule_call(struct schedule_play *play, int rank);
bool schedule_work(struct schedule_play *play, int rank);
/* Register what the call writes with its communicator, if peers may write it (links.place). */
void schedule_offer(struct schedule_play *play, int r, int k);
/* Checksum of what the call writes. */
uint32_t schedule_out_crc(const struct schedule_play *play, int r, int k);
/* Did this rank live to the end? */
bool schedule_survives(const struct schedule_play *play, int rank);
void schedule_fill(struct schedule_play *play);
void schedule_free(struct schedule_play *play);
spr_status schedule_post(struct schedule_play *play, int rank, int operation);
bool schedule_fail(struct schedule_play *play, int rank, int operation, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
