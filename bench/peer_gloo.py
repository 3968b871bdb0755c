#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""peer_gloo.py ELEMENTS: torch.distributed.all_reduce of fp32 over Gloo, for bench/compare.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME.
Each line "WARMUP ITERATIONS SECONDS" on standard input is one measurement: each iteration counts
from a barrier to its slowest rank; fewer of them, at least one, when they would take longer than
SECONDS; then the result of one more is checked. Rank 0 prints a line of JSON. Between the lines
the ranks sleep. The end of the input ends them.
"""

import datetime
import json
import sys
import time

import torch
import torch.distributed as dist

# Whole numbers, so that sums are exact in any order.
PERIOD, OFFSET = 251, 100


def link_bytes():
    """What the interfaces of this network namespace have received and sent, without loopback."""
    sums = [0, 0]
    with open("/proc/self/net/dev", encoding="ascii") as file:
        for line in file.readlines()[2:]:
            name, numbers = line.split(":")
            if name.strip() != "lo":
                sums[0] += int(numbers.split()[0])
                sums[1] += int(numbers.split()[8])
    return torch.tensor(sums, dtype=torch.float64)


class Bench:
    """The vector that is reduced in place, and what it starts from."""

    def __init__(self, elements):
        self.cpu_us = 0.0
        self.ramp = (torch.arange(elements, dtype=torch.int32) % PERIOD).float()
        self.vector = torch.empty(elements)

    def iterate(self):
        """One allreduce; returns its duration on this rank in us."""
        torch.mul(self.ramp, float(dist.get_rank() + 1), out=self.vector).sub_(OFFSET)
        dist.barrier()
        cpu, begin = time.process_time_ns(), time.perf_counter_ns()
        dist.all_reduce(self.vector)
        us = (time.perf_counter_ns() - begin) * 1e-3
        self.cpu_us += (time.process_time_ns() - cpu) * 1e-3
        return us

    def wrong(self):
        """Elements that are not the expected sum, over all ranks."""
        self.iterate()
        size = dist.get_world_size()
        expected = self.ramp * float(size * (size + 1) // 2) - float(OFFSET * size)
        count = (self.vector != expected).sum().reshape(1)
        dist.all_reduce(count)
        return int(count[0])

    def measure(self, warmup, iterations, seconds):
        """One measurement, as a dictionary."""
        last = torch.tensor([[self.iterate() for _ in range(warmup)][-1]], dtype=torch.float64)
        dist.all_reduce(last, op=dist.ReduceOp.MAX)
        iterations = max(1, min(iterations, int(seconds * 1e6 / float(last[0]))))
        self.cpu_us = 0.0
        before = link_bytes()
        times = torch.tensor([self.iterate() for _ in range(iterations)], dtype=torch.float64)
        bytes_each = (link_bytes() - before) / iterations
        cpu_sum = torch.tensor([self.cpu_us / iterations], dtype=torch.float64)
        dist.all_reduce(cpu_sum)
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        dist.all_reduce(bytes_each, op=dist.ReduceOp.MAX)
        return {
            "version": "torch " + torch.__version__,
            "ranks": dist.get_world_size(),
            "elements": self.vector.numel(),
            "wrong": self.wrong(),
            "sent_bytes": round(float(bytes_each[1])),
            "recv_bytes": round(float(bytes_each[0])),
            "cpu_sum_us": round(float(cpu_sum[0]), 3),
            "times_us": [round(us, 3) for us in times.tolist()],
        }


def main():
    """Measures as often as it is told to."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    bench = Bench(int(sys.argv[1]))
    for line in sys.stdin:
        warmup, iterations, seconds = line.split()
        result = bench.measure(int(warmup), int(iterations), float(seconds))
        if dist.get_rank() == 0:
            print(json.dumps(result), flush=True)


main()
