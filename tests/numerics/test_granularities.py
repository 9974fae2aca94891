"""Every pairing of granularities, zero points, widths and signedness: executed, and right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.numerics.harness import (
    IREE_CPU,
    NAMED,
    VARIANTS,
    Batch,
    Case,
    Variant,
    assert_fused,
    assert_interpreted,
    assert_numbers,
    parameters,
    total_errors,
)
from tests.strategies import Function, Grid

Batches = Callable[[Mapping[str, Case], Variant | None], Batch]

B, M, K, N = 2, 5, 12, 7
GROUP = 4

#: Axes and group size of an operand of shape [batch, rows, k].
BATCHED: dict[str, tuple[tuple[int, ...], int | None]] = {
    "tensor": ((), None),
    "batch": ((0,), None),
    "rows": ((1,), None),
    "token": ((0, 1), None),
    "group": ((0, 1, 2), GROUP),
    "rowgroup": ((1, 2), GROUP),
    "kgroup": ((2,), 2 * GROUP // 4),
}

#: Storage of lhs and rhs.
STORAGE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "s8s8": ({}, {}),
    "u8s8": ({"signed": False}, {}),
    "s8u8": ({}, {"signed": False}),
    "u8u8": ({"signed": False}, {"signed": False}),
    "s16s8": ({"bits": 16}, {}),
    "s8s4": ({}, {"low": -8, "high": 7}),
}

ZEROS = list(itertools.product((False, True), repeat=2))
RUN_TIME = ("", "lhs", "rhs", "both")


def grid(
    rng: np.random.Generator,
    shape: Sequence[int],
    axes: tuple[int, ...] = (),
    group: int | None = None,
    *,
    asymmetric: bool = False,
    run_time: str = "",
    **storage: Any,
) -> Grid:
    """A grid with scales and zero points drawn for data of `shape`."""
    plain = Grid(axes=axes, group=group, run_time=run_time, **storage)
    sizes = plain.param_shape(shape)
    low, high = plain.range
    scale = rng.uniform(0.004, 0.05, sizes) * 255 / (high - low)
    zero = rng.integers(low, high, sizes, endpoint=True) if asymmetric else np.zeros(sizes, np.int64)
    with_zero = asymmetric or (bool(axes) and bool(rng.integers(2)))
    return Grid(
        axes=axes, group=group, run_time=run_time, scale=scale, zero=zero if with_zero else None,
        zero_type=str(rng.choice(["i64", "i32", "i8"])) if plain.signed and plain.bits == 8 else "i64", **storage,
    )  # fmt: skip


def batched(left: str, right: str, storage: str, zeros: tuple[bool, bool], run_time: str, quantized: bool) -> Case:
    """`bmk,bnk->bmn` with these parameters."""
    f = Function(f"b_{left}_{right}_{storage}_{zeros[0]:d}{zeros[1]:d}_{run_time or 'static'}")
    kinds = STORAGE[storage]
    operands = []
    for side, name, rows in ((0, left, M), (1, right, N)):
        shape = (B, rows, K)
        given = grid(
            f.rng, shape, *BATCHED[name], asymmetric=zeros[side],
            run_time="one" if run_time in (("lhs", "rhs")[side], "both") else "", **kinds[side],
        )  # fmt: skip
        operands.append(f.argument(shape, given) if side == 0 or f.rng.integers(2) else f.weight(shape, given))
    y = f.contract(*(f.dequantize(q) for q in operands), "bmk,bnk->bmn", "generic")
    return Case(f.results(f.quantize(y, Grid(scale=0.037, zero=11)) if quantized else y))


PAIRED = {
    case.name: case
    for number, (left, right) in enumerate(itertools.product(BATCHED, BATCHED))
    for case in [
        batched(left, right, list(STORAGE)[number % 6], ZEROS[number % 4], RUN_TIME[(number // 2) % 4], number % 3 != 0)
    ]
}

#: Two dimensions: axes, group size and form of an operand of shape [rows, k].
PLAIN: dict[str, tuple[tuple[int, ...], int | None, str]] = {
    "tensor": ((), None, "fused"),
    "axis": ((0,), None, "fused"),
    "group": ((0, 1), GROUP, "fused"),
    "steps": ((0, 1), GROUP, "steps"),
}


def plain(left: str, right: str, storage: str, zeros: tuple[bool, bool], run_time: str, quantized: bool) -> Case:
    """A linear: `mk` by the transpose of a constant `nk`."""
    f = Function(f"l_{left}_{right}_{storage}_{zeros[0]:d}{zeros[1]:d}_{run_time or 'static'}")
    kinds = STORAGE[storage]
    operands = []
    for side, name, rows in ((0, left, M), (1, right, N)):
        axes, group, form = PLAIN[name]
        how = "scalar" if form == "fused" else "tensor"
        given = grid(
            f.rng, (rows, K), axes, group, asymmetric=zeros[side], form=form,
            run_time=how if run_time in (("lhs", "rhs")[side], "both") else "", **kinds[side],
        )  # fmt: skip
        operands.append(f.argument((rows, K), given) if side == 0 else f.weight((rows, K), given))
    x, w = (f.dequantize(q) for q in operands)
    y = f.matmul(x, f.transpose(w, (1, 0)))
    y = f.binary("add", y, f.float_constant(f.rng.normal(size=N)), [1])
    if quantized:
        y = f.quantize(f.relu(y), Grid(signed=False, scale=0.041, zero=3))
    return Case(f.results(y))


PLAINS = {
    case.name: case
    for number, (left, right, zeros) in enumerate(itertools.product(PLAIN, PLAIN, ZEROS))
    for case in [plain(left, right, list(STORAGE)[number % 6], zeros, RUN_TIME[(number // 3) % 4], number % 4 != 0)]
}

#: A few of the above that a named operation can say, compiled as such.
NAMEABLE = {n: c for n, c in PLAINS.items() if n.startswith(("l_tensor_tensor", "l_tensor_axis", "l_axis_axis"))}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(PAIRED))
def test_every_batched_pairing(name: str, variant: Variant, batches: Batches) -> None:
    """Per-tensor, per-batch, per-axis, per-token and per-group on both sides of a batched contraction."""
    batch = batches(PAIRED, variant)
    assert_fused(batch, name)
    assert_interpreted(batch, name)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(PLAINS))
def test_every_linear_pairing(name: str, variant: Variant, batches: Batches) -> None:
    """The same for linears: groups as floordiv maps and as dimensions of their own, zero points on either side."""
    batch = batches(PLAINS, variant)
    assert_fused(batch, name)
    assert_interpreted(batch, name)


@pytest.mark.parametrize("name", parameters(PAIRED))
def test_batched_pairing_in_iree(name: str, batches: Batches) -> None:
    """What IREE compiles is as right."""
    assert_numbers(batches(PAIRED, IREE_CPU), name)


@pytest.mark.parametrize("name", parameters(NAMEABLE))
def test_named_linear_in_iree(name: str, batches: Batches) -> None:
    """Named operations, compiled by IREE."""
    assert_numbers(batches(NAMEABLE, NAMED), name)


def test_fused_is_at_least_as_right(batches: Batches) -> None:
    """Over all pairings, fewer stored outputs differ from the reference after fusing than before, never more."""
    fused = total_errors(batches(PLAINS, IREE_CPU), list(PLAINS), compiled=False)
    unfused = total_errors(batches(PLAINS, None), list(PLAINS), compiled=False)
    assert fused.differing <= unfused.differing
