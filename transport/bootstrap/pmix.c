/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PMIx: mpirun, prterun and `srun --mpi=pmix` carry the data. The library is opened at run time, so
 * that nobody needs it to be installed. An allgather is Put, Commit, Fence with data collection,
 * and then a Get per rank, which finds everything on this host.
 */
#include "transport/bootstrap/pmix.h"

#include "transport/bootstrap/bootstrap.h"

#ifdef HAVE_PMIX

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its inline functions are not clean. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <pmix.h>
#pragma GCC diagnostic pop

#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#define LIBRARY "libpmix.so.2"

/* The functions of the library that are used. */
static struct {
    pmix_status_t (*init)(pmix_proc_t *proc, pmix_info_t info[], size_t n);
    pmix_status_t (*finalize)(const pmix_info_t info[], size_t n);
    pmix_status_t (*put)(pmix_scope_t scope, const char key[], pmix_value_t *value);
    pmix_status_t (*commit)(void);
    pmix_status_t (*fence_nb)(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, pmix_op_cbfunc_t done, void *ctx);
    pmix_status_t (*get)(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                         size_t ninfo, pmix_value_t **value);
    const char *(*error_string)(pmix_status_t status);
} lib;

static const struct {
    const char *name;
    void *to;
} symbols[] = {
    {"PMIx_Init", &lib.init},
    {"PMIx_Finalize", &lib.finalize},
    {"PMIx_Put", &lib.put},
    {"PMIx_Commit", &lib.commit},
    {"PMIx_Fence_nb", &lib.fence_nb},
    {"PMIx_Get", &lib.get},
    {"PMIx_Error_string", &lib.error_string},
};

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static bool loaded;
static char load_error[200];

static void load(void)
{
    /* Never closed: it has threads. Its plug-ins look for its symbols among the global ones. */
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);

    if (!handle) {
        snprintf(load_error, sizeof(load_error), "%s", dlerror());
        return;
    }
    for (size_t i = 0; i < SPR_ARRAY_LEN(symbols); i++) {
        void *symbol = dlsym(handle, symbols[i].name);

        if (!symbol) {
            snprintf(load_error, sizeof(load_error), LIBRARY " has no %s", symbols[i].name);
            return;
        }
        *(void **)symbols[i].to = symbol;
    }
    loaded = true;
}

bool spr_pmix_available(void)
{
    pthread_once(&load_once, load);
    if (!loaded)
        spr_info(SPR_SUB_INIT, "this job was started with PMIx, but: %s", load_error);
    return loaded;
}

/* ---- Once per process ---- */

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static pid_t owner;
static pmix_proc_t self;
static atomic_uint exchanges; /* allgathers so far: their keys must never be the same */

/* Stays until the process ends: after PMIx_Finalize not every server lets a process in again, and
 * one that ends without it counts as failed. */
__attribute__((destructor)) static void finalize(void)
{
    if (initialised && owner == getpid())
        lib.finalize(NULL, 0);
    initialised = false;
}

static spr_status initialise(struct spr_error *error)
{
    pmix_status_t result = PMIX_SUCCESS;

    pthread_mutex_lock(&init_lock);
    if (!initialised)
        result = lib.init(&self, NULL, 0);
    if (result == PMIX_SUCCESS && !initialised) {
        owner = getpid();
        initialised = true;
    }
    pthread_mutex_unlock(&init_lock);
    if (result == PMIX_SUCCESS)
        return SPR_OK;
    return spr_error_set(error, SPR_ERR_BOOTSTRAP, -1, "PMIx_Init: %s", lib.error_string(result));
}

static pmix_proc_t process(pmix_rank_t rank)
{
    pmix_proc_t proc = self;

    proc.rank = rank;
    return proc;
}

static void free_value(pmix_value_t *value)
{
    if (value && value->type == PMIX_BYTE_OBJECT)
        free(value->data.bo.bytes); /* allocated by the library */
    free(value);
}

/* ---- The bootstrap ---- */

enum { FENCE_RUNS, FENCE_DONE, FENCE_ABANDONED };

/* Of its own: the library may call back after the bootstrap has been closed. */
struct fence {
    atomic_int state;
    pmix_status_t result;
};

struct job {
    int rank, size;
    unsigned int exchange;
    void *out;
    size_t bytes;
    struct fence *fence; /* NULL: none runs */
    struct spr_error error;
};

/* On a thread of the library. Whoever comes second frees. */
static void fence_done(pmix_status_t result, void *ctx)
{
    struct fence *fence = ctx;

    fence->result = result;
    if (atomic_exchange(&fence->state, FENCE_DONE) == FENCE_ABANDONED)
        spr_free(fence);
}

static void fence_leave(struct job *job)
{
    if (job->fence && atomic_exchange(&job->fence->state, FENCE_ABANDONED) == FENCE_DONE)
        spr_free(job->fence);
    job->fence = NULL;
}

static spr_status failed(struct job *job, const char *call, int rank, pmix_status_t result)
{
    return spr_error_set(&job->error, SPR_ERR_BOOTSTRAP, rank, "%s: %s", call,
                         lib.error_string(result));
}

static void make_key(char key[PMIX_MAX_KEYLEN + 1], unsigned int exchange, int rank)
{
    snprintf(key, PMIX_MAX_KEYLEN + 1, "spr.%u.%d", exchange, rank);
}

