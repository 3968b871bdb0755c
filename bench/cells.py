# SPDX-License-Identifier: BSD-2-Clause
"""The points of the sweep: which sizes, hosts and rates meet, and what each may take.

A cell is a size on a network; each of its densities is a point. The cells are few, but any two
values of two factors meet in one of them where they can (a pairwise covering set).
"""

import dataclasses
import itertools
import math

SLOW_S = 5  # of one iteration: what is predicted to take longer is left out
PAIR = 6.0  # bytes of a value and its index on the wire, about
TILE = 1056.0  # ... of a tile of 256 positions, see collectives/sparse_tiles.h
FULL = 4.2  # ... of a list that became a dense part, per element
SUM_NS = 0.8  # processor time of a byte that is sent, received and added, dense
LIST_NS = 2.0  # ... of a list
SETS = {
    False: {"bytes": (4 << 10, 256 << 10, 4 << 20, None, 400 * 1000 ** 2), "hosts": (2, 4, 8),
            "per_host": (1, 2, 4), "rate": ("100mbit", "1gbit", "10gbit"),
            "density": (0.0001, 0.001, 0.01, 0.05, 0.2, 0.5)},
    True: {"bytes": (4 << 10, 1 << 20), "hosts": (2, 4), "per_host": (1, 2),
           "rate": ("100mbit", "1gbit"), "density": (0.001, 0.01, 0.1)},
}
MOST_RANKS = 16
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_second(text):
    """Of a rate such as 1gbit."""
    return float(text[:-4]) * UNITS[text[-4:]]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A vector of fp32 on a network of emulated hosts."""

    hosts: int
    per_host: int
    rate: str
    elements: int

    @property
    def ranks(self):
        """Of all hosts."""
        return self.hosts * self.per_host

    @property
    def name(self):
        """As --cells takes it, with the bytes as they are."""
        return f"{self.hosts}x{self.per_host}/{self.rate}/{self.elements * 4}"

    def values(self):
        """Of the factors."""
        return (self.hosts, self.per_host, self.rate, self.elements)


def union(density, ranks):
    """Which part of the elements some of the ranks have, when they choose independently."""
    return 1.0 if density >= 1 else -math.expm1(ranks * math.log1p(-density))


def bits(density):
    """Entropy of a position."""
    if not 0 < density < 1:
        return 0.0
    return -density * math.log2(density) - (1 - density) * math.log2(1 - density)


def bound_bytes(elements, ranks, entries, together, value=4):
    """What a rank has to send on average in an exact sum of lists at random positions: its list to
    the others, and its part of the union to those ranks that do not have it. entries: of all ranks
    together; together: the union's."""
    def lists(count):
        part = count / elements
        return count * (value + bits(part) / part / 8) if count > 0 else 0.0

    return lists(entries / ranks) + (ranks - 2) / ranks * lists(together)


def dense_bytes(cell):
    """What a host sends, by algorithm: upper estimates that only guard the sweep's time."""
    h, g, p, n = cell.hosts, cell.per_host, cell.ranks, 4.0 * cell.elements
    direct = 2 * g * (p - g) / p * n
    return {"hierarchical": 2 * (h - 1) / h * n, "direct": direct, "ring": 2 * (p - 1) / p * n,
            "halving": 2 * g * (h - 1) / h * n, "doubling": g * math.ceil(math.log2(h)) * n,
            "tree": 4 * n, "flat": 2 * (p - g) * n}


