"""Reads of a tensor that only split and merge its dimensions: a transpose and a reshape say them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qfuse.indexing import Atom, Extents, Index, Linear, constant, dim, dims_of, drop_unit, plus, times


@dataclass(frozen=True)
class Regrouping:
    """A tensor transposed and reshaped, which is then read at a list of dimensions.

    Attributes:
        order: dimension i of the transposed tensor is dimension `order[i]` of the tensor.
        extents: shape that its row-major elements get.
        index: where that is read.
    """

    order: tuple[int, ...]
    extents: tuple[int, ...]
    index: Index


def regrouped(index: Index, own: Extents, extents: Extents) -> Regrouping | None:
    """How a tensor of shape `own` is read at an index that splits and merges dimensions, or None where it does more.

    `(d0 * 5 + d1, d2)` reads a tensor of shape [10, 8] as one of [2, 5, 8] at `(d0, d1, d2)`. Needs static shapes.
    """
    sizes = [n for n in own if n is not None]
    if len(sizes) != len(own) or len(index) != len(own):
        return None
    places = range(len(own))
    for order in dict.fromkeys((tuple(places), tuple(sorted(places, key=lambda i: _place(index[i]))))):
        found = _row_major([index[i] for i in order], [sizes[i] for i in order], extents)
        if found is not None:
            return Regrouping(order, *found)
    return None


def _place(a: Linear) -> tuple[int, int]:
    """Sorts parts of a dimension from the most significant to the least, behind those of the dimensions before it."""
    divisor = max((_divisor(atom) for atom, _ in a.terms), default=1)
    return min(dims_of(a), default=-1), -divisor


def _divisor(atom: Atom) -> int:
    """By what a dimension is divided in a quotient, or in the remainder of one."""
    if atom.arg is None:
        return 1
    inner = max((_divisor(a) for a, _ in atom.arg.terms), default=1)
    return atom.divisor * inner if atom.kind == "/" else inner


def _row_major(index: Sequence[Linear], own: Sequence[int], extents: Extents) -> tuple[tuple[int, ...], Index] | None:
    """The shape and the dimensions at which the row-major elements of a tensor are read, or None."""
    place, stride = constant(0), 1
    for expr, extent in zip(reversed(index), reversed(own), strict=True):
        place = plus(place, times(expr, stride))
        stride *= extent
    (place,) = drop_unit((place,), extents)
    shape: list[int] = []
    dims: list[int] = []
    whole = 1
    for atom, coefficient in sorted(place.terms, key=lambda term: term[1]):
        extent = extents[atom.position] if atom.kind == "d" else None
        if extent is None or coefficient != whole:
            return None
        shape.insert(0, extent)
        dims.insert(0, atom.position)
        whole *= extent
    if place.const or whole != stride:
        return None
    return tuple(shape), tuple(dim(d) for d in dims)
