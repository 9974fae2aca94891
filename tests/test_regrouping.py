"""Reads that split and merge dimensions, against numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfuse.indexing import Index, compose, constant, dim, floordiv, gather, identity, is_plain, times
from qfuse.matchers.tosa_layout import reshaped
from qfuse.regrouping import regrouped

Shape = tuple[int, ...]


def check(index: Index, own: Shape, extents: Shape) -> None:
    """What is found reads the same elements."""
    found = regrouped(index, own, extents)
    assert found is not None
    assert is_plain(found.index)
    array = np.arange(np.prod(own)).reshape(own)
    moved = array.transpose(found.order).reshape(found.extents)
    want = np.broadcast_to(gather(array, index, extents), extents)
    np.testing.assert_array_equal(np.broadcast_to(gather(moved, found.index, extents), extents), want)


@pytest.mark.parametrize(
    ("own", "extents"),
    [((10, 8), (2, 5, 8)), ((2, 5, 8), (10, 8)), ((6, 4), (3, 8)), ((4, 3, 2), (2, 12)), ((1, 10, 8), (2, 5, 8)),
     ((2, 5, 8), (1, 10, 8)), ((24,), (2, 3, 4)), ((2, 1, 3), (6,))],
)  # fmt: skip
def test_reshapes(own: Shape, extents: Shape) -> None:
    index = reshaped(own, extents)
    assert index is not None
    check(index, own, extents)


def test_transposed_and_merged() -> None:
    """[batch, heads, tokens, depth] read as [batch, tokens, heads * depth], and back."""
    merged = reshaped((2, 5, 4, 3), (2, 5, 12))
    split = reshaped((2, 5, 12), (2, 5, 4, 3))
    assert merged is not None
    assert split is not None
    swap = (dim(0), dim(2), dim(1), dim(3))
    check(compose(swap, merged, (2, 5, 12)), (2, 4, 5, 3), (2, 5, 12))
    check(compose(split, swap, (2, 4, 5, 3)), (2, 5, 12), (2, 4, 5, 3))


def test_dimensions_that_are_not_read() -> None:
    """Over [7, 2, 5] a vector of 10 does not depend on the first."""
    check((dim(1)._replace(terms=((dim(1).terms[0][0], 5), (dim(2).terms[0][0], 1))),), (10,), (7, 2, 5))


@pytest.mark.parametrize(
    ("index", "own", "extents"),
    [
        ((times(dim(0), 2), dim(1)), (10, 8), (5, 8)),  # every other row
        ((floordiv(dim(0), 2, (4, 6)), dim(1)), (2, 6), (4, 6)),  # each row twice
        ((dim(0)._replace(const=1), dim(1)), (5, 8), (4, 8)),  # from the second row on
        ((dim(0), dim(0)), (3, 3), (3,)),  # a diagonal
        ((constant(1), dim(0)), (2, 3), (3,)),  # one row of two
    ],
)
def test_other_reads_are_none(index: Index, own: Shape, extents: Shape) -> None:
    assert regrouped(index, own, extents) is None


def test_dynamic_shapes_are_none() -> None:
    assert regrouped(identity(2), (None, 8), (None, 8)) is None


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Two shapes of as many elements."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def grouped() -> Shape:
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        ends = [0, *cuts, len(factors)]
        return tuple(int(np.prod(factors[a:b])) for a, b in pairwise(ends))

    return grouped(), grouped()


@given(shapes())
def test_every_reshape(pair: tuple[Shape, Shape]) -> None:
    own, extents = pair
    index = reshaped(own, extents)
    assert index is not None
    if not is_plain(index):
        check(index, own, extents)
