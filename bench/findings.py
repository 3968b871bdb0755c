# SPDX-License-Identifier: BSD-2-Clause
"""What the points of the sweep say: the library's choice against the best by name, sparse against
dense, bytes against the least there can be. All from the JSON's dictionaries."""

import math

from cells import bits_per_second, bound_bytes


def size_text(count):
    """Bytes as people write them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count / 1e6:.1f} MB" if count >= 100000 else f"{count} B"


def percent(part):
    """0.0001 as 0.01%."""
    return "dense" if part is None else f"{100 * part:.4g}%"


def place(point):
    """Where it was measured."""
    hosts = f"{point['hosts']}x{point['ranks_per_host']}"
    return f"{hosts} {point['rate']} {size_text(4 * point['elements'])}"


def right(rows):
    """Those without a wrong element."""
    return [row for row in rows if not row.get("wrong")]


def median_us(row):
    """Its time."""
    return row["time_us"]["p50"]


def split(point):
    """The row of `auto`, those of algorithms by name, and the dense one beside them; None, []."""
    dense_point = point["kind"] == "dense"
    rows = right(point["rows"])
    own = [row for row in rows if dense_point or row["collective"] != "allreduce"]
    dense = [row for row in rows if row["collective"] == "allreduce" and not dense_point]
    auto = next((row for row in own if row["algorithm"] == "auto"), None)
    return auto, [row for row in own if row["algorithm"] != "auto"], dense[0] if dense else None


def bound_of(point, row):
    """The least bytes a rank sends, on average, where that is known: of exact sums of lists at
    random positions. Recorded gradients have their large values close together."""
    # A dense sum of lists does not count their union; the others of the point had the same lists.
    together = max((some.get("union_entries") or 0 for some in right(point["rows"])), default=0)
    if point["kind"] != "sparse" or not row.get("entries") or not together:
        return None
    ranks = point["hosts"] * point["ranks_per_host"]
    return bound_bytes(point["elements"], ranks, row["entries"], together)


def limit_us(point):
    """The time that a host's link needs for the bytes of a dense sum, at its nominal rate."""
    hosts = point["hosts"]
    least = 2 * (hosts - 1) / hosts * 4 * point["elements"]
    return least * 8e6 / bits_per_second(point["rate"])


def summary(point):
    """One line about a point; what is unknown is None."""
    auto, named, dense = split(point)
    best = min(named, key=median_us, default=None)
    out = dict.fromkeys(("taken", "auto_us", "best", "best_us", "ratio", "dense_us", "gain",
                         "loss", "cpu_us", "sent", "bound", "over_bound", "of_limit"))
    if best is not None:
        out |= {"best": best["algorithm"], "best_us": median_us(best)}
    if dense is not None:
        out["dense_us"] = median_us(dense)
        out["of_limit"] = limit_us(point) / out["dense_us"]
    if auto is None:
        return out
    out |= {"taken": auto.get("taken"), "auto_us": median_us(auto),
            "cpu_us": auto.get("cpu_sum_us"), "sent": auto.get("sent_bytes"),
            "bound": bound_of(point, auto)}
    if best is not None:
        out["ratio"] = out["auto_us"] / out["best_us"]
    if dense is not None:
        out["gain"] = out["dense_us"] / out["auto_us"]
        out["loss"] = 1 / out["gain"]
    if point["kind"] == "dense":
        out["of_limit"] = limit_us(point) / out["auto_us"]
    if out["bound"] and out["sent"]:
        out["over_bound"] = out["sent"] / out["bound"]
    return out


def by_cell(points, kind="sparse"):
    """{place: its points of a kind, by density}, without those that failed."""
    found = {}
    for point in points:
        if point["kind"] == kind and point["rows"]:
            found.setdefault(place(point), []).append(point)
    return {name: sorted(group, key=lambda point: point["density"] or 0)
            for name, group in found.items()}


