# SPDX-License-Identifier: BSD-2-Clause
"""One page of HTML with all tables, goals and pictures of a run. It needs nothing from elsewhere,
and is well-formed XML too."""

import html as escape_of

import draw
import plan
import report
import sweep_tables
from findings import by_cell, crossover, percent, place, right, split, summary

STYLE = """
body { font: 15px/1.45 sans-serif; color: #222; background: #fff; margin: 2em auto;
  max-width: 70em; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 2px 9px; text-align: right; border-bottom: 1px solid #e2e4e8; }
th { border-bottom: 1px solid #8a8f98; vertical-align: bottom; }
td.word, th.word { text-align: left; }
tr.bad td { background: #fbe9e5; } tr.good td { background: #eaf5ec; }
.wide { overflow-x: auto; } .note { color: #555; font-size: 13px; }
.many { display: flex; flex-wrap: wrap; gap: 10px; }
svg { max-width: 100%; }
"""


def e(words):
    """Made safe."""
    return escape_of.escape(str(words))


def table(heads, rows, words=1):
    """rows: [(class, [cell])]; the first columns, and the last if it is `what`, are words."""
    def line(tag, cells, style=""):
        out = []
        for number, cell in enumerate(cells):
            word = number < words or heads[number] == "what"
            out.append(f'<{tag}{" class=" + chr(34) + "word" + chr(34) if word else ""}>'
                       f"{e(cell)}</{tag}>")
        return f'<tr{style}>{"".join(out)}</tr>'

    body = [line("td", cells, f' class="{kind}"' if kind else "") for kind, cells in rows]
    return (f'<div class="wide"><table><thead>{line("th", heads)}</thead><tbody>'
            + "\n".join(body) + "</tbody></table></div>")


def goal_parts(data):
    """Reached against wanted."""
    answers = {True: ("good", "yes"), False: ("bad", "no"), None: ("", "?")}
    yield from (f'<p class="note">{e(line)}</p>' for line in report.caveats(data))
    yield table(["reached", "value", "wanted", "what"], [
        (answers[goal["yes"]][0],
         [answers[goal["yes"]][1],
          "-" if goal["reached"] is None else f"{goal['reached']:.3f}",
          f"{goal['relation']} {goal['wanted']}", f"{goal['goal']} ({goal['detail']})"])
        for goal in data["goals"]])


def row_table(rows, unit_us, unit):
    """One part of the comparison."""
    reference = report.best(rows)
    lines = []
    for row in rows:
        if not row.samples:
            why = row.error or "not measured"
            lines.append(("", [row.name] + ["-"] * 8 + [f"{row.title}: {why}"]))
            continue
        s = row.sample
        times = [report.figure(us / unit_us).strip() for us in (s.p50, s.least, s.most)]
        cpu = "-" if s.cpu is None else report.figure(s.cpu / unit_us).strip()
        ratio = f"{reference.sample.p50 / s.p50:.2f}" if reference else "-"
        lines.append(("bad" if row.wrong else "", [
            row.name, *times, s.iterations, cpu, report.megabytes(s.sent),
            report.megabytes(s.received), ratio, f"{row.title} [{report.note(row, reference)}]"]))
    return table(["row", f"p50 ({unit})", "min", "max", "n", f"cpu ({unit})", "sent (MB)",
                  "recv (MB)", "peer/this", "what"], lines)


def sweep_table(points):
    """A line for each point; red where dense is faster."""
    heads, *lines = sweep_tables.lines_of(points)
    kinds = []
    for point in points:
        gain = summary(point)["gain"]
        kinds.append("" if gain is None or gain >= 1 else "bad")
    return table(heads, list(zip(kinds, lines)), 2)


def density_plots(points):
    """Time against density, cell by cell, with the crossover."""
    for kind in ("sparse", "trace"):
        for name, group in by_cell(points, kind).items():
            series = {}
            for point in group:
                auto, named, dense = split(point)
                rows = [row for row in (auto, *named) if row] + ([dense] if dense else [])
                for row in rows:
                    label = "dense allreduce" if row is dense else row["algorithm"]
                    series.setdefault(label, []).append(
                        (point["density"], row["time_us"]["p50"] / 1e3))
            if series:
                at, _ = crossover(group)
                title = name if kind == "sparse" else name + ", recorded gradients"
                yield draw.lines(title, ("density", "time, ms"), series, percent,
                                 (at, f"dense from {percent(at)}") if at else None)


