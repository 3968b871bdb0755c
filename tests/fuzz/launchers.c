/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Variables of launchers (transport/bootstrap/identity.c, launchers.c). Input: a byte that is not
 * used, the environment as lines NAME=value.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/bootstrap/identity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct spr_auth_key key;
    struct fuzz_in in = {data, size};
    struct spr_error error = {.rank = -1};
    char job_text[SPR_JOB_TEXT_BYTES];
    struct spr_identity id, twice;
    uint64_t job = 0, again = 1;
    bool pmix;

    fuzz_u8(&in);
    char *text = fuzz_rest_text(&in);
    fuzz_environ_begin(text);
    spr_status status = spr_identity_find(NULL, false, &id, &pmix, job_text, &error);
    if (status != SPR_OK) {
        FUZZ_CHECK((status == SPR_ERR_INVALID || status == SPR_ERR_BOOTSTRAP) && *error.text);
    } else {
        FUZZ_CHECK(!pmix && id.source && id.size >= 1 && id.rank >= 0 && id.rank < id.size);
        FUZZ_CHECK(memchr(id.root, '\0', sizeof id.root) && memchr(id.file, '\0', sizeof id.file));
        FUZZ_CHECK(id.size == 1 || *id.root || *id.file);
        FUZZ_CHECK(memchr(job_text, '\0', sizeof job_text));
        status = spr_identity_job(&key, job_text, &job, &error);
        FUZZ_CHECK(status == SPR_OK || status == SPR_ERR_INVALID);
        /* The same environment is the same job. */
        FUZZ_CHECK(spr_identity_find(NULL, false, &twice, &pmix, job_text, &error) == SPR_OK);
        FUZZ_CHECK(strcmp(id.root, twice.root) == 0 && strcmp(id.file, twice.file) == 0);
        if (status == SPR_OK)
            FUZZ_CHECK(spr_identity_job(&key, job_text, &again, &error) == SPR_OK && job == again);
    }
    fuzz_environ_end();
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"explicit", 0,
         "SPARRING_RANK=1\nSPARRING_SIZE=4\nSPARRING_ROOT=10.0.0.1:4711\n"
         "SPARRING_JOB=0123456789abcdef"},
        {"explicit_file", 0, "SPARRING_RANK=0\nSPARRING_SIZE=2\nSPARRING_FILE=/tmp/x"},
        {"half", 0, "SPARRING_RANK=1"},
        {"torch", 0,
         "RANK=3\nWORLD_SIZE=8\nMASTER_ADDR=fd00::1\nMASTER_PORT=29500\n"
         "TORCHELASTIC_RUN_ID=none"},
        {"open_mpi", 0,
         "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_SIZE=2\n"
         "OMPI_MCA_ess_base_jobid=77"},
        {"mpich", 0, "PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALNRANKS=2\nPMI_PORT=host:3\nPMI_JOBID=4"},
        {"slurm", 0,
         "SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_NUM_NODES=1\n"
         "SLURM_JOB_ID=9\nSLURM_STEP_ID=0"},
        {"contradiction", 0,
         "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=1\nPMI_RANK=0\nPMI_SIZE=3"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