def crossover(points):
    """The density from which on the library's sparse sum is slower than its dense one, between two
    that were measured: (density, text). The density is None when it lies outside."""
    known = [(point["density"], summary(point)["gain"]) for point in points]
    known = [(density, gain) for density, gain in known if gain is not None]
    if not known:
        return None, "not measured"
    if known[0][1] < 1:
        return None, f"dense is faster from {percent(known[0][0])} on"
    for (low, gain), (high, less) in zip(known, known[1:]):
        if less < 1:
            part = math.log(gain) / (math.log(gain) - math.log(less))
            density = math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
            return density, f"{percent(density)}, between {percent(low)} and {percent(high)}"
    return None, f"sparse is faster up to {percent(known[-1][0])}"


def auto_ratios(points):
    """(worst, its point, median) of auto over the best by name; None without any."""
    ratios = sorted(((summary(point)["ratio"], i) for i, point in enumerate(points)
                     if summary(point)["ratio"] is not None))
    if not ratios:
        return None
    worst, at = ratios[-1]
    return worst, points[at], ratios[(len(ratios) - 1) // 2][0]


def by_model(named):
    """What the model alone would take of them."""
    known = [row for row in named if row.get("predicted_us") is not None]
    return min(known, key=lambda row: row["predicted_us"], default={}).get("algorithm")


def chosen_well(points, model_alone=False):
    """(how often auto took one that by name is within 10 % of the fastest, of how many)."""
    good = count = 0
    for point in points:
        auto, named, _ = split(point)
        taken = auto.get("taken") if auto else None
        if model_alone and taken:
            taken = by_model(named)
        took = next((row for row in named if row["algorithm"] == taken), None)
        if took is not None:
            count += 1
            good += median_us(took) <= 1.1 * min(median_us(row) for row in named)
    return good, count


def with_choice(points):
    """Those where auto was to have algorithms by name beside it."""
    return [point for point in points if len(point["algorithms"]) > 1]


def repeated_well(points):
    """(how often the algorithm that auto took, and the same by name, were within 10 % of each
    other, of how many): no choice can be known to be right more often than that."""
    good = count = 0
    for point in points:
        auto, named, _ = split(point)
        taken = auto.get("taken") if auto else None
        for took in (row for row in named if row["algorithm"] == taken):
            times = sorted((median_us(auto), median_us(took)))
            count += 1
            good += times[1] <= 1.1 * times[0]
    return good, count


def link_bound(point, row):
    """Does the busiest link work for more than half of the time?"""
    link_us = row.get("link_sent_bytes", 0) * 8e6 / bits_per_second(point["rate"])
    return link_us > median_us(row) / 2


def predicted_well(points):
    """(how many predictions are near, of how many): within 20 % of what was measured where the link
    is the limit, within 35 % elsewhere. Those of compressed sums lack the time to select."""
    good = count = 0
    for point in points:
        for row in right(point["rows"]):
            if row.get("predicted_us") is not None and point["kind"] in ("sparse", "dense"):
                count += 1
                off = abs(median_us(row) / max(row["predicted_us"], 1e-3) - 1)
                good += off <= (0.2 if link_bound(point, row) else 0.35)
    return good, count


def worst(points, name, where=lambda point: True):
    """(the largest of that figure of sparse points, where it is); None, why not."""
    known = [(summary(point)[name], i) for i, point in enumerate(points)
             if point["kind"] == "sparse" and where(point)]
    known = [(value, i) for value, i in known if value is not None]
    if not known:
        return None, "not measured"
    value, i = max(known)
    return value, f"{place(points[i])}, {percent(points[i]['density'])}"


def share(good, count, what):
    """A goal's value and details."""
    return (good / count if count else None), f"{good} of {count} {what}"


def omitted(point):
    """Which algorithms were not measured, and why."""
    words = [f"{name} would take {s:.1f} s" for name, s in point["too_slow_s"].items()]
    words += [f"no memory for {name}" for name in point["no_room"]]
    there = {row["algorithm"] for row in point["rows"]} or set(point["algorithms"])
    return words + [f"{name} is not for this" for name in point["algorithms"] if name not in there]
