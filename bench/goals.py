# SPDX-License-Identifier: BSD-2-Clause
"""What is wanted, and what the rows and the points of the sweep say of it."""

import statistics

import plan
from findings import chosen_well, predicted_well, share, with_choice, worst

GOAL_HOSTS, GOAL_RATE, GOAL_ELEMENTS = 8, "1gbit", 25557032


def best(rows):
    """The fastest right result of another library among these, or None."""
    peers = [row for row in rows if row.peer and row.ok]
    return min(peers, key=lambda row: row.sample.p50, default=None)


def find(rows, name):
    """The row of that name, when it was measured and right."""
    return next((row for row in rows if row.name == name and row.ok), None)


def median_ratio(rows, name, other):
    """The first's time over the second's, median of their rounds, None = unknown; details."""
    a, b = find(rows, name), find(rows, other)
    if a is None or b is None:
        return None, f"{other if a else name} was not measured"
    ratio, least, most, count = plan.pair_ratio(a, b)
    return ratio, f"{count} pairs, {least:.3f} to {most:.3f}"


def middle(rows, name, figure):
    """The median of a figure of the row's rounds, None = unknown; details."""
    row = find(rows, name)
    values = [getattr(sample, figure) for sample in row.samples] if row else []
    values = [value for value in values if value is not None]
    if not values:
        return None, f"{name} was not measured"
    return statistics.median(values), f"{name}, {len(values)} rounds, {min(values):.3f} to " \
        f"{max(values):.3f}"


def over_best(rows, name):
    """The time of the best dense peer on the same network over the row's."""
    row = find(rows, name)
    if row is None:
        return None, f"{name} was not measured"
    reference = best(other for other in rows if other.part == row.part)
    if reference is None:
        return None, "no dense peer was measured"
    return reference.sample.p50 / row.sample.p50, f"against {reference.name}"


def over_best_flat(rows, name):
    """The time of the fastest algorithm without levels over the row's."""
    flat = [find(rows, f"levels-sparse-{algorithm}") for algorithm in plan.FLAT]
    if not all(flat):
        return None, "not all of them were measured"
    fastest = min(flat, key=lambda row: row.sample.p50).name
    ratio, detail = median_ratio(rows, fastest, name)
    return ratio, f"{fastest}, {detail}"


def over_best_unselected(rows, name):
    """As over_best(), of the row's time without that for selection, round by round: the one is a
    median of iterations, the other a mean, which may be longer."""
    row, (value, why) = find(rows, name), over_best(rows, name)
    if value is None or not all(s.phases for s in row.samples):
        return None, why
    rest_us = statistics.median(s.p50 - s.phases["select"] for s in row.samples)
    if rest_us <= 0:
        return None, "the rest is lost in the noise of the selection"
    return value * row.sample.p50 / rest_us, why


def over_limit(rows, name, passes):
    """Time over what link or CPUs need at least: the least bytes at iperf3's rate; what TCP takes
    for a byte, and the writing of so many vectors by each rank, on the CPUs of all."""
    row, limit = find(rows, name), find(rows, "limit")
    if row is None or limit is None or not row.sample.bound or not limit.sample.byte_us:
        return None, f"{name} or the limit was not measured"
    s = limit.sample
    link_us = row.sample.bound * s.p50 / s.sent
    cpu_us = row.sample.bound * s.byte_us + passes * s.pass_us
    return row.sample.p50 / max(link_us, cpu_us), \
        f"link {link_us / 1e3:.1f} ms, CPUs {cpu_us / 1e3:.1f} ms"


def is_main(point):
    """Is it that of the goals: 102 MB on 8 hosts?"""
    return (point["hosts"], point["ranks_per_host"], point["elements"]) == (
        GOAL_HOSTS, 1, GOAL_ELEMENTS)


