# SPDX-License-Identifier: BSD-2-Clause
"""What is slower or faster than in an earlier run, by more than the noise of both."""

import plan
import sweep

LEAST = 0.1  # less is no proof on a shared machine
ROUNDS = 3  # from so many on their medians tell the noise, before the iterations do
MANY = 10
SAME = ("hosts", "rate", "elements", "cpus", "kernel", "congestion", "settings")


def middle(times):
    """The upper median."""
    return sorted(times)[len(times) // 2]


def row_times(data):
    """{name: (peer, us, noise as a part of that)} of the rows, and of each row of the points."""
    times = {}
    for row in plan.of_json(data):
        if row.ok:
            s, rounds = row.sample, [sample.p50 for sample in row.samples]
            spread = max(rounds) - min(rounds) if len(rounds) >= ROUNDS else s.most - s.least
            times[row.name] = (row.kind != "sparring", s.p50, spread / s.p50)
    for point in (data.get("sweep") or {}).get("points", []):
        for row in point["rows"]:
            if not row.get("wrong"):
                name = f"{sweep.title(point)}, {row['collective']} {row['algorithm']}"
                us = row["time_us"]
                times[name] = (False, us["p50"], (us["max"] - us["min"]) / us["p50"])
    return times


def changes(old, new):
    """[(name, peer, ratio of the times, noise)] of rows that both have, new over old; and the names
    of those that only the old one has."""
    before, after = row_times(old), row_times(new)
    both = [(name, peer, us / before[name][1], max(LEAST, noise + before[name][2]))
            for name, (peer, us, noise) in after.items() if name in before]
    return both, [name for name in before if name not in after]


def print_changes(old, new, path):
    """Says what changed. Returns whether a row of Sparring's is slower by more than the noise."""
    print(f"#\n# Against {path}: time over the earlier one, for rows that changed by more than the "
          "noise")
    for key in SAME:
        if old.get(key) != new.get(key):
            print(f"# NOT THE SAME: {key}: {old.get(key)} before, {new.get(key)} now")
    both, gone = changes(old, new)
    slower = [name for name, peer, ratio, noise in both if not peer and ratio > 1 + noise]
    for name, peer, ratio, noise in both:
        if not 1 / (1 + noise) <= ratio <= 1 + noise:
            print(f"  {'faster' if ratio < 1 else 'SLOWER'} {ratio:6.2f} (noise {noise:.2f}) {name}"
                  f"{', a peer' if peer else ''}")
    for name in gone[:MANY]:
        print(f"  gone   {name}")
    if len(gone) > MANY:
        print(f"  gone   ... and {len(gone) - MANY} others")
    peers = [ratio for _, peer, ratio, _ in both if peer]
    control = f"{middle(peers):.2f}" if peers else "not measured"
    print(f"# {len(both)} rows in both, {len(slower)} of Sparring's slower; peers and limits, "
          f"which have not changed: {control}")
    return bool(slower)
