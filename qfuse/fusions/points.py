"""Tables of 16 bits as TOSA reads them: 513 points of i16, straight lines of 128 integers between them.

    line(x) = 128 * table[i] + (table[i + 1] - table[i]) * part,   x + 2^15 = 128 * i + part
    result  = round(line(x) / 2^shift)

Points are moved by half of what the lines beside them are off, so that a line is as far above the function as below
it. Where rounding the points costs too much a second table holds what is left of them, and where lines are too long
halves or quarters of the integers have tables of their own. The distance from the reference is that of every integer
that can occur, computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from qfuse.emit.elementwise import Points
from qfuse.graph import Array

#: Integers from a point to the next, and points.
SPACING, POINTS = 128, 513
#: Log2 of how many ranges have tables of their own, at most.
MOST_FINER = 2
_HALF = 1 << 15


@dataclass(frozen=True, eq=False)
class Tabulated:
    """The function that is tabulated, in results less `offset`.

    Attributes:
        real: before it is rounded.
        whole: the reference.
        low: least result.
        high: greatest result.
    """

    real: Array
    whole: Array
    low: int
    high: int

    @property
    def fraction(self) -> int:
        """Bits below a step of the result that points in i16 have room for."""
        reach = max(abs(self.low), abs(self.high), 1)
        return max(15 - int(reach).bit_length(), 0)


def find_points(points: Points, target: Tabulated, occurring: Array) -> tuple[Points, int] | None:
    """The best tables for a function, and their greatest distance from the reference in steps.

    None where every table has a line that is steeper than TOSA allows.

    Args:
        points: offsets and spread; tables are filled in.
        target: over the integers of i16, or with a spread over those of i8.
        occurring: which integers there are.
    """
    best: tuple[Points, int] | None = None
    for finer in range(1 if points.spread else MOST_FINER + 1):
        for make, beyond in _SHAPES:
            tables, shift = make(_ranges(target, points.spread, occurring, finer, beyond), target)
            if tables is None:
                continue
            tried = replace(points, tables=tables, shift=shift)
            found = np.clip(tried.apply(_inputs(points.spread)), target.low, target.high)
            steps = int(np.abs(found - target.whole)[occurring].max(initial=0))
            if best is None or steps < best[1]:
                best = tried, steps
            if steps <= 1:
                return best
    return best


def _ranges(target: Tabulated, spread: int, occurring: Array, finer: int, beyond: float) -> Array:
    """The points of each of 2^`finer` ranges of integers, moved; 0 where no integer occurs.

    They leave the range of results by `beyond` steps at most, so that lines lead on where results end.
    """
    rows: list[Array] = []
    for real, there in zip(np.split(target.real, 1 << finer), np.split(occurring, 1 << finer), strict=True):
        knots, lines = _knots(np.clip(real, target.low - beyond, target.high + beyond), spread + finer)
        rows.append(knots + lines if there.any() else np.zeros(POINTS))
    return np.stack(rows)


def _inputs(spread: int) -> Array:
    half = _HALF >> spread
    return np.arange(-half, half, dtype=np.int64)


def _knots(real: Array, spread: int) -> tuple[Array, Array]:
    """A function at the points, and by how much they are moved."""
    every = np.append(real, real[-1] + (real[-1] - real[-2]))
    if 1 << spread > SPACING:  # integers lie on every second point
        places = np.arange(POINTS) * SPACING / (1 << spread)
        return np.interp(places, np.arange(every.size), every), np.zeros(POINTS)
    step = SPACING >> spread
    knots = every[::step]
    part = np.arange(step) / step
    chords = knots[:-1, None] + (knots[1:] - knots[:-1])[:, None] * part
    off = chords - every[:-1].reshape(-1, step)
    middle = -(off.max(axis=1) + off.min(axis=1)) / 2
    moved = np.concatenate([[0.0], (middle[:-1] + middle[1:]) / 2, [0.0]])
    return knots, moved


def _one(knots: Array, target: Tabulated) -> tuple[tuple[Array, ...] | None, int]:
    """A table of points as fine as i16 allows."""
    fraction = target.fraction
    table = _clipped(np.rint(knots * 2.0**fraction))
    return ((table,) if _is_even(table) else None), fraction + 7


def _two(knots: Array, _: Tabulated) -> tuple[tuple[Array, ...] | None, int]:
    """A table of whole results and one of what is left, in 2^-8."""
    whole = _clipped(np.rint(knots))
    rest = _clipped(np.rint((knots - whole) * 256.0))
    return ((whole, rest) if _is_even(whole) and _is_even(rest) else None), 15


def _trimmed(knots: Array, target: Tabulated) -> tuple[tuple[Array, ...] | None, int]:
    """A table of whole results without the least one, so that two lines lead from one end to the other."""
    table = np.clip(np.rint(knots), 1 - _HALF, _HALF - 1).astype(np.int16)
    return ((table,) if _is_even(table) and target.fraction == 0 else None), 7


def _clipped(table: Array) -> Array:
    return np.clip(table, -_HALF, _HALF - 1).astype(np.int16)


def _is_even(table: Array) -> bool:
    """Whether no line is steeper than TOSA allows."""
    slopes = np.diff(table.astype(np.int64))
    return bool((slopes >= -_HALF).all() and (slopes < _HALF).all())


#: Ways to write points, and how far these may leave the range of results.
_SHAPES: tuple[tuple[Callable[[Array, Tabulated], tuple[tuple[Array, ...] | None, int]], float], ...] = (
    (_one, 1.0),
    (_two, 100.0),
    (_trimmed, 1.0),
)

__all__ = ["MOST_FINER", "POINTS", "SPACING", "Tabulated", "find_points"]