def goals(rows, points):
    """Tuples: what, what is wanted, at most or at least, reached (None = unknown), details."""
    limit, dense = find(rows, "limit"), find(rows, "dense")
    chosen = f"points, of {len(with_choice(points))} planned"
    of_limit = dense.sample.p50 / limit.sample.p50 if limit and dense else None
    table = [
        ("dense allreduce: time over Gloo's", "<=", 1.02, *median_ratio(rows, "dense", "gloo")),
        ("dense allreduce: time over the limit's", "<=", 1.04, of_limit,
         limit.sample.detail if limit else "limit was not measured"),
        ("sparse_allreduce 0.1 %, list result: times faster than the best dense peer", ">=", 60,
         *over_best(rows, "sparse-0.1-list")),
        ("sparse_allreduce 0.1 %, dense result: same", ">=", 40, *over_best(rows, "sparse-0.1")),
        ("sparse_allreduce 1 %, dense result: same", ">=", 12, *over_best(rows, "sparse-1")),
        ("sparse_allreduce 10 %, dense result: same", ">=", 2.2, *over_best(rows, "sparse-10")),
        ("compressed_allreduce 1 %, all included, lossy: same", ">=", 6.5,
         *over_best(rows, "compressed-1")),
        ("2 ranks, shared memory: times faster than Open MPI", ">=", 1.3,
         *median_ratio(rows, "local-openmpi-shm", "local-shm")),
        ("2 ranks, loopback TCP: times faster than Open MPI", ">=", 1.3,
         *median_ratio(rows, "local-openmpi-tcp", "local-tcp")),
        ("2 ranks, loopback TCP: times faster than Gloo", ">=", 1.3,
         *median_ratio(rows, "local-gloo", "local-tcp")),
        ("2 ranks, 4 KiB, shared memory: time over Open MPI's", "<=", 1,
         *median_ratio(rows, "latency-shm", "latency-openmpi")),
        ("sweep: bytes of an exact sum over the least, 102 MB on 8 hosts", "<=", 1.2,
         *worst(points, "over_bound", is_main)),
        ("sweep: sparse_allreduce, time over that of the dense sum", "<=", 1.03,
         *worst(points, "loss")),
        ("sweep: algorithms taken, of those tried, that are within 10 % of the best", ">=", 0.95,
         *share(*chosen_well(points), chosen)),
        ("sweep: algorithms that the model alone would take: same", ">=", 0.95,
         *share(*chosen_well(points, model_alone=True), chosen)),
        ("sweep: predictions within 20 %, where the link is no limit 35 %", ">=", 0.9,
         *share(*predicted_well(points), "rows")),
        ("compressed_allreduce 1 %, fp16 values, all included: over the best dense peer", ">=", 8,
         *over_best(rows, "fp16-compressed-1")),
        ("compressed_allreduce 0.1 %, all included: over the best dense peer", ">=", 10,
         *over_best(rows, "compressed-0.1")),
        ("bounded union, 1 %, fp16 values, all but the selection: over the best dense peer", ">=",
         30, *over_best_unselected(rows, "bounded-1")),
        ("sparse_allreduce 0.1 %, list result: time over the limit's", "<=", 1.25,
         *over_limit(rows, "sparse-0.1-list", 0)),
        ("sparse_allreduce 0.1 %, dense result: time over the limit's", "<=", 1.25,
         *over_limit(rows, "sparse-0.1", 1)),
        ("sparse_allreduce 1 %, dense result: time over the limit's", "<=", 1.25,
         *over_limit(rows, "sparse-1", 1)),
        ("sparse_allreduce 10 %, dense result: time over the limit's", "<=", 1.25,
         *over_limit(rows, "sparse-10", 1)),
        ("sparse_allreduce 0.1 %: a dense ring's bytes over those sent", ">=", 150,
         *middle(rows, "sparse-0.1", "ratio")),
        ("sparse_allreduce 1 %: a dense ring's bytes over those sent", ">=", 18,
         *middle(rows, "sparse-1", "ratio")),
        ("sparse_allreduce 10 %: a dense ring's bytes over those sent", ">=", 2.6,
         *middle(rows, "sparse-10", "ratio")),
        ("sparse_allreduce 1 %, clustered: bytes over the least for random positions", "<=", 1.25,
         *middle(rows, "clustered-sparse-1", "over_bound")),
        ("4 hosts of 2 ranks: sparse hierarchical, times faster than direct", ">=", 1.6,
         *median_ratio(rows, "levels-sparse-direct", "levels-sparse-hierarchical")),
        ("4 hosts of 2 ranks: sparse hierarchical, times faster than the best flat one", ">=", 1,
         *over_best_flat(rows, "levels-sparse-hierarchical")),
        ("2 hosts of a CPU, 250 Mbit/s: overlap of 8 buckets", ">=", 0.8,
         *middle(rows, "overlap-compressed", "overlap")),
        ("2 hosts of a CPU, 250 Mbit/s: 8 buckets, times faster than one at a time", ">=", 1.35,
         *middle(rows, "overlap-compressed", "gain")),
        ("2 hosts, 10 Gbit/s: compressed_allreduce 1 %, over the best dense peer", ">=", 2,
         *over_best(rows, "fast-compressed-1")),
    ]
    return [{"goal": what, "relation": relation, "wanted": wanted, "reached": value,
             "yes": None if value is None else
             (value <= wanted if relation == "<=" else value >= wanted), "detail": detail}
            for what, relation, wanted, value, detail in table]
