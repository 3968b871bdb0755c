/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Hello, ranks: every rank contributes a vector and all get the average, then once more through a
 * codec that sends only the largest 1 % of the elements.
 *
 *   sparring-run -n 4 -- examples/allreduce
 */
#include <stdio.h>
#include <stdlib.h>

#include <sparring/sparring.h>

enum { ROWS = 256, COLUMNS = 256, ELEMENTS = ROWS * COLUMNS };

static void require(spr_comm *comm, spr_status status)
{
    if (status == SPR_OK)
        return;
    fprintf(stderr, "allreduce: %s: %s\n", spr_status_name(status), spr_last_error(comm));
    spr_comm_destroy(comm); /* tells the others why */
    exit(1);
}

int main(void)
{
    spr_layout layout = {.id = 0, .name = "weights", .rows = ROWS, .columns = COLUMNS};
    spr_stats stats = {.struct_size = sizeof(stats)};
    spr_comm *comm = NULL;
    spr_codec *codec;
    void *memory;

    require(NULL, spr_comm_create(NULL, &comm));
    require(comm, spr_mem_alloc(comm, ELEMENTS * sizeof(float), &memory));
    require(comm, spr_codec_create("topk:ratio=1%", &layout, 1, &codec));

    int rank = spr_comm_rank(comm), size = spr_comm_size(comm);
    float *gradient = memory;
    for (int i = 0; i < ELEMENTS; i++)
        gradient[i] = (float)((i + rank) % 1000);

    require(comm, spr_allreduce(comm, gradient, gradient, ELEMENTS, SPR_FP32, SPR_AVG, NULL));
    require(comm, spr_comm_stats(comm, &stats));
    uint64_t dense = stats.sent_bytes;

    require(comm, spr_compressed_allreduce(comm, codec, gradient, SPR_AVG, NULL));
    require(comm, spr_comm_stats(comm, &stats));
    printf("rank %d of %d sent %llu bytes dense, %llu compressed\n", rank, size,
           (unsigned long long)dense, (unsigned long long)(stats.sent_bytes - dense));

    spr_codec_destroy(codec);
    spr_mem_free(comm, memory);
    spr_comm_destroy(comm);
    return 0;
}
