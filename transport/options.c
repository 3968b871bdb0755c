/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/options.h"

static const char *const progress_choices[] = {"thread", "caller", NULL};
static const char *const crc_choices[] = {"no", "yes", "auto", NULL};
static const char *const determinism_choices[] = {"run", "canonical", "off", NULL};
static const char *const indices_choices[] = {"auto", "plain", "bitpack", "eliasfano", NULL};
static const char *const connect_choices[] = {"auto", "cm", "socket", NULL};

#ifndef SPR_PKGLIBEXECDIR
#define SPR_PKGLIBEXECDIR "/usr/local/libexec/sparring"
#endif

#define FIELD(name) offsetof(struct spr_options, name)

const struct spr_opt spr_options_table[] = {
    {"transports", "auto",
     "transports that may be used: auto, or a list of shm, verbs, uring, epoll", SPR_OPT_STRING,
     FIELD(transports), NULL, 0, 0},
    {"interface", "", "network interface or address for TCP; a list is tried in order",
     SPR_OPT_STRING, FIELD(interface_name), NULL, 0, 0},
    {"congestion", "", "TCP congestion control for our sockets; empty leaves the system's",
     SPR_OPT_STRING, FIELD(congestion), NULL, 0, 0},
    {"progress", "thread", "who moves bytes when nobody waits", SPR_OPT_ENUM, FIELD(progress),
     progress_choices, 0, 0},
    {"timeout", "600", "deadline of an operation", SPR_OPT_TIME, FIELD(timeout_s), NULL, 1e-3, 1e6},
    {"init_timeout", "30", "deadline of creating a communicator", SPR_OPT_TIME,
     FIELD(init_timeout_s), NULL, 1e-3, 1e6},
    {"warn", "10", "warn with names when an operation takes longer", SPR_OPT_TIME, FIELD(warn_s),
     NULL, 1e-3, 1e6},
    {"insecure", "no", "listen beyond loopback although the job has no secret", SPR_OPT_BOOL,
     FIELD(insecure), NULL, 0, 0},
    {"crc", "auto", "checksum of every payload; auto: on TCP between hosts only", SPR_OPT_ENUM,
     FIELD(crc), crc_choices, 0, 0},
    {"determinism", "run",
     "run: bits of a sum may depend on who shares a host; canonical: not; off: on timing, too",
     SPR_OPT_ENUM, FIELD(determinism), determinism_choices, 0, 0},
    {"model", "",
     "how algorithms are chosen: measure, or constants of sparring-tune; empty: by rules",
     SPR_OPT_STRING, FIELD(model), NULL, 0, 0},
    {"indices", "auto", "how short positions of sparse lists travel; auto: as the links are worth",
     SPR_OPT_ENUM, FIELD(indices), indices_choices, 0, 0},
    {"check_finite", "no", "fail when an input has a NaN or an infinity, with its rank and index",
     SPR_OPT_BOOL, FIELD(check_finite), NULL, 0, 0},
    {"eager", "8K", "messages up to this size are sent without waiting for a grant", SPR_OPT_SIZE,
     FIELD(eager_bytes), NULL, 0, 65536},
    {"eager_window", "256K", "eager bytes under way per link", SPR_OPT_SIZE, FIELD(eager_window),
     NULL, 65536, 1 << 30},
    {"priority_bytes", "256K", "data on a link, from which on what is less urgent waits",
     SPR_OPT_SIZE, FIELD(priority_bytes), NULL, 1, 1 << 30},
    {"spin", "50us", "poll this long before sleeping, when the CPUs suffice", SPR_OPT_TIME,
     FIELD(spin_s), NULL, 0, 10},
    {"zerocopy", "inf", "zero-copy send from this size, between hosts only", SPR_OPT_SIZE,
     FIELD(zerocopy_bytes), NULL, 0, 0},
    {"trace_file", "", "write the last events here when the communicator fails; %r is the rank",
     SPR_OPT_STRING, FIELD(trace_file), NULL, 0, 0},
    {"trace_dir", "",
     "keep the last events of each rank in files of this directory, as they happen", SPR_OPT_STRING,
     FIELD(trace_dir), NULL, 0, 0},
    {"suspect", "250ms", "say so when a rank gives no heartbeat for this long", SPR_OPT_TIME,
     FIELD(suspect_s), NULL, 0.03, 1e6},
    {"expel", "10", "expel a rank that gives no heartbeat for this long", SPR_OPT_TIME,
     FIELD(expel_s), NULL, 0.03, 1e6},
    {"guardian", SPR_PKGLIBEXECDIR "/sparring-guardian",
     "program that tells other hosts of the end of a rank; empty: none", SPR_OPT_STRING,
     FIELD(guardian), NULL, 0, 0},
    {"shm_slots", "24", "272 KiB slots of shared memory per rank, beyond one per peer",
     SPR_OPT_SIZE, FIELD(shm_slots), NULL, 1, 65536},
    {"verbs_devices", "", "RDMA devices that may be used: names, or name:port; empty: all",
     SPR_OPT_STRING, FIELD(verbs_devices), NULL, 0, 0},
    {"verbs_rails", "1", "RDMA devices that are used at the same time, at most", SPR_OPT_INT,
     FIELD(verbs_rails), NULL, 1, 4},
    {"verbs_qps", "1", "queue pairs per peer on each RDMA device; 4 in all", SPR_OPT_INT,
     FIELD(verbs_qps), NULL, 1, 4},
    {"verbs_gid", "-1", "index of the GID of the RDMA device; -1: choose", SPR_OPT_INT,
     FIELD(verbs_gid), NULL, -1, 1023},
    {"verbs_slots", "4", "272 KiB slots of registered memory per peer", SPR_OPT_INT,
     FIELD(verbs_slots), NULL, 1, 7},
    {"verbs_timeout", "17", "wait 4.096 us * 2^N for an acknowledgement of an RDMA write",
     SPR_OPT_INT, FIELD(verbs_timeout), NULL, 8, 24},
    {"verbs_retry", "6", "how often an RDMA write is tried again", SPR_OPT_INT, FIELD(verbs_retry),
     NULL, 0, 6},
    {"verbs_traffic_class", "0", "traffic class of RDMA packets", SPR_OPT_INT,
     FIELD(verbs_traffic_class), NULL, 0, 255},
    {"verbs_sl", "0", "service level of RDMA packets", SPR_OPT_INT, FIELD(verbs_sl), NULL, 0, 15},
    {"verbs_pkey", "0", "index of the partition key", SPR_OPT_INT, FIELD(verbs_pkey), NULL, 0,
     65535},
    {"verbs_connect", "auto", "how queue pairs are connected: by rdma_cm, or over the TCP socket",
     SPR_OPT_ENUM, FIELD(verbs_connect), connect_choices, 0, 0},
    {"verbs_odp", "no", "do not pin buckets, where the RDMA device can page on demand",
     SPR_OPT_BOOL, FIELD(verbs_odp), NULL, 0, 0},
};
const size_t spr_options_count = SPR_ARRAY_LEN(spr_options_table);