def sparse_bytes(cell, density):
    """The same of a sum of lists."""
    h, g, p = cell.hosts, cell.per_host, cell.ranks

    def size(part):
        return min(PAIR * part, FULL) * cell.elements

    def tiles(part):
        return TILE / 256 * union(part, 256) * cell.elements

    whole = size(union(density, p))
    inside = union(density, g)
    steps = range(math.ceil(math.log2(p)))
    direct = g * (p - g) / p * (size(density) + whole)
    return {"allgather": g * (p - g) * size(density),
            "hierarchical": g * (p - g) / p * size(density) + (h - 1) / h * whole,
            "hosts": (h - 1) / h * (size(inside) + whole),
            "relay": g * (p - g) / p * size(density) + (h - 1) / h * whole,
            "direct": direct,
            "union": direct,
            "blocks": g * (p - g) / p * (tiles(density) + tiles(union(density, p))),
            "server": (p - g) * whole,
            "doubling": g * sum(size(union(density, 1 << i)) for i in steps if 1 << i >= g),
            "ring": sum(size(union(density, i)) for i in range(1, p)) / p + (p - 1) / p * whole,
            "dense": dense_bytes(cell)["direct"]}


def predict_s(cell, density, algorithms, cpus):
    """Seconds of an iteration, by algorithm; density None: dense. One that is not known here is
    taken for the slowest, `auto` for the fastest."""
    def of(where):
        return dense_bytes(where) if density is None else sparse_bytes(where, density)

    link, alone = of(cell), of(Cell(cell.ranks, 1, cell.rate, cell.elements))
    ns = SUM_NS if density is None else LIST_NS
    seconds = {name: link[name] * 8 / bits_per_second(cell.rate)
               + alone[name] * cell.ranks * ns * 1e-9 / cpus for name in link}
    ends = {"auto": min(seconds.values())}
    return {name: ends.get(name) or seconds.get(name, max(seconds.values()))
            for name in algorithms}


def memory_bytes(cell, density, rows):
    """Of all ranks: each sparse row has a list and a dense result, all dense ones two vectors."""
    return cell.ranks * cell.elements * (16 + rows * (4 + 8 * density))


def rows_that_fit(cell, density, room):
    """How many rows of a sparse point there is memory for."""
    row = memory_bytes(cell, density, 1) - memory_bytes(cell, density, 0)
    return int((room - memory_bytes(cell, density, 0)) / row)


def fits(cell, cpus, room):
    """Why a cell cannot be measured, or None. room: bytes of memory for all ranks."""
    seconds = predict_s(cell, None, ["auto"], cpus)["auto"]
    if seconds > SLOW_S:
        return f"a dense sum would take {seconds:.1f} s"
    need = memory_bytes(cell, 0.5, 2)
    if need > room:
        return f"it needs {need / 1e9:.1f} GB of memory, {room / 1e9:.1f} GB are for it"
    return None


def all_cells(quick, elements):
    """Every combination."""
    values = SETS[quick]
    sizes = [elements if size is None else size // 4 for size in values["bytes"]]
    cells = [Cell(h, g, rate, n) for h, g, rate, n in itertools.product(
        values["hosts"], values["per_host"], values["rate"], sizes)]
    return list(dict.fromkeys(cell for cell in cells if cell.ranks <= MOST_RANKS))


def pairs(cell):
    """Which two values meet in the cell."""
    return set(itertools.combinations(enumerate(cell.values()), 2))


def never_met(others, cells):
    """{two values in words: a cell}, of those of the others that meet in none of the cells."""
    def words(values):
        texts = ("{} hosts", "{} per host", "{}", "{} elements")
        return " with ".join(texts[factor].format(value) for factor, value in values)

    met, found = set().union(*map(pairs, cells)), {}
    for cell in others:
        for values in sorted(pairs(cell) - met, key=str):
            found.setdefault(words(values), cell)
    return found


def cover(cells, first, cost):
    """Few of the cells, `first` among them, with all pairs of values that occur in any of them:
    always the one that adds most pairs, of these the cheapest."""
    chosen = [cell for cell in first if cell in cells]
    wanted = set().union(*map(pairs, cells)).difference(*map(pairs, chosen)) if cells else set()
    while wanted:
        best = max(cells, key=lambda cell: (len(pairs(cell) & wanted), -cost(cell)))
        chosen.append(best)
        wanted -= pairs(best)
    return sorted(chosen, key=lambda cell: (cell.hosts, bits_per_second(cell.rate), cell.elements,
                                            cell.per_host))
