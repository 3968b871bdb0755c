/* SPDX-License-Identifier: BSD-2-Clause
 *
 * State of the sparse allreduce, shared by sparse_start.c (how it begins and ends), sparse.c (lists
 * to their owners), sparse_union.c (unions to everybody), sparse_relay.c (by way of others) and
 * sparse_result.c (what becomes of it); sparse_hosts.c, which has other owners and sums inside each
 * host first; and sparse_stream.c, streams of chunks.
 */
#ifndef SPR_COLLECTIVES_SPARSE_H
#define SPR_COLLECTIVES_SPARSE_H

#include "collectives/collective.h"

/* Messages ahead: per peer as receiver, and encoded chunks of the union under way; these at most,
 * where threads make several together. */
#define SPR_SPARSE_AHEAD 2
#define SPR_SPARSE_UNIONS 4
#define SPR_SPARSE_MOST_UNIONS 8
/* A chunk is closed when it has about this many bytes; a dense window makes a larger one. */
#define SPR_SPARSE_TARGET_BYTES ((size_t)64 << 10)
#define SPR_SPARSE_MAX_WINDOWS 4096
/* Buffers for chunks up to this size are the request's own; larger ones are the communicator's. */
#define SPR_SPARSE_SMALL_BYTES ((size_t)16 << 10)

/* A stream of chunks from one rank, windows in ascending order. */
struct spr_stream {
    const struct spr_coding *coding; /* of its values, or NULL */
    uint32_t ahead;                  /* messages that are awaited at the same time, at most */
    struct spr_in *in;               /* [ahead] */
    char **buffer;                   /* [ahead], chunk_bytes each */
    char *plain;                     /* likewise: the next one, if it came compressed; or NULL */
    uint32_t most;                   /* messages that come at most, each of a window or more */
    uint32_t asked, taken;           /* messages */
    uint32_t passed_on;              /* of a relay: ... that have left for its neighbours */
    uint32_t window;                 /* first one not yet consumed */
    bool last;                       /* the last chunk is open or consumed */
    bool open;                       /* chunk is valid */
    uint32_t number;                 /* among others: */
    struct spr_marks *stirred;       /* marked when one has come or was closed; or NULL */
    struct spr_chunk chunk;
};

/* A chunk as it goes over slow links: compressed (compress/zstd.h), once for all of them. */
struct spr_wire {
    char *packed; /* chunk_bytes; NULL: chunks go as they are */
    bool tried;   /* ... of the chunk of now: */
    size_t bytes; /* 0: it does not get shorter */
};

/* An encoded chunk of our union on its way to everybody. */
struct spr_union_slot {
    char *buffer;
    struct spr_wire wire;
    struct spr_out *out; /* [size] */
    uint32_t under_way;  /* of these */
};

/* Chunks of unions that have come and are checked: they are written into the dense result together,
 * by all threads that help. */
#define SPR_SPARSE_BATCH 16
struct spr_sparse_batch {
    unsigned count;
    struct {
        struct spr_chunk chunk;
        struct spr_in *in; /* with its bytes; NULL: somebody else releases it */
    } of[SPR_SPARSE_BATCH];
};

/* Kept copies of union chunks, in order, for a list result. */
struct spr_kept {
    struct spr_kept *next;
    size_t bytes;
    char data[];
};

/* How an owner's union gets to all. */
enum spr_sparse_route {
    SPR_ROUTE_STRAIGHT, /* from the owner */
    SPR_ROUTE_HOSTS,    /* once to each host (topology.h), whose ranks pass it on */
    SPR_ROUTE_RING      /* ... from one host to the next */
};

/* What travels to owners and back. */
struct spr_sparse_way {
    /* May what this rank has for an owner be encoded? NULL: at once. */
    bool (*is_ready)(const spr_request *rq, int owner);
    /* The next message for an owner, from a window on. Moves that and returns the bytes. */
    size_t (*encode)(spr_request *rq, uint32_t owner, uint32_t *next_window, char *out);
    /* As an owner. There is room for the messages that a window may fill: */
    bool (*has_room)(const spr_request *rq);
    /* Add window `merged` of a source. False: it is not there, or the communicator has failed. */
    bool (*add)(spr_request *rq, int source);
    /* All sources are added: move the sums to those that are sent, and go on with `merged` and
     * next_rank; or send those that are in the way, to be called again. False: as above. */
    bool (*harvest)(spr_request *rq);
    /* The next message of an owner's sums: into the result; the stream is closed behind it. */
    bool (*take)(spr_request *rq, int owner, struct spr_in *in);
};
/* Entries, in chunks. */
extern const struct spr_sparse_way spr_sparse_chunks;

