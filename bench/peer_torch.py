#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""peer_torch.py FILE: top-k in PyTorch and NumPy, for bench/codec.

FILE is raw fp32. Each line "DENSITY OPERATION" on standard input is one run, whose microseconds
are printed:

  topk        torch.topk of magnitudes that are there already: (magnitudes, indices)
  plugin      what a plug-in runs: magnitudes, torch.topk, the values at the indices
  feedback    r += g, then the same of r, then r = 0 where something was selected
  partition   numpy.argpartition of the magnitudes, then the values
  check       not timed: the sum of the magnitudes that topk selects

One thread: torch.topk of one vector uses no more.
"""

import math
import sys
import time

import numpy
import torch


class Peer:
    """The vector, and the operations."""

    def __init__(self, path):
        self.array = numpy.fromfile(path, dtype=numpy.float32)
        self.gradient = torch.from_numpy(self.array)
        self.magnitude = self.gradient.abs()
        self.before = (0, None)  # k, and the residual before a step
        self.residual = torch.zeros_like(self.gradient)

    def count(self, density):
        """As sparring-codec counts."""
        return min(max(1, math.ceil(density * len(self.array))), len(self.array))

    def prepare(self, k):
        """Not timed. The residual is what two steps have left, as sparring-codec has it."""
        if self.before[0] != k:
            self.residual.zero_()
            for _ in range(2):
                self.feedback(k)
            self.before = (k, self.residual.clone())
        self.residual.copy_(self.before[1])

    def topk(self, k):
        """Of magnitudes."""
        return torch.topk(self.magnitude, k, sorted=False)

    def plugin(self, k):
        """Indices and values of a gradient."""
        _, index = torch.topk(self.gradient.abs(), k, sorted=False)
        return self.gradient[index], index

    def feedback(self, k):
        """A step of error feedback."""
        self.residual += self.gradient
        _, index = torch.topk(self.residual.abs(), k, sorted=False)
        value = self.residual[index]
        self.residual[index] = 0
        return value, index

    def partition(self, k):
        """NumPy's."""
        index = numpy.argpartition(numpy.abs(self.array), len(self.array) - k)[-k:]
        return self.array[index], index

    def check(self, density):
        """The sum of what is selected."""
        return float(self.topk(self.count(density))[0].double().sum())

    def run(self, density, name):
        """Microseconds."""
        operation = {"topk": self.topk, "plugin": self.plugin, "feedback": self.feedback,
                     "partition": self.partition}[name]
        if name == "feedback":
            self.prepare(self.count(density))
        begin = time.perf_counter()
        operation(self.count(density))
        return (time.perf_counter() - begin) * 1e6


def main():
    """Line by line."""
    torch.set_num_threads(1)
    peer = Peer(sys.argv[1])
    for line in sys.stdin:
        density, name = line.split()
        answer = peer.check if name == "check" else lambda d, n=name: peer.run(d, n)
        print(f"{answer(float(density)):.9g}", flush=True)


if __name__ == "__main__":
    main()
