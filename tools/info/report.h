/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-info, inside: probes fill a struct report; the printers and the doctor only read it.
 *
 *   system.c    host, limits, memory, kernel modules
 *   files.c     one-line files of /proc and /sys
 *   network.c   interfaces as the library chooses them, TCP, io_uring
 *   rdma.c rdma_memory.c  RDMA devices, ports, GIDs
 *   place.c     NUMA nodes, and which of them a device is near to
 *   choice.c    which transport would link which hosts, and why; talks to the other ranks of a job
 *   doctor.c doctor_rdma.c firewall.c  what commonly goes wrong, with remedies
 *   text.c json.c  printers
 *
 * Unknown or unlimited numbers are UINT64_MAX, unknown texts are "".
 */
#ifndef SPR_TOOLS_INFO_REPORT_H
#define SPR_TOOLS_INFO_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "collectives/choice.h"
#include "tools/info/rdma.h"
#include "transport/tcp/interface.h"
#include "transport/uring/survey.h"

#define INFO_NONE UINT64_MAX
#define INFO_TEXT 320

struct info_limit {
    uint64_t soft, hard; /* INFO_NONE: unlimited */
};

struct info_pool { /* of huge pages */
    uint64_t page_bytes, total, free;
};

enum { INFO_POOLS = 8, INFO_MODULES = 16, INFO_INTERFACES = 64, INFO_NODES = 64, INFO_PLACES = 64 };

struct info_module {
    const char *name, *purpose;
    enum { MODULE_MISSING, MODULE_THERE } state;
};

struct info_system {
    char host[64], kernel[128], machine[65];
    int cpus_online, cpus_usable;
    double cpu_quota; /* 0: none */
    char simd[64];
    struct info_limit memlock, files;
    bool ipc_lock; /* CAP_IPC_LOCK: the memlock limit does not bind */
    uint64_t memory_bytes;
    struct info_pool pools[INFO_POOLS];
    int pool_count;
    char transparent[32];               /* transparent huge pages: always, madvise, never */
    uint64_t shm_bytes, shm_free_bytes; /* of /dev/shm; INFO_NONE: there is none */
    bool shm_writable;
    char memfd_why_not[INFO_TEXT]; /* "": sealed memory files can be made */
    struct info_module modules[INFO_MODULES];
    int module_count;
};

struct info_interface {
    struct spr_tcp_interface at; /* with the reason */
    bool up, chosen;
    uint64_t mtu_bytes, speed_mbit;
    char driver[32];
};

struct info_network {
    struct info_interface interfaces[INFO_INTERFACES];
    int interface_count;
    char why_none[SPR_ERROR_TEXT_BYTES]; /* no interface could be chosen */
    char congestion[32];                 /* what our sockets get */
    char congestion_why_not[SPR_ERROR_TEXT_BYTES];
    char available[200];
};

struct info_uring {
    bool usable;
    char why_not[SPR_ERROR_TEXT_BYTES];
    struct spr_uring_survey survey;
};

struct info_node {
    unsigned number;
    char cpus[128];
    uint64_t memory_bytes;
};

struct info_place { /* a device */
    char name[64];
    char kind[16];
    int node; /* -1: not known */
    char cpus[128];
};

struct info_places {
    char source[64]; /* "hwloc 2.8" (of its interface) or "sysfs" */
    struct info_node nodes[INFO_NODES];
    int node_count;
    struct info_place places[INFO_PLACES];
    int place_count;
};

/* Which transport links pairs of ranks. */
struct info_pair {
    char from[96], to[96];
    uint64_t pairs;                        /* pairs of ranks that this is true of */
    const struct spr_transport_kind *kind; /* of `from`; NULL: none */
    const struct spr_transport_kind *back; /* of `to`: the TCP twins reach each other */
    const char *why_not[SPR_T_COUNT];
    size_t next; /* while pairs are collected */
};

struct info_choice {
    bool in_job;
    int rank, size;
    char source[32];                  /* who says so */
    char asked[128];                  /* SPARRING_TRANSPORTS */
    char error[SPR_ERROR_TEXT_BYTES]; /* no communicator could be made here */
    struct spr_transport_offer offers[SPR_T_COUNT];
    struct info_pair *pairs;
    size_t pair_count;
};

enum finding_state { FINDING_OK, FINDING_NONE, FINDING_ADVICE, FINDING_PROBLEM };
struct finding {
    char check[24];
    int32_t state;
    char text[INFO_TEXT];
    char remedy[INFO_TEXT];
};
enum { FINDINGS = 24 };
struct findings {
    char host[64];
    int32_t rank, count;
    uint64_t mtu_bytes; /* of the interface that is used; must be the same everywhere */
    char interface[16];
    struct finding all[FINDINGS];
};

struct report {
    struct info_system system;
    struct info_network network;
    struct info_uring uring;
    struct info_rdma rdma;
    struct info_places places;
    struct info_choice choice;
    struct findings *doctor; /* one per rank; NULL: not asked for */
    int doctor_count;
};

void probe_system(struct info_system *s);
void probe_network(const struct spr_options *options, bool loopback_only, struct info_network *n);
void probe_uring(const struct spr_options *options, struct info_uring *u);
/* After the network and the RDMA devices: these are what it looks for. */
void probe_places(struct report *r);

/* The job that this process is a rank of, or a job of one. */
struct info_job;
/* The options and the job. Not 0: the exit code, after a line was printed: 2 for wrong options.
 * `transports`: replaces SPARRING_TRANSPORTS unless NULL. */
int job_open(struct info_job **job, const char *transports);
const struct spr_options *job_options(const struct info_job *job);
bool job_loopback_only(const struct info_job *job);
bool job_first(const struct info_job *job);
/* Fill r->choice; and, of all ranks, r->doctor from this one's findings. On rank 0 it is complete.
 */
bool job_choose(struct info_job *job, struct report *r);
bool job_gather(struct info_job *job, const struct findings *mine, struct report *r);
void job_close(struct info_job *job);

/* What is wrong here. */
void doctor_examine(const struct report *r, const struct spr_options *options, struct findings *f);
/* Rank 0, with the findings of all: what differs, but must not. */
void doctor_compare(struct report *r);

void text_report(const struct report *r, FILE *out);
extern const char *const finding_words[]; /* by state */
/* One line per finding. Returns how many problems there are. */
int text_doctor(const struct report *r, FILE *out);
/* False: built without jansson, or it cannot be written; a line was printed. */
bool json_report(const struct report *r, const char *path);

void report_free(struct report *r);

/* files.c */
/* The first line of a small file, without its end; false and "" when it cannot be read. */
bool file_line(char *text, size_t bytes, const char *format, ...) SPR_PRINTF(3, 4);
/* Its first number; INFO_NONE. */
uint64_t file_number(const char *format, ...) SPR_PRINTF(1, 2);
bool file_there(const char *format, ...) SPR_PRINTF(1, 2);
/* Of what a link leads to, the last part of the name. */
bool file_link(char *text, size_t bytes, const char *format, ...) SPR_PRINTF(3, 4);

#endif
