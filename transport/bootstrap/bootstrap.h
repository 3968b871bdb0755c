/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bootstrap: who is in the job, and the first exchange of addresses.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_BOOTSTRAP_H
#define SPR_TRANSPORT_BOOTSTRAP_BOOTSTRAP_H

#include <sparring/comm.h>

#include "base/error.h"
#include "transport/bootstrap/auth.h"
#include "transport/options.h"

/* Who this rank is, and who said so. */
struct spr_identity {
    int rank, size;
    const char *source; /* "SPARRING_RANK", "torch", "pmix", "Open MPI", "PMI", "Slurm", "options",
                           "single" */
    char root[300];     /* "host:port", or "" */
    char file[300];     /* shared file, or "" */
};

/*
 * Find identity and bootstrap from the options and the environment (first complete set wins:
 * explicit options, SPARRING_*, torch, PMIx, Open MPI, PMI, Slurm, else a single rank), load the
 * job's secret (options, SPARRING_SECRET_FD, SPARRING_SECRET_FILE) into *key and open the
 * bootstrap. Logs one info line that says which was taken. key->epoch and key->config_hash are the
 * caller's (0, or equal on all ranks), the rest of *key is filled in; wipe it after use. *boot is
 * closed by the caller with boot->close(boot->ctx) unless it is options->bootstrap. deadline_ns is
 * monotonic. Errors: INVALID, BOOTSTRAP, SYSTEM; text in *error.
 */
spr_status spr_bootstrap_open(const struct spr_comm_options *options,
                              const struct spr_options *opts, uint64_t deadline_ns,
                              struct spr_identity *identity, struct spr_auth_key *key,
                              spr_bootstrap *boot, struct spr_error *error);

/* Run one allgather to its end; polls with short sleeps. Errors: as the bootstrap's; BOOTSTRAP at
 * the deadline, with the list of missing ranks when the bootstrap knows it. */
spr_status spr_bootstrap_allgather(spr_bootstrap *boot, const void *in, void *out, size_t bytes,
                                   uint64_t deadline_ns, struct spr_error *error);

/* The same in two steps: begin, then await until it is SPR_OK or an error. IN_PROGRESS: until_ns
 * has come. */
spr_status spr_bootstrap_begin(spr_bootstrap *boot, const void *in, void *out, size_t bytes,
                               void **request, struct spr_error *error);
spr_status spr_bootstrap_await(spr_bootstrap *boot, void *request, uint64_t until_ns,
                               struct spr_error *error);
/* test() of a bootstrap whose allgather() returns when it is complete. */
spr_status spr_bootstrap_ended(void *ctx, void *request);

/*
 * Built-in ones. The key is copied. Rank 0 listens at root, "host:port", "[IPv6]:port" or
 * "unix:name" (an abstract socket, on one host), or on any port that it then writes to the file at
 * path; all others connect. loopback_only: refuse a root that others can reach. A failure of one
 * rank, and the list of the missing, is told to all.
 */
spr_status spr_bootstrap_tcp(const char *root, const struct spr_auth_key *key, bool loopback_only,
                             uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error);
spr_status spr_bootstrap_file(const char *path, const struct spr_auth_key *key,
                              uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error);
spr_status spr_bootstrap_single(spr_bootstrap *boot);
spr_status spr_bootstrap_pmix(spr_bootstrap *boot, struct spr_identity *identity,
                              struct spr_error *error);

#endif
