"""`QuantParams`: granularity by block sizes, equality, and parameters moved along with their data."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfuse.indexing import Extents, Index, Linear, compose, constant, dim, floordiv, identity, mod, plus, times
from qfuse.qparams import (
    ONE,
    ZERO,
    Param,
    QuantParams,
    StorageType,
    axis_param,
    broadcast_to_dims,
    over_extents,
    varies_along,
)
from tests.test_indexing import value

S8 = StorageType(8, True)


def params(scale: Param, extents: Extents, zero_point: Param = ZERO) -> QuantParams:
    """Signed 8-bit parameters of f32 data."""
    return QuantParams(S8, -128, 127, scale, zero_point, "f32", extents)


def ramp(*shape: int) -> np.ndarray[Any, Any]:
    """Distinct positive numbers."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


# -- storage ---------------------------------------------------------------------------------------------------


@given(st.integers(2, 32), st.booleans())
def test_storage_limits(bits: int, signed: bool) -> None:
    """As many values as the width holds, around or above zero."""
    storage = StorageType(bits, signed)
    assert storage.max - storage.min == 2**bits - 1
    assert storage.min == (-(2 ** (bits - 1)) if signed else 0)
    assert storage.mlir == f"i{bits}"
    assert str(storage) == ("s" if signed else "u") + str(bits)


# -- granularity -----------------------------------------------------------------------------------------------


def group(position: int, size: int) -> Linear:
    """`d floordiv size`."""
    return floordiv(dim(position), size, ())


@pytest.mark.parametrize(
    ("index", "extents", "blocks", "granularity"),
    [
        ((), (4, 8), (None, None), "per-tensor"),
        ((), (), (), "per-tensor"),
        ((constant(0),), (4, 8), (None, None), "per-tensor"),
        ((dim(0),), (4, 8), (1, None), "per-axis(0)"),
        ((dim(1),), (4, 8), (None, 1), "per-axis(1)"),
        ((dim(0),), (4,), (1,), "per-axis(0)"),
        ((dim(0), constant(0)), (4, 8), (1, None), "per-axis(0)"),
        ((dim(0), dim(1), constant(0)), (2, 4, 8), (1, 1, None), "per-token"),
        ((dim(1), dim(0)), (2, 4, 8), (1, 1, None), "per-token"),
        ((dim(0), group(1, 4)), (4, 8), (1, 4), "per-group(4)"),
        ((group(1, 4),), (4, 8), (None, 4), "per-group(4)"),
        ((dim(0), dim(1), group(2, 2)), (2, 4, 8), (1, 1, 2), "per-group(2)"),
        ((dim(0), group(1, 8)), (4, 8), (1, None), "per-axis(0)"),
        ((dim(0), dim(1)), (4, 8), (1, 1), "per-block(1,1)"),
        ((group(0, 2), group(1, 4)), (4, 8), (2, 4), "per-block(2,4)"),
        ((group(0, 2),), (4, 8), (2, None), "per-group(2)"),
        ((group(0, 2), dim(1)), (4, 8), (2, 1), "per-group(2)"),
        ((dim(0), constant(0), dim(2)), (2, 4, 8), (1, None, 1), "per-block(1,*,1)"),
        ((dim(0),), (1, 8), (None, None), "per-tensor"),
        ((mod(dim(0), 2, ()),), (4, 8), None, "unstructured"),
        ((plus(dim(0), dim(1)),), (4, 8), None, "unstructured"),
        ((times(dim(0), 2),), (4, 8), None, "unstructured"),
        ((dim(0),), (None, 8), (1, None), "per-axis(0)"),
        ((dim(0), group(1, 4)), (None, None), (1, 4), "per-group(4)"),
    ],
)
def test_granularity(index: Index, extents: Extents, blocks: tuple[int | None, ...] | None, granularity: str) -> None:
    """Block sizes as torchao writes them, and the names of the usual ones."""
    found = params(Param(index, value="%s"), extents)
    assert found.block_size == blocks
    assert found.granularity == granularity


