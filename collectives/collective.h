/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A collective under way: a plan, an algorithm, and its resumable state.
 *
 * An algorithm is one file and one line in the table of select.c. start() posts the first messages;
 * whenever messages completed, advance() is called once (under the communicator's lock, from
 * progress) and posts what has become possible. Nothing blocks. Nothing is allocated after start():
 * state comes from the request's arena, which is kept for later requests.
 */
#ifndef SPR_COLLECTIVES_COLLECTIVE_H
#define SPR_COLLECTIVES_COLLECTIVE_H

#include "base/marks.h"
#include "collectives/comm.h"
#include "collectives/descriptor.h"
#include "compress/chunk.h"

/* Dense vectors travel in chunks of at most this many bytes: about half of an L2 cache. */
#define SPR_CHUNK_BYTES ((size_t)128 << 10)

enum spr_collective {
    SPR_C_ALLREDUCE,
    SPR_C_REDUCE_SCATTER,
    SPR_C_ALLGATHER,
    SPR_C_BROADCAST,
    SPR_C_BARRIER,
    SPR_C_SPARSE_ALLREDUCE,
    SPR_C_SENDRECV,
    SPR_C_COUNT
};
extern const char *const spr_collective_names[SPR_C_COUNT];

/* What to do; the same on all ranks but for the pointers and the sparse list. */
struct spr_plan {
    enum spr_collective collective;
    uint32_t operation; /* its number, once it is posted */
    spr_dtype dtype;
    spr_op op;
    int root;     /* sendrecv: the shift */
    size_t count; /* elements; see dense.h. Sparse: elements of the vector */
    const void *send;
    void *recv;
    /* Sparse; index NULL: the values of a dense vector, in `value`: */
    const uint32_t *index;
    const float *value;
    size_t entries;
    size_t most_entries; /* of any rank; 0: that is not known */
    size_t last_union;   /* entries in the union of the codec's last step here; 0: not known */
    const char *last_algorithm; /* ... and its algorithm; NULL: none */
    float *dense;
    spr_sparse *list;
    enum spr_vtype vtype;            /* of the values on their way to the owner */
    struct spr_coding coding;        /* ... when they are coded */
    float *rest;                     /* ... where to write what that loses, or NULL */
    enum spr_vtype sum_vtype;        /* of sums; not FP32: the codec keeps what that loses */
    struct spr_coding sum_coding;    /* ... when they are coded */
    uint64_t codec_hash, codec_step; /* as in the descriptor */
    bool may_sum_first; /* coded values may be summed before: the codec keeps what is lost then */
    bool bound_union;   /* only the largest sums travel, and the codec keeps what is in others */
    bool bound_hosts;   /* ... of those of each host; there are hosts with several ranks */
    float *gradient;    /* NULL, or the result that a codec makes of sums: spr_codec_next() */
    float *unpack;      /* dense codecs: recv holds halves, which go here at the end */
};

struct spr_algorithm {
    enum spr_collective collective;
    const char *name;
    const char *cost; /* one line: steps, bytes sent per rank */
    bool (*usable)(const struct spr_plan *plan, int size); /* NULL: always */
    /* Post the first messages. An error means that nothing was posted. */
    spr_status (*start)(spr_request *rq);
    /* Go on. True: all results are in place and nothing more will be posted. */
    bool (*advance)(spr_request *rq);
    /* At the end, with success or not, when all messages have come back: give memory back. */
    void (*cleanup)(spr_request *rq);
    /* Seconds, by the communicator's model; NULL: there is no formula. */
    double (*predict)(const struct spr_estimate *e);
    /* Not canonical: it adds in an order that depends on more than inputs and world. */
    bool reorders;
    /* Its sums are those of another one, which is chosen when it starts. */
    bool delegates;
};

static inline bool spr_algorithm_usable(const struct spr_algorithm *a, const struct spr_plan *plan,
                                        int size)
{
    return !a->usable || a->usable(plan, size);
}

/* Elements of a vector whose sums this rank rounds, or may leave out, where a host's are summed
 * first; 0: none. */
size_t spr_hosts_share(const spr_comm *comm, const struct spr_plan *plan, size_t count);
/* How the sums of a host travel to their owner by it. */
enum spr_vtype spr_hosts_sum_vtype(const struct spr_plan *plan);