struct spr_sparse_state {
    const struct spr_sparse_way *way;
    struct spr_blocks blocks;
    uint32_t windows;         /* of ours */
    uint32_t span;            /* positions of the longest window of any owner, rounded up to 64 */
    uint32_t most_windows;    /* in a chunk */
    size_t chunk_bytes;       /* of the largest chunk, at most SPR_FRAME_MAX_PAYLOAD */
    bool packs;               /* messages are chunks, which may be compressed */
    enum spr_vtype vtype;     /* of this rank's values on their way to an owner, or a collector */
    enum spr_vtype sum_vtype; /* of sums on their way from the owner */
    uint32_t *offsets;        /* of our list, by block; NULL: a dense vector */
    struct spr_coding coding; /* of coded values, with scratch */
    struct spr_coding sum_coding; /* of coded sums; the same scratch */
    /* Who does what. Of the blocks' owners, by number: */
    const int *owners;     /* [blocks.ranks] which rank that is; NULL: the one of that number */
    const int *collectors; /* [blocks.ranks] who takes our entries for it; NULL: it does itself */
    int own;               /* which one this rank is, or -1 */
    /* Step 1, as a sender: */
    uint32_t *sent_windows;         /* [blocks.ranks]: windows of that owner encoded so far */
    uint32_t *sent_chunks;          /* [blocks.ranks] */
    struct spr_out *to_owner;       /* [blocks.ranks] */
    char **to_owner_buffer;         /* [blocks.ranks] */
    struct spr_wire *to_owner_wire; /* [blocks.ranks] */
    struct spr_marks may_send;      /* owners that may be sent something more */
    int unsent;                     /* ... that have not been sent all */
    struct spr_chunk_writer writer;
    void *writer_scratch;
    const struct spr_index_coder *indices; /* of positions in chunks that are sent, or NULL */
    size_t writer_bytes;                   /* of such scratch */
    /* Step 1, as an owner: */
    struct spr_group sources;          /* whose contributions are added, in this order */
    bool (*add_own)(spr_request *rq);  /* ... and how that of this rank is; false: not yet */
    void (*add_left)(spr_request *rq); /* what it has left out where others have brought something;
                                        * NULL: nothing */
    struct spr_stream *contributions;  /* [sources.size] */
    struct spr_marks stirred_sources;  /* of these */
    uint32_t merged;                   /* windows summed and harvested */
    int next_rank;                     /* whose entries of window `merged` are added next */
    bool
        *taken; /* [sources.size] who they are added of, as they come, next_rank of them; or NULL */
    size_t contributed;            /* entries of that window, of all ranks so far */
    struct spr_together *together; /* windows that are summed by several threads; NULL: none are */
    uint32_t *largest;             /* scratch to select among sums, or NULL */
    float *accumulator;            /* span */
    uint64_t *touched;             /* span bits */
    /* Step 2: */
    struct spr_chunk_writer union_writer;
    uint32_t union_chunks;
    uint32_t slot_count;                                 /* SPR_SPARSE_UNIONS or more */
    struct spr_union_slot slots[SPR_SPARSE_MOST_UNIONS]; /* chunk i in slot i mod slot_count */
    struct spr_stream *unions;                           /* [blocks.ranks] by owner */
    struct spr_sparse_batch batch;                       /* of these */
    struct spr_workers *workers;     /* help to sum and to write them; NULL: none do */
    struct spr_marks stirred_unions; /* of these */
    int missing;                     /* ... that are not complete */
    bool withdrawn;                  /* what nobody will send is not awaited any more */
    enum spr_sparse_route route;
    struct spr_out **relays; /* [blocks.ranks] by owner, [SPR_SPARSE_AHEAD][listeners] */
    uint64_t union_entries;
    uint64_t reduce_scatter_ns;          /* from the post until all sums of this rank were there */
    struct spr_kept **kept, **kept_tail; /* [blocks.ranks], for a list result; by owner */
};