def test_granularity_of_scale_and_zero_point_together() -> None:
    """The finer of both counts in each dimension."""
    both = params(Param((dim(0),), value="%s"), (4, 8), Param((dim(0), group(1, 4)), value="%z"))
    assert both.granularity == "per-group(4)"
    mixed = params(Param((group(1, 4),), value="%s"), (4, 8), Param((group(1, 2),), value="%z"))
    assert mixed.block_size == (None, 2)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_block_sizes_say_where_parameters_change(counts: list[int], data: st.DataObject) -> None:
    """Two elements in one block read one parameter; elements of different blocks read different ones."""
    sizes = [data.draw(st.integers(1, 4)) for _ in counts]
    extents = tuple(c * s for c, s in zip(counts, sizes, strict=True))
    index = tuple(floordiv(dim(i), s, extents) for i, s in enumerate(sizes))
    blocks = params(Param(index, ramp(*counts)).simplified(extents), extents).block_size
    assert blocks is not None
    places: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for point in itertools.product(*map(range, extents)):
        block = tuple(0 if b is None else p // b for p, b in zip(point, blocks, strict=True))
        places.setdefault(block, set()).add(tuple(value(e, point) for e in index))
    assert all(len(read) == 1 for read in places.values())
    assert len({next(iter(read)) for read in places.values()}) == len(places)


@pytest.mark.parametrize(
    ("scale", "zero_point", "text"),
    [
        (ONE, ZERO, "s8 per-tensor symmetric"),
        (ONE, Param((), np.int64(3)), "s8 per-tensor asymmetric"),
        (axis_param(ramp(8), 1), ZERO, "s8 per-axis(1) symmetric"),
        (Param((dim(0), constant(0)), value="%s"), Param((), value="%z"), "s8 per-axis(0) asymmetric run-time"),
    ],
)
def test_text(scale: Param, zero_point: Param, text: str) -> None:
    """One line for the report."""
    assert str(params(scale, (4, 8), zero_point)) == text


# -- parameters ------------------------------------------------------------------------------------------------


def test_uniform_constants_become_scalars() -> None:
    """Equal values, one value and dimensions that are never read leave nothing to index."""
    uniform = Param((dim(0),), np.full(4, 0.5, np.float32)).simplified((4, 8))
    assert uniform.index == ()
    assert uniform.scalar == 0.5
    single = Param((constant(0), dim(1)), np.array([[2.0]], np.float32)).simplified((4, 1))
    assert (single.index, single.scalar) == ((), 2.0)
    token = Param((dim(0), constant(0)), ramp(4, 1)).simplified((4, 8))
    assert token.index == (dim(0),)
    assert token.data is not None
    assert token.data.tolist() == [1.0, 2.0, 3.0, 4.0]
    row = Param((constant(1), dim(1)), ramp(2, 8)).simplified((4, 8))
    assert row.data is not None
    assert row.data.tolist() == ramp(2, 8)[1].tolist()
    run_time = Param((dim(0), dim(1)), value="%s").simplified((4, 1))
    assert run_time.index == (dim(0), constant(0))


def test_known_values() -> None:
    """What a parameter is known to be."""
    assert ONE.scalar == 1.0
    assert ZERO.is_zero
    assert Param((dim(0),), np.zeros(4)).is_zero
    assert not Param((dim(0),), np.array([0, 1])).is_zero
    assert Param((dim(0),), np.array([1.0, 2.0])).scalar is None
    assert Param((), value="%s").scalar is None
    assert not Param((), value="%s").is_zero
    assert not Param((), value="%s").is_constant
    assert Param((dim(0),), np.zeros(0)).scalar is None


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (ONE, Param((), np.array(1.0)), True),
        (ONE, Param((), np.array(2.0)), False),
        (ZERO, Param((dim(0),), np.zeros(4)), True),
        (axis_param(ramp(4), 0), axis_param(ramp(4), 0), True),
        (axis_param(ramp(4), 0), axis_param(ramp(4), 1), False),
        (axis_param(ramp(4), 0), axis_param(ramp(4) * 2, 0), False),
        (Param((), value="%s"), Param((), value="%s"), True),
        (Param((), value="%s"), Param((), value="%t"), False),
        (Param((), value="%s"), Param((), value="%s", signed=False), False),
        (Param((), value="%s"), ONE, False),
        (Param((dim(0),), value="%s"), Param((dim(1),), value="%s"), False),
    ],
)
def test_equality_of_parameters(first: Param, second: Param, equal: bool) -> None:
    """Same constants, or the same value read at the same place."""
    assert first.equals(second) is equal
    assert second.equals(first) is equal


def test_equality_of_quantizations() -> None:
    """Storage, scale and zero point count; the clamp does not change what integers mean."""
    base = params(ONE, (4,))
    assert base.equals(params(ONE, (4,)))
    assert base.equals(QuantParams(S8, -127, 127, ONE, ZERO, "f32", (4,)))
    assert not base.equals(QuantParams(StorageType(8, False), 0, 255, ONE, ZERO, "f32", (4,)))
    assert not base.equals(params(Param((), np.array(0.5)), (4,)))
    assert not base.equals(params(ONE, (4,), Param((), np.array(1))))


# -- moving ----------------------------------------------------------------------------------------------------


def test_moved_by_a_transpose() -> None:
    """The axis of the parameters follows its dimension."""
    found = params(axis_param(ramp(4), 0), (4, 8)).over((dim(1), dim(0)), (8, 4))
    assert found.granularity == "per-axis(1)"
    assert found.extents == (8, 4)


