/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A rank of sparring-run that sums until another rank is lost, waits until its port is active
 * again, and sums in a second communicator of the same processes. Prints a line at each turn.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sparring/sparring.h>

#define PORT "/sys/class/infiniband/rxe0/ports/1/state"
enum { COUNT = 100000, AGAIN = 20 };

static float in[COUNT], out[COUNT];

static spr_comm *create(void)
{
    spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm;

    if (spr_comm_create(&options, &comm) == SPR_OK)
        return comm;
    printf("no communicator: %s\n", spr_last_error(NULL));
    exit(1);
}

/* At most so often; returns what ended it. */
static spr_status sum(spr_comm *comm, int times)
{
    float ranks = (float)spr_comm_size(comm), mine = (float)spr_comm_rank(comm) + 1;
    spr_status status = SPR_OK;

    for (int step = 0; status == SPR_OK && step < times; step++) {
        for (size_t i = 0; i < COUNT; i++)
            in[i] = mine * (float)(i % 1000);
        status = spr_allreduce(comm, in, out, COUNT, SPR_FP32, SPR_SUM, NULL);
        for (size_t i = 0; status == SPR_OK && i < COUNT; i++)
            if (out[i] != ranks * (ranks + 1) / 2 * (float)(i % 1000)) {
                printf("rank %d: a wrong sum\n", spr_comm_rank(comm));
                exit(1);
            }
    }
    return status;
}

static bool port_is_active(void)
{
    char state[32] = "";
    FILE *file = fopen(PORT, "r");

    if (file != NULL && fgets(state, sizeof state, file) == NULL)
        state[0] = '\0';
    if (file != NULL)
        fclose(file);
    return strstr(state, "ACTIVE") != NULL;
}

int main(void)
{
    spr_comm *comm = create();
    int rank = spr_comm_rank(comm);
    spr_status status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("rank %d: sums\n", rank);
    status = sum(comm, 1000000);
    printf("rank %d: %s: %s\n", rank, spr_status_name(status), spr_last_error(comm));
    spr_comm_destroy(comm);
    while (!port_is_active()) /* nobody tells; the test has a limit for all of it */
        usleep(100000);
    comm = create();
    status = sum(comm, AGAIN);
    if (status != SPR_OK)
        printf("rank %d: again: %s\n", rank, spr_last_error(comm));
    else
        printf("rank %d: %d right sums over %s\n", rank, AGAIN, spr_comm_transport(comm, 1 - rank));
    spr_comm_destroy(comm);
    return status != SPR_OK;
}