/* ---- sparse_stream.c; rq->state is or begins with a struct spr_sparse_state ---- */

/* How this rank's values are coded, or NULL. */
static inline const struct spr_coding *spr_sparse_coding(const spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;

    return s->vtype == SPR_V_CODED ? &s->coding : NULL;
}

/* Coded sums on their way from the owner, or NULL. */
static inline const struct spr_coding *spr_sparse_sum_coding(const spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;

    return rq->plan.sum_vtype == SPR_V_CODED ? &s->sum_coding : NULL;
}

static inline int spr_sparse_owners(const struct spr_sparse_state *s)
{
    return (int)s->blocks.ranks;
}

/* The rank that an owner is. */
static inline int spr_sparse_owner(const struct spr_sparse_state *s, int owner)
{
    return s->owners ? s->owners[owner] : owner;
}

/* Who takes our entries for an owner. */
static inline int spr_sparse_collector(const struct spr_sparse_state *s, int owner)
{
    return s->collectors ? s->collectors[owner] : spr_sparse_owner(s, owner);
}

/* The step of the first of an owner's chunks, where one rank sends another those of several: none
 * has more chunks than the first has windows. */
static inline uint32_t spr_sparse_step(const struct spr_sparse_state *s, int owner)
{
    return (uint32_t)owner * spr_blocks_windows(&s->blocks, 0);
}

/* What can be summed in blocks of one owner? Coding depends on blocks of as many owners as there
 * are ranks. And a union is bounded by those who own it. */
static inline bool spr_sparse_is_uncoded(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype == SPR_FP32 && plan->vtype != SPR_V_CODED &&
           plan->sum_vtype != SPR_V_CODED && !plan->bound_union;
}

/* Memory of chunk_bytes; NULL: there is none. put(NULL) is harmless. */
char *spr_sparse_buffer_get(spr_request *rq);
void spr_sparse_buffer_put(spr_request *rq, char *buffer);

/* Memory for a wire of zeros, where chunks may be compressed. False: there is none. */
bool spr_wire_open(spr_request *rq, struct spr_wire *w);
void spr_wire_free(spr_request *rq, struct spr_wire *w);
/* The next chunk of this wire begins. */
static inline void spr_wire_begin(struct spr_wire *w) { w->tried = false; }
/* Send a chunk to a peer; compressed, if the link is worth it and that makes it shorter. */
void spr_wire_send(spr_request *rq, struct spr_wire *w, struct spr_out *out, int peer,
                   uint32_t step, const void *chunk, size_t bytes);

/* Memory for a stream of zeros, of so many messages at most. False: there is none. */
bool spr_stream_open(spr_request *rq, struct spr_stream *s, uint32_t most);
/* ... and so many of them awaited at the same time, instead of SPR_SPARSE_AHEAD. */
bool spr_stream_open_ahead(spr_request *rq, struct spr_stream *s, uint32_t most, uint32_t ahead);
void spr_stream_free(spr_request *rq, struct spr_stream *s);
/* Post receives of the next messages, whose steps are `step` plus their number. */
void spr_stream_ask(spr_request *rq, struct spr_stream *s, int peer, uint32_t step);
/* The next message that has arrived, or NULL. */
struct spr_in *spr_stream_next(struct spr_stream *s);
/* The chunk in it as its sender made it: *data, *bytes. False: it cannot be, and the communicator
 * fails. */
bool spr_stream_plain(spr_request *rq, struct spr_stream *s, const struct spr_in *in, int from,
                      const void **data, size_t *bytes);
/* It has been used. */
void spr_stream_close(struct spr_stream *s);
/* An over-eager receive that the sender will never use: its messages were fewer than AHEAD. False:
 * it does, and the communicator fails. */
bool spr_stream_withdraw(struct spr_stream *s);
/* Make the chunk of `from` that covers this window of an owner available as s->chunk. */
bool spr_stream_covers(spr_request *rq, struct spr_stream *s, int from, uint32_t owner,
                       uint32_t window);