def limit_bars(rows, points):
    """What part of the time of a dense sum is the physical limit's."""
    limit = next((row for row in rows if row.name == "limit" and row.ok), None)
    found = []
    for row in rows:
        dense = row.part == "network" and (row.peer or row.name.startswith("dense"))
        if dense and row.ok and limit:
            found.append((f"{row.name} (limit by iperf3)", limit.sample.p50 / row.sample.p50,
                          1 if row.peer else 0))
    for point in points:
        share = summary(point)["of_limit"] if point["kind"] == "dense" else None
        if share is not None:
            found.append((f"sweep: {place(point)} (nominal rate)", share, 2))
    if found:
        yield draw.bars("Dense sums: share of the physical limit",
                        [(label, [(share, colour)], f"{share:.0%}")
                         for label, share, colour in found], (1, "the limit"))


def bound_plot(points):
    """Bytes of the library's choice over the least an exact sum has to send."""
    series = {}
    for name, group in by_cell(points).items():
        line = [(point["density"], summary(point)["over_bound"]) for point in group]
        line = [point for point in line if point[1]]
        if line and group[0]["elements"] >= 1 << 16:  # below, frames' headers are most of it
            series[name] = line
    names = list(series)
    for first in range(0, len(names), 6):
        some = {name: series[name] for name in names[first:first + 6]}
        yield draw.lines("Bytes of the busiest rank over the least", ("density", "times"),
                         {name.replace(" MiB", "M").replace(" MB", "MB"): line
                          for name, line in some.items()}, percent, level=(1, "the least"))


def phase_bars(rows, points):
    """Where the time goes; of the sweep its largest cells."""
    found = [(row.name, row.sample.phases) for row in rows if row.ok and row.sample.phases]
    largest = max((point["elements"] for point in points if point["kind"] == "sparse"), default=0)
    for point in points:
        auto, _, _ = split(point)
        if auto and "phase_us" in auto and (point["elements"] == largest
                                            or point["kind"] != "sparse"):
            found.append((f"{point['kind']} {place(point)} {percent(point['density'])}",
                          auto["phase_us"]))
    bars = []
    for label, phases in found:
        parts = [(phases.get(name) or 0, i) for i, name in enumerate(report.PHASES)]
        bars.append((label, parts, f"{sum(value for value, _ in parts) / 1e3:.1f} ms"))
    if bars:
        yield draw.key(report.PHASES)
        yield draw.bars("Phases, each on the rank where it takes longest", bars)


def pictures(heading, drawn, note):
    """A part of the page, when there is anything to see."""
    drawn = list(drawn)
    return [f"<h2>{e(heading)}</h2>", f'<p class="note">{e(note)}</p>', '<div class="many">',
            *drawn, "</div>"] if drawn else []


def sweep_parts(sweep):
    """Tables of the sweep."""
    points = [point for point in sweep["points"] if right(point["rows"]) or point["error"]]
    out = ["<h2>Sweep</h2>", sweep_table(points), "<ul>"]
    out += [f"<li>{e(words)}</li>"
            for words in [*sweep_tables.conclusions(points), *sweep_tables.counts(points)]]
    leftover = list(sweep_tables.notes(sweep["points"]))
    leftover += [f"{cell['cell']}: {cell['why']}" for cell in sweep["left_out"]]
    out += [f'<li class="note">{e(words)}</li>' for words in leftover]
    return out + ["</ul>"] if len(out) > 3 else out[:2]


def html(data):
    """The page of a run's JSON."""
    rows = plan.of_json(data)
    sweep = data.get("sweep")
    points = sweep["points"] if sweep else []
    title, *about = report.machine(data)
    out = ["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8"/>',
           f"<title>{e(title)}</title><style>{STYLE}</style></head><body>",
           f"<h1>{e(title)}</h1>"]
    out += [f'<p class="note">{e(line)}</p>' for line in about]
    out += [f'<p class="note">Command: {e(" ".join(data["command"]))}</p>',
            "<h2>Reached against wanted</h2>", *goal_parts(data)]
    for part, heading, unit_us, unit in report.heads(data):
        some = [row for row in rows if row.part == part]
        if some:
            out += [f"<h2>{e(heading)}</h2>", row_table(some, unit_us, unit)]
    out += pictures("Time against density", density_plots(points),
                    "Medians; every cell on its own scale. Where dense is faster on the right of "
                    "a dotted line, that is the crossover of the library's own choices.")
    out += pictures("Share of the physical limit", limit_bars(rows, points),
                    "The least that a dense sum has to send and receive, at the link's rate, over "
                    "the time it took.")
    out += pictures("Bytes against the least there can be", bound_plot(points),
                    "k (v + H(d)/d) + (P-2)/P U (v + H(D)/D) bytes: a list of k entries at random "
                    "positions goes out, and a P-th of the union U to those that lack it.")
    out += pictures("Phases", phase_bars(rows, points),
                    "Phases overlap, so the length of a bar may exceed the time.")
    if sweep:
        out += sweep_parts(sweep)
    return "\n".join(out + ["</body></html>", ""])