/* Chosen by name or, for NULL or "auto", by what is known. NULL: no such algorithm, *error says
 * which exist. Under the lock: what is chosen is a decision. */
const struct spr_algorithm *spr_algorithm_select(spr_comm *comm, const struct spr_plan *plan,
                                                 const char *name, struct spr_error *error);
/* Would it find one? */
bool spr_algorithm_exists(const struct spr_comm *comm, const struct spr_plan *plan,
                          const char *name, struct spr_error *error);

/* What the choice is made from: algorithms that can be taken for this plan, in the order of the
 * table. Returns how many. */
#define SPR_CANDIDATES 16
struct spr_candidate {
    const struct spr_algorithm *algorithm;
    double seconds;  /* by the model, or NAN */
    double measured; /* by spr_comm_tune_for(), or NAN */
    bool chosen;     /* "auto" takes it */
    size_t place;    /* in the table */
};
size_t spr_algorithm_candidates(const struct spr_comm *comm, const struct spr_plan *plan,
                                struct spr_candidate *candidates);

const struct spr_algorithm *spr_algorithm_at(size_t place);
/* -1: there is none. */
int spr_algorithm_place(const char *collective, const char *name);

struct spr_request {
    struct spr_list node;       /* comm->running */
    struct spr_list ready_node; /* comm->ready, or empty */
    spr_comm *comm;
    struct spr_plan plan;
    const struct spr_algorithm *algorithm; /* of this round, ... */
    void *state;
    uint32_t round;
    struct { /* ... and what the operation was posted as */
        enum spr_collective collective;
        const char *algorithm;
        size_t count;
    } posted;
    size_t union_entries; /* of a sparse result; 0: not known */
    struct spr_arena arena;
    uint32_t operation;
    uint64_t descriptor;
    char name[64];
    uint64_t posted_ns, deadline_ns, warn_ns;
    uint64_t describe_ns; /* when those that are waited for are told what it is; 0: they are */
    uint64_t dispute_ns;  /* when a rank that disagrees has not explained itself; 0: none does */
    int disputed;         /* that rank */
    int priority;         /* larger: more urgent */
    size_t outstanding;   /* messages posted and not yet done */
    bool done, canceled;
    bool ended;          /* all but its completion, which waits until the outcome reaches it */
    bool brief;          /* so short that its events may share a reading of the clock */
    bool named;          /* the algorithm was asked for by name */
    spr_status rejected; /* SPR_OK, or why it fails alone */
    char *why;           /* text of that, in the arena, or NULL */
    int blamed;
    spr_status result;
    spr_codec *codec; /* compressed allreduce: commit or abort at the end */
    void (*on_complete)(void *ctx, spr_status status);
    void *on_complete_ctx;
};

/* A message of a request. What is done may mark a number, of the peer as the algorithm counts, so
 * that the next advance() need not look at all. */
struct spr_out {
    struct spr_send send;
    spr_request *rq;
    bool busy;
    uint32_t number;
    struct spr_marks *marks; /* NULL: none */
    uint32_t *under_way;     /* counts those that are busy; or NULL */
};
struct spr_in {
    struct spr_recv recv;
    spr_request *rq;
    enum { SPR_IN_FREE, SPR_IN_POSTED, SPR_IN_ARRIVED } state;
    uint32_t number;
    struct spr_marks *marks; /* NULL: none */
};
/* Marks for n numbers, all of them set. False: no memory. */
bool spr_request_marks(spr_request *rq, struct spr_marks *marks, int n);
void spr_post_send(spr_request *rq, struct spr_out *out, int peer, uint32_t step, const void *data,
                   size_t bytes, bool eager);
/* into NULL: borrow. */
void spr_post_receive(spr_request *rq, struct spr_in *in, int peer, uint32_t step, void *into,
                      size_t capacity, bool eager);
/* Take a posted receive back that the sender will not use. False: it does, against the protocol. */
bool spr_withdraw_receive(struct spr_in *in);
/* Release an arrived message's memory and mark it free. */
void spr_in_release(struct spr_in *in);
/* For cleanup(): release those of `n` messages that have arrived. */
void spr_in_release_all(struct spr_in *in, size_t n);