/* Open a chunk that `from` has sent, whose first window is to be this one: it must end at the
 * owner's last window if, and only if, it says so. If not, the communicator fails. */
spr_status spr_sparse_check(spr_request *rq, struct spr_chunk *c, const void *data, size_t bytes,
                            int from, uint32_t owner, uint32_t first_window,
                            const struct spr_coding *coding);
/* A writer of chunks that are sent, for blocks of an owner; scratch: writer_bytes. */
void spr_sparse_writer_init(const struct spr_sparse_state *s, struct spr_chunk_writer *w,
                            uint32_t owner, void *scratch);
/* Encode the next chunk of this rank's list, or vector, for an owner; its entries stay in the
 * writer. Moves *next_window and returns the bytes. */
size_t spr_sparse_encode(spr_request *rq, uint32_t owner, uint32_t *next_window, char *out);
/* Add its entries of a window of an owner. pos, val: scratch, with room for SPR_WINDOW and 16.
 * Returns how many. */
size_t spr_sparse_add_list(const spr_request *rq, uint32_t owner, uint32_t window, uint16_t *pos,
                           float *val, float *accumulator, uint64_t *touched);
/* Has a chunk of so many entries about the size at which it is closed? As U16. */
static inline bool spr_sparse_is_long(size_t entries)
{
    return entries * 6 > SPR_SPARSE_TARGET_BYTES;
}

/* The most of those of several windows in a chunk: as U16, with windows and coders' overhead. */
#define SPR_SPARSE_MOST_JOINED (2 * SPR_SPARSE_TARGET_BYTES / 6)
/* May the window in an accumulator, which has touched these of `span` positions, at most n of them,
 * join those in the writer? If not, their chunk has to be closed before: a full window leaves no
 * room in a chunk for others. */
bool spr_sparse_fits(const struct spr_chunk_writer *w, const uint64_t *touched, uint32_t span,
                     size_t n);

/* ---- sparse_start.c ---- */

/* What all algorithms have: a state of that many bytes, which begins with a struct
 * spr_sparse_state, in rq->state; blocks of so many owners, the list checked, scratch to encode and
 * to sum. All of it is in the arena. */
spr_status spr_sparse_prepare(spr_request *rq, size_t state_bytes, int owners);
/* Each rank owns a part of the vector, and adds what all have in it. */
void spr_sparse_each_owns(spr_request *rq);
/* What steps 1 and 2 need, once it is said who does what: buffers and streams to owners and from
 * them; and those of unions in chunks, too. False: there is no memory. */
bool spr_sparse_make_links(spr_request *rq);
bool spr_sparse_make(spr_request *rq);
/* `n` streams, all but that of number `own` with memory; -1: all. A stream has the windows of
 * `owner`; -1: of the owner of its number. So many messages of each are awaited. `stirred`: marks
 * for them, or NULL. False: there is no memory. */
bool spr_sparse_make_streams(spr_request *rq, struct spr_stream **streams, int n, int own,
                             int owner, uint32_t ahead, struct spr_marks *stirred);
void spr_sparse_free_streams(spr_request *rq, struct spr_stream *streams, int n);
/* The slots of struct spr_algorithm. */
spr_status spr_sparse_start(spr_request *rq);
void spr_sparse_cleanup(spr_request *rq);

/* ---- sparse.c ---- */

/* Send what can be sent of this rank's list to those who collect it. True: it is all on its way. */
bool spr_sparse_contribute(spr_request *rq);
/* Add this rank's entries to window `merged` of its own blocks. True. */
bool spr_sparse_add_own(spr_request *rq);
/* Go on as an owner, and with the unions. True: they are here, and so is `contributed`, all that is
 * sent before: nothing but messages is left, and spr_sparse_end() is called. */
bool spr_sparse_go_on(spr_request *rq, bool contributed);

/* Sums of an operation that is an average become that. */
void spr_sparse_average(const spr_request *rq, float *sum, size_t n);

/* ---- sparse_together.c ---- */

/* Memory for it, if there are threads that help and windows that are worth it; before
 * spr_sparse_make_links(). False: there is no memory. */