def test_moved_by_an_expand_and_back() -> None:
    """Groups by floordiv become an axis of the expanded tensor, and groups again behind the collapse."""
    grouped = params(Param((dim(0), group(1, 4)), ramp(2, 2)), (2, 8))
    to_flat = (dim(0), plus(times(dim(1), 4), dim(2)))
    expanded = grouped.over(to_flat, (2, 2, 4))
    assert expanded.granularity == "per-token"
    assert expanded.scale.index == (dim(0), dim(1))
    from_flat = (dim(0), floordiv(dim(1), 4, (2, 8)), mod(dim(1), 4, (2, 8)))
    back = expanded.over(from_flat, (2, 8))
    assert back.granularity == "per-group(4)"
    assert back.equals(grouped)


def test_moved_by_a_slice_of_one() -> None:
    """One row of data that was quantized by rows is quantized per tensor."""
    found = params(axis_param(ramp(4), 0), (4, 8)).over((constant(2), dim(0)), (8,))
    assert found.granularity == "per-tensor"
    assert found.scale.scalar == 3.0


@given(st.permutations(range(3)), st.data())
def test_moved_parameters_read_the_same_values(order: list[int], data: st.DataObject) -> None:
    """Wherever an element comes from, its scale comes along."""
    shape = (2, 3, 4)
    kept = data.draw(st.lists(st.integers(0, 2), unique=True, min_size=1, max_size=3))
    scale = Param(tuple(dim(i) for i in kept), ramp(*(shape[i] for i in kept)))
    extents = tuple(shape[i] for i in order)
    index = tuple(dim(order.index(i)) for i in range(3))
    moved = params(scale, shape).over(index, extents).scale
    assert scale.data is not None
    assert moved.data is not None
    for point in itertools.product(*map(range, extents)):
        source = tuple(value(e, point) for e in index)
        here = moved.data[tuple(value(e, point) for e in moved.index)]
        there = scale.data[tuple(value(e, source) for e in scale.index)]
        assert here == there


@given(st.lists(st.integers(0, 2), unique=True, max_size=3), st.permutations(range(3)))
def test_broadcast_to_dims(kept: list[int], dims: list[int]) -> None:
    """Values laid out over given dimensions broadcast as the parameter reads them."""
    shape = (2, 3, 4)
    param = Param(tuple(dim(i) for i in kept), ramp(*(shape[i] for i in kept)))
    found = broadcast_to_dims(param, dims)
    assert found is not None
    full = np.broadcast_to(found, [shape[d] for d in dims])
    assert param.data is not None
    for point in itertools.product(*map(range, shape)):
        assert full[tuple(point[d] for d in dims)] == param.data[tuple(point[i] for i in kept)]


def test_broadcast_needs_whole_dimensions_and_constants() -> None:
    """Groups, run-time values and foreign dimensions cannot be laid out."""
    assert broadcast_to_dims(Param((group(0, 2),), ramp(2)), [0]) is None
    assert broadcast_to_dims(Param((), value="%s"), [0]) is None
    assert broadcast_to_dims(axis_param(ramp(4), 1), [0]) is None


def test_variation() -> None:
    """Scale and zero point both count."""
    mixed = params(axis_param(ramp(4), 0), (4, 8), Param((group(1, 4),), value="%z"))
    assert varies_along(mixed, frozenset({0}))
    assert varies_along(mixed, frozenset({1}))
    assert not varies_along(params(ONE, (4, 8)), frozenset({0, 1}))
    assert not varies_along(mixed, frozenset({2}))


def test_composition_of_moves() -> None:
    """Moving twice is moving once by the composed index."""
    base = params(axis_param(ramp(4), 0), (4, 8))
    swap: Index = (dim(1), dim(0))
    twice = base.over(swap, (8, 4)).over(swap, (4, 8))
    once = base.over(compose(swap, swap, (4, 8)), (4, 8))
    assert twice.equals(once)
    assert once.scale.index == identity(1)


def test_parameters_of_a_slice_that_begins_at_0() -> None:
    """Only those of the channels that are left."""
    base = Param((dim(1),), np.array([1.0, 2.0, 4.0, 8.0]))
    part = base.over(identity(2), (3, 2))
    assert part.data is not None
    assert part.data.tolist() == [1.0, 2.0]
    whole = base.over(identity(2), (3, 4))
    assert whole.data is base.data


def test_blocks_and_remainders_are_written_out() -> None:
    """Over the dimensions that are read, and not where their extents are not known."""
    data = ramp(3, 2)
    split = (floordiv(dim(1), 2, (4, 6)), mod(dim(1), 2, (4, 6)))
    found = over_extents(data, split, (4, 6))
    assert found is not None
    assert found.tolist() == data.reshape(1, 6).tolist()
    blocks = over_extents(ramp(3), (floordiv(dim(1), 2, (None, 6)),), (None, 6))
    assert blocks is not None
    assert blocks.tolist() == [[1, 1, 2, 2, 3, 3]]
    assert over_extents(ramp(3), (floordiv(dim(0), 2, (None, 6)),), (None, 6)) is None