/* Buffers of SPR_FRAME_MAX_PAYLOAD bytes from the communicator's pool; NULL: no memory. put(NULL)
 * is harmless. */
char *spr_comm_buffer_get(spr_comm *comm);
void spr_comm_buffer_put(spr_comm *comm, char *buffer);

/* What a caller may get wrong in any call. Without the lock. */
spr_status spr_collective_check(const spr_comm *comm, const spr_call_options *options,
                                spr_request **out);
/* What the choice of an algorithm may rely on besides what is sent: the same on all ranks. Under
 * the lock, where it counts. */
void spr_history_recall(struct spr_plan *plan, const spr_comm *comm, spr_codec *codec);
/* ... and when all ranks have a step of rq->codec, or there will be another era: what it shows. */
void spr_history_add(const spr_request *rq);
/* What a codec's next step is, as far as it is known before it begins. */
void spr_plan_of_codec(struct spr_plan *plan, const spr_comm *comm, spr_codec *codec);
/* Make a request and start it. *rq is owned by the caller (public API). `soon`: the caller is about
 * to wait, so the library's thread need not be woken. */
spr_status spr_collective_post(spr_comm *comm, const struct spr_plan *plan,
                               const spr_call_options *options, spr_codec *codec, bool soon,
                               spr_request **rq);
/* Dense codecs: what a vector of such values travels and is summed as; turn the plan's vector into
 * halves before, and the result into floats after. */
spr_dtype spr_halves_dtype(enum spr_vtype vtype);
spr_status spr_halves_pack(spr_request *rq);
void spr_halves_unpack(spr_request *rq);
/* Fail this request alone; the communicator works on. It completes when its messages have come
 * back; those of other ranks that are still to come are dropped. */
void spr_collective_reject(spr_request *rq, spr_status status, int blamed, const char *text);
/* Of the operations that run, in their order, so many are described to those they wait for, and
 * warned of, when they are late; others are when these are over: they wait for the same ranks, as a
 * rule, and there may be thousands. */
#define SPR_LATE_MOST 8
/* What must be equal on all ranks. */
void spr_collective_describe(const spr_request *rq, struct spr_descriptor *d);
/* Have progress step it, soon. */
void spr_collective_wake(spr_request *rq);
/* Called by progress for requests on the ready list, and after a failure. */
void spr_collective_step(spr_request *rq);
/* Memory of a request: from those that are spare, and back to them. Under the lock. */
spr_request *spr_request_get(spr_comm *comm);
void spr_request_put(spr_request *rq);
/* Post and wait. */
spr_status spr_collective_run(spr_comm *comm, const struct spr_plan *plan,
                              const spr_call_options *options, spr_codec *codec);

/* The table's entries. */
extern const struct spr_algorithm spr_allreduce_direct, spr_allreduce_ring, spr_allreduce_flat;
extern const struct spr_algorithm spr_allreduce_halving, spr_allreduce_doubling, spr_allreduce_tree;
extern const struct spr_algorithm spr_allreduce_hierarchical;
extern const struct spr_algorithm spr_reduce_scatter_direct, spr_reduce_scatter_hierarchical;
extern const struct spr_algorithm spr_allgather_direct, spr_allgather_bruck;
extern const struct spr_algorithm spr_allgather_hierarchical;
extern const struct spr_algorithm spr_broadcast_direct, spr_broadcast_flat,
    spr_broadcast_hierarchical, spr_broadcast_tree;
extern const struct spr_algorithm spr_barrier_dissemination;
extern const struct spr_algorithm spr_sparse_direct, spr_sparse_hierarchical, spr_sparse_hosts;
extern const struct spr_algorithm spr_sparse_allgather, spr_sparse_doubling, spr_sparse_ring;
extern const struct spr_algorithm spr_sparse_dense, spr_sparse_union, spr_sparse_server;
extern const struct spr_algorithm spr_sparse_blocks, spr_sparse_relay;
extern const struct spr_algorithm spr_sendrecv_direct;
/* Not in the table: any collective but the barrier, of no elements. */
extern const struct spr_algorithm spr_empty;

#endif