bool spr_sparse_together_open(spr_request *rq);
/* Messages that are awaited of each source at the same time. */
uint32_t spr_sparse_together_ahead(const struct spr_sparse_state *s);
/* Sum windows from `merged` on, of all sources, that are here, by all threads that help, and send
 * their chunks. ALONE: they are few, and no more will come before they are summed. WAIT: more will;
 * or the communicator has failed. */
enum spr_together_next { SPR_TOGETHER_DONE, SPR_TOGETHER_WAIT, SPR_TOGETHER_ALONE };
enum spr_together_next spr_sparse_sum_together(spr_request *rq);

/* ---- sparse_union.c ---- */

/* Of the first message of an owner's union. */
uint32_t spr_union_step(const struct spr_sparse_state *s, int owner);
/* May a window go to the union? One that cannot be sent yet has no room. */
bool spr_union_has_room(const spr_request *rq);
/* n entries of window `merged` are in the union's writer: it is complete. False: the communicator
 * has failed. */
bool spr_union_window(spr_request *rq, size_t n);
/* The windows in its writer are a chunk, which goes to everybody: there is room. False: likewise.
 */
bool spr_union_close(spr_request *rq);
/* Where the i-th chunk from now on is encoded; NULL: one before it is under way from there. */
char *spr_union_buffer(const spr_request *rq, uint32_t i);
/* What is in the next n buffers may be overwritten from now on. */
void spr_union_make_room(spr_request *rq, uint32_t n);
/* Encode the windows in a writer, whose chunk goes to one of them. Any thread, unless sums are
 * coded. Returns the bytes. */
size_t spr_union_encode(const spr_request *rq, struct spr_chunk_writer *w, char *buffer);
/* What encoding sums has left of those in a writer stays with the codec; weight: as many ranks as
 * they were divided by. */
void spr_union_keep_rest(spr_request *rq, const struct spr_chunk_writer *w,
                         const struct spr_coding *coding, const void *encoded, size_t bytes,
                         float weight);
/* The chunk in the first of them, encoded of the windows in a writer, goes to everybody, ourselves
 * included. False: likewise. */
bool spr_union_send(spr_request *rq, const struct spr_chunk_writer *w, size_t bytes);
/* Its slot of spr_sparse_chunks. */
bool spr_union_take_chunk(spr_request *rq, int owner, struct spr_in *in);
/* Take what has come of the unions of others. True: all is there. */
bool spr_union_take(spr_request *rq);

/* ---- sparse_relay.c ---- */

/* From whom `to` gets the union of `owner`. */
int spr_sparse_source(const spr_request *rq, int owner, int to);
/* Memory for the relay's messages. False: there is none. */
bool spr_sparse_relay_start(spr_request *rq);
/* The n-th message of an owner's union has arrived: pass it on to those that hear it from this
 * rank. False: there are none. */
bool spr_sparse_pass_on(spr_request *rq, int owner, uint32_t message, const struct spr_in *in,
                        uint32_t step);
/* ... and has left: its buffer may be used again. */
bool spr_sparse_passed_on(const spr_request *rq, int owner, uint32_t message);

/* ---- sparse_result.c ---- */

/* A chunk of an owner's union, checked: write it into the dense result, keep it for the list.
 * Visits its windows. */
spr_status spr_sparse_take(spr_request *rq, struct spr_chunk *c, const void *data, size_t bytes);
/* Likewise of one that is in `in`, by the next spr_sparse_write(), which releases that; NULL:
 * somebody else does, later. There is room in the batch. */
spr_status spr_sparse_take_soon(spr_request *rq, const struct spr_chunk *c, const void *data,
                                size_t bytes, struct spr_in *in);
void spr_sparse_write(spr_request *rq);
/* All chunks are there: make the list. SPR_OK or TOO_SMALL. */
spr_status spr_sparse_list(spr_request *rq);
/* Everything is done but for messages under way: false while there are any. Then the list is made,
 * and the times are noted. */
bool spr_sparse_end(spr_request *rq, spr_status (*list)(spr_request *rq));
/* All sums of this rank are there: the first call counts. */
void spr_sparse_summed(spr_request *rq);

#endif
