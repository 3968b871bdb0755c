# SPDX-License-Identifier: BSD-2-Clause
"""Pictures as inline SVG: lines over two logarithmic axes, and bars."""

import html
import math

COLOURS = ("#1f5fa8", "#c8511b", "#2c8a4b", "#7a4fa3", "#8a6d1f", "#b0307a", "#5a6472", "#0d8a8a")
GREY, INK = "#8a8f98", "#222222"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 490, 270, 56, 146, 28, 42
BAR, LABEL = 18, 330


def text(x, y, words, anchor="start", style=""):
    """Some words."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>'
            f'{html.escape(words)}</text>')


def path(way, colour, style=""):
    """A stroke."""
    return f'<path d="{way}" fill="none" stroke="{colour}"{style}/>'


def frame(width, height, title, parts):
    """The picture around its parts."""
    bold = ' font-weight="bold"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>{html.escape(title)}</title>", text(8, 16, title, style=bold), *parts, "</svg>"])


def ticks(low, high):
    """Powers of ten, with 2 and 5 times these where there are few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0 ** e for e in exponents for m in (1, 2, 5)]
    fine = [t for t in fine if low * 0.999 <= t <= high * 1.001]
    coarse = [t for t in fine if abs(math.log10(t) - round(math.log10(t))) < 1e-9]
    return coarse if len(coarse) > 2 else fine


class Plane:
    """Where a point of the plot lies in the picture."""

    def __init__(self, xs, ys):
        self.x = (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) / 2, max(xs) * 2)
        self.y = (min(ys) / 1.25, max(ys) * 1.25)

    def at(self, x, y):
        """The place, in the picture's units."""
        return (LEFT + (WIDTH - RIGHT - LEFT) * self.part(x, self.x),
                HEIGHT - BOTTOM + (TOP - HEIGHT + BOTTOM) * self.part(y, self.y))

    @staticmethod
    def part(value, ends):
        """How far between the ends."""
        return math.log(value / ends[0]) / math.log(ends[1] / ends[0])

    def axes(self, xs, x_text, x_label, y_label):
        """Both, with a grid. x_text: what stands at each of xs."""
        for y in ticks(*self.y):
            _, v = self.at(self.x[0], y)
            yield path(f"M{LEFT} {v:.1f}H{WIDTH - RIGHT}", "#e2e4e8")
            yield text(LEFT - 5, v + 4, f"{y:g}", "end")
        for x in xs:
            u, _ = self.at(x, self.y[0])
            yield path(f"M{u:.1f} {HEIGHT - BOTTOM}v4", GREY)
            yield text(u, HEIGHT - BOTTOM + 15, x_text(x), "middle")
        yield path(f"M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}", GREY)
        yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle")
        yield (f'<text transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
               f'text-anchor="middle">{html.escape(y_label)}</text>')


def lines(title, labels, series, x_text, upright=None, level=None):
    """series: {label: [(x, y)]}; `dense allreduce` is dashed. labels: of the axes.
    upright: (x, words) of a vertical mark; level: (y, words) of a horizontal one."""
    points = [point for line in series.values() for point in line]
    ys = [y for _, y in points] + ([level[0]] if level else [])
    plane = Plane([x for x, _ in points], ys)
    parts = list(plane.axes(sorted({x for x, _ in points}), x_text, *labels))
    if upright:
        u, _ = plane.at(upright[0], plane.y[0])
        side = (u - 4, "end") if u > LEFT + 120 else (u + 4, "start")
        parts += [path(f"M{u:.1f} {TOP}V{HEIGHT - BOTTOM}", INK, ' stroke-dasharray="2 3"'),
                  text(side[0], TOP + 10, upright[1], side[1])]
    if level:
        _, v = plane.at(plane.x[0], level[0])
        parts += [path(f"M{LEFT} {v:.1f}H{WIDTH - RIGHT}", INK, ' stroke-dasharray="2 3"'),
                  text(WIDTH - RIGHT + 6, v + 4, level[1])]
    for number, (label, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        style = ' stroke-width="2"'
        style += ' stroke-dasharray="5 4"' if label == "dense allreduce" else ""
        places = [plane.at(*point) for point in line]
        v = TOP + 8 + 15 * number + (18 if level else 0)
        parts += [path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places), colour, style)]
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'
                  for x, y in places]
        parts += [path(f"M{WIDTH - RIGHT + 6} {v}h18", colour, style),
                  text(WIDTH - RIGHT + 28, v + 4, label)]
    return frame(WIDTH, HEIGHT, title, parts)


def bars(title, rows, mark=None):
    """rows: [(label, [(value, colour number)], words)], parts of a bar behind each other. mark:
    (value, words) of a vertical line."""
    width, height = 860, 44 + BAR * len(rows) + 18
    most = max([sum(value for value, _ in parts) for _, parts, _ in rows]
               + ([mark[0]] if mark else []))
    scale = (width - LABEL - 110) / most if most > 0 else 0
    out = []
    for number, (label, parts, words) in enumerate(rows):
        y, x = 32 + BAR * number, float(LABEL)
        out.append(text(LABEL - 6, y + 12, label, "end"))
        for value, colour in parts:
            out.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{value * scale:.1f}" '
                       f'height="{BAR - 5}" fill="{COLOURS[colour % len(COLOURS)]}"/>')
            x += value * scale
        out.append(text(x + 5, y + 12, words))
    if mark:
        x = LABEL + mark[0] * scale
        out += [path(f"M{x:.1f} 28V{height - 20}", INK, ' stroke-dasharray="2 3"'),
                text(x, height - 6, mark[1], "middle")]
    return frame(width, height, title, out)


def key(names):
    """Which colour is what, for bars."""
    x, parts = 8, []
    for number, name in enumerate(names):
        parts += [f'<rect x="{x}" y="4" width="11" height="11" fill="{COLOURS[number]}"/>',
                  text(x + 15, 14, name)]
        x += 34 + 7 * len(name)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 20" width="860" height="20" '
            f'font-family="sans-serif" font-size="11">{"".join(parts)}</svg>')
