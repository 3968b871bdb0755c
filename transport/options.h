/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Options of a communicator and its transports: SPARRING_<NAME>, or NAME= in the configuration
 * file.
 */
#ifndef SPR_TRANSPORT_OPTIONS_H
#define SPR_TRANSPORT_OPTIONS_H

#include <stdbool.h>

#include "base/opt.h"

/* auto: not inside a host, where the bytes never leave memory. */
enum { SPR_CRC_NO, SPR_CRC_YES, SPR_CRC_AUTO };
/* run: the same bits in each run of the same world on the same hosts; canonical: on any hosts; off:
 * on all ranks, but others in each run. */
enum { SPR_DETERMINISM_RUN, SPR_DETERMINISM_CANONICAL, SPR_DETERMINISM_OFF };
/* Of chunks. auto: what the links are worth. In the order of how short they are. */
enum {
    SPR_INDICES_AUTO,
    SPR_INDICES_PLAIN,
    SPR_INDICES_BITPACK,
    SPR_INDICES_ELIASFANO,
    SPR_INDICES_GOLOMB,
    SPR_INDICES_COUNT
};
enum { SPR_CONNECT_AUTO, SPR_CONNECT_CM, SPR_CONNECT_SOCKET };

/* What must be equal on all ranks: spr_comm_config_hash(). */
#define SPR_EQUAL_SETTINGS                                                                         \
    "SPARRING_EAGER, SPARRING_EAGER_WINDOW, SPARRING_DETERMINISM, SPARRING_INDICES, "              \
    "SPARRING_ZSTD, SPARRING_MODEL, SPARRING_TRIALS, SPARRING_DECISIONS"

struct spr_options {
    char *transports;     /* "auto" or a list of names */
    char *interface_name; /* "" = choose */
    int sockets;          /* TCP connections to each peer on each interface */
    char *congestion;     /* "" = leave the system's */
    int progress;         /* 0 thread, 1 caller */
    double timeout_s, init_timeout_s, warn_s;
    double suspect_s, expel_s;  /* no heartbeat */
    char *guardian;             /* program; "" = none */
    bool insecure;              /* listen beyond loopback without a secret */
    int crc;                    /* payload CRC off the host: SPR_CRC_... */
    size_t eager_bytes;         /* messages up to this are sent without a grant */
    size_t eager_window;        /* unconsumed eager bytes per link */
    size_t priority_bytes;      /* data on a link, from which on what is less urgent waits */
    int determinism;            /* of sums: SPR_DETERMINISM_... */
    int indices;                /* how short positions travel: SPR_INDICES_... */
    char *topology;             /* file of racks (collectives/racks.h); "": none */
    double link_rate;           /* bit/s of this host's link to others; 0: as drivers say */
    int zstd;                   /* level at which chunks are compressed; 0: they are not */
    bool check_finite;          /* inputs must be finite */
    char *model;                /* "", "measure", or constants: collectives/model.h */
    char *trials;               /* "", or what was measured: collectives/trials.h */
    char *decisions;            /* "", or a file to follow: collectives/decisions.h */
    char *decisions_log;        /* "", or a file that is written */
    int workers;                /* threads that help to compute; -1: as CPUs suffice */
    double spin_s;              /* poll this long before yielding the CPU, or sleeping */
    size_t zerocopy_bytes;      /* SEND_ZC from this size, off-host only; inf = never */
    char *trace_file;           /* "" = none */
    char *trace_dir;            /* "" = the flight recorder stays in private memory */
    char *verbs_devices;        /* "" = all, or names, or names with ports */
    int verbs_rails, verbs_qps; /* devices; queue pairs of a link on each */
    int verbs_gid;              /* index; -1 = choose */
    int verbs_slots;            /* large slots per peer */
    int verbs_pkey;             /* index */
    int verbs_sl, verbs_traffic_class;
    int verbs_mtu;     /* enum ibv_mtu; 0 = the port's */
    int verbs_timeout; /* of an acknowledgement: 4.096 us * 2^n */
    int verbs_retry;   /* how often */
    int verbs_connect; /* SPR_CONNECT_... */
    bool verbs_odp;    /* on-demand paging */
    size_t shm_slots;  /* 272 KiB slots per rank beyond one per peer */
};

extern const struct spr_opt spr_options_table[];
extern const size_t spr_options_count;

#endif
