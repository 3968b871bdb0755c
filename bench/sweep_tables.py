# SPDX-License-Identifier: BSD-2-Clause
"""The sweep as text."""

from findings import (auto_ratios, by_cell, chosen_well, crossover, omitted, percent, place,
                      predicted_well, repeated_well, split, summary)


def cell_of(value, form, scale=1.0):
    """A number in a table, or a dash."""
    return "-" if value is None else format(value * scale, form)


def lines_of(points):
    """A line of words for each point, the heads first."""
    yield ["kind", "where", "density", "taken", "auto(ms)", "best", "best(ms)", "auto/best",
           "dense(ms)", "dense/auto", "cpu(ms)", "sent(KB)", "sent/bound", "of limit"]
    for point in points:
        s = summary(point)
        if point["error"] or s["auto_us"] is None:
            yield [point["kind"], place(point), percent(point["density"])] + ["-"] * 11
            continue
        yield [point["kind"], place(point), percent(point["density"]), s["taken"] or "-",
               cell_of(s["auto_us"], ".3f", 1e-3), s["best"] or "-",
               cell_of(s["best_us"], ".3f", 1e-3), cell_of(s["ratio"], ".2f"),
               cell_of(s["dense_us"], ".3f", 1e-3), cell_of(s["gain"], ".2f"),
               cell_of(s["cpu_us"], ".2f", 1e-3), cell_of(s["sent"], ".1f", 1e-3),
               cell_of(s["over_bound"], ".2f"), cell_of(s["of_limit"], ".2f")]


def notes(points):
    """What cannot be seen in a line."""
    for point in points:
        where = f"{point['kind']} {place(point)}, {percent(point['density'])}"
        if point["error"]:
            yield f"{where}: {point['error']}"
        wrong = sum(row.get("wrong") or 0 for row in point["rows"])
        if wrong:
            yield f"{where}: WRONG: {wrong} elements"
        if omitted(point):
            yield f"{where}: left out: " + ", ".join(omitted(point))


def conclusions(points):
    """Sentences: the crossover of each cell, and how good the library's choice is."""
    for name, group in by_cell(points).items():
        yield f"{name}: {crossover(group)[1]}"
    for kind in ("sparse", "dense", "trace"):
        ratios = auto_ratios([point for point in points if point["kind"] == kind])
        if ratios:
            worst, point, middle = ratios
            auto, named, _ = split(point)
            best = min(named, key=lambda row: row["time_us"]["p50"])
            where = f"{place(point)}, {percent(point['density'])}"
            yield (f"{kind}: auto over the best by name: median {middle:.2f}, worst {worst:.2f} "
                   f"({where}: {auto.get('taken', 'auto')} against {best['algorithm']})")


def counts(points):
    """Sentences: how often the model was right."""
    good, count = chosen_well(points)
    if count:
        yield f"{good} of {count} algorithms that auto took are by name within 10 % of the fastest"
    good, count = chosen_well(points, model_alone=True)
    if count:
        yield f"{good} of {count} that it would have taken by the model alone are"
    good, count = repeated_well(points)
    if count:
        yield f"{good} of {count} took the same time twice, as auto and by name, within 10 %"
    good, count = predicted_well(points)
    if count:
        yield (f"{good} of {count} predictions are within 20 % of what was measured (where the "
               "link is no limit, 35 %)")


def print_sweep(sweep):
    """All of it; sweep: what the JSON has under that name."""
    if not sweep:
        return
    points = sweep["points"]
    print("#\n# Sweep: hosts x ranks on each, rate of a link, bytes of the vector. All rows of a "
          "line take\n# turns, iteration by iteration. taken: what auto chose; best: the fastest "
          "algorithm by name; cpu:\n# of all ranks; sent: busiest rank; bound: the least a rank "
          "sends on average in an exact sum of\n# random lists; of limit: the time that the link "
          "needs for a dense sum at its nominal rate, over\n# that of the dense sum")
    lines = list(lines_of(points))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for number, line in enumerate(lines):
        words = [word.ljust(width) if i < 2 else word.rjust(width)
                 for i, (word, width) in enumerate(zip(line, widths))]
        print(("# " if number == 0 else "  ") + " ".join(words))
    print("#\n# From which density on dense is faster, and how good the choice is")
    for text in [*conclusions(points), *counts(points)]:
        print("  " + text)
    leftover = [f"{cell['cell']}: {cell['why']}" for cell in sweep["left_out"]]
    for text in list(notes(points)) + leftover:
        print("# " + text)