static spr_status put(struct job *job, const void *in)
{
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    /* The library's struct has no const; Put copies. */
    union {
        const void *in;
        char *out;
    } data = {.in = in};
    pmix_status_t result;

    make_key(key, job->exchange, job->rank);
    value.data.bo.bytes = data.out;
    value.data.bo.size = job->bytes;
    result = lib.put(PMIX_GLOBAL, key, &value);
    if (result != PMIX_SUCCESS)
        return failed(job, "PMIx_Put", -1, result);
    result = lib.commit();
    return result == PMIX_SUCCESS ? SPR_OK : failed(job, "PMIx_Commit", -1, result);
}

static spr_status pmix_allgather(void *ctx, const void *in, void *out, size_t bytes, void **request)
{
    struct job *job = ctx;
    pmix_info_t collect = {.key = PMIX_COLLECT_DATA, .value = {.type = PMIX_BOOL}};
    pmix_status_t result;
    spr_status status;

    collect.value.data.flag = true;
    job->exchange = atomic_fetch_add(&exchanges, 1);
    job->out = out;
    job->bytes = bytes;
    status = put(job, in);
    if (status != SPR_OK)
        return status;
    job->fence = spr_calloc(1, sizeof(*job->fence));
    if (!job->fence)
        return spr_error_set(&job->error, SPR_ERR_NOMEM, -1, "no memory for a fence");
    result = lib.fence_nb(NULL, 0, &collect, 1, fence_done, job->fence);
    if (result == PMIX_OPERATION_SUCCEEDED) {
        fence_done(PMIX_SUCCESS, job->fence);
    } else if (result != PMIX_SUCCESS) {
        spr_free(job->fence);
        job->fence = NULL;
        return failed(job, "PMIx_Fence", -1, result);
    }
    *request = job;
    return SPR_OK;
}

static spr_status get(struct job *job, int rank)
{
    pmix_proc_t proc = process((pmix_rank_t)rank);
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_value_t *value = NULL;
    spr_status status = SPR_OK;
    pmix_status_t result;

    make_key(key, job->exchange, rank);
    result = lib.get(&proc, key, NULL, 0, &value);
    if (result != PMIX_SUCCESS || !value)
        return failed(job, "PMIx_Get", rank, result);
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != job->bytes)
        status = spr_error_set(&job->error, SPR_ERR_MISMATCH, rank,
                               "rank %d exchanges %zu bytes, rank %d %zu: their builds or settings "
                               "differ",
                               rank, value->type == PMIX_BYTE_OBJECT ? value->data.bo.size : 0,
                               job->rank, job->bytes);
    else if (job->bytes > 0)
        memcpy((char *)job->out + (size_t)rank * job->bytes, value->data.bo.bytes, job->bytes);
    free_value(value);
    return status;
}

static spr_status pmix_test(void *ctx, void *request)
{
    struct job *job = ctx;
    spr_status status = SPR_OK;
    pmix_status_t result;

    (void)request;
    if (atomic_load(&job->fence->state) == FENCE_RUNS)
        return SPR_IN_PROGRESS;
    result = job->fence->result;
    fence_leave(job);
    if (result != PMIX_SUCCESS)
        return failed(job, "PMIx_Fence", -1, result);
    for (int rank = 0; rank < job->size && status == SPR_OK; rank++)
        status = get(job, rank);
    return status;
}

static const char *pmix_error(void *ctx)
{
    struct job *job = ctx;

    if (job->error.status != SPR_OK)
        return job->error.text;
    return job->fence ? "not all ranks have reached the PMIx fence" : NULL;
}

static void pmix_close(void *ctx)
{
    struct job *job = ctx;

    fence_leave(job);
    spr_free(job);
}

static spr_status job_size(int *size, struct spr_error *error)
{
    pmix_proc_t all = process(PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;
    pmix_status_t result = lib.get(&all, PMIX_JOB_SIZE, NULL, 0, &value);

    if (result != PMIX_SUCCESS || !value)
        return spr_error_set(error, SPR_ERR_BOOTSTRAP, -1, "PMIx does not know the job's size: %s",
                             lib.error_string(result));
    *size = value->type == PMIX_UINT32 ? (int)value->data.uint32 : 0;
    free_value(value);
    if (*size > 0 && self.rank < (pmix_rank_t)*size)
        return SPR_OK;
    return spr_error_set(error, SPR_ERR_BOOTSTRAP, -1, "PMIx says rank %u of %d", self.rank, *size);
}

spr_status spr_bootstrap_pmix(spr_bootstrap *boot, struct spr_identity *identity,
                              struct spr_error *error)
{
    struct job *job;
    spr_status status;
    int size = 0;

    if (!spr_pmix_available())
        return spr_error_set(error, SPR_ERR_UNSUPPORTED, -1, "PMIx: %s", load_error);
    status = initialise(error);
    if (status == SPR_OK)
        status = job_size(&size, error);
    if (status != SPR_OK)
        return status;
    job = spr_calloc(1, sizeof(*job));
    if (!job)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the bootstrap");
    job->rank = identity->rank = (int)self.rank;
    job->size = identity->size = size;
    identity->source = "pmix";
    *boot = (spr_bootstrap){
        .struct_size = sizeof(*boot),
        .ctx = job,
        .rank = self.rank,
        .size = (uint32_t)size,
        .allgather = pmix_allgather,
        .test = pmix_test,
        .close = pmix_close,
        .error = pmix_error,
    };
    return SPR_OK;
}

#else /* without pmix.h */

bool spr_pmix_available(void) { return false; }

spr_status spr_bootstrap_pmix(spr_bootstrap *boot, struct spr_identity *identity,
                              struct spr_error *error)
{
    (void)boot;
    (void)identity;
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, -1, "this build knows no PMIx");
}

#endif
