"""Layout operations between a dequantize and a contraction run on the stored integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.numerics.harness import (
    IREE_CPU,
    VARIANTS,
    Batch,
    Case,
    Variant,
    assert_fused,
    assert_interpreted,
    assert_numbers,
    parameters,
)
from tests.strategies import Function, Grid, Value

Batches = Callable[[Mapping[str, Case], Variant | None], Batch]

X = Grid(scale=0.021, zero=-7)
U = Grid(signed=False, scale=0.017, zero=200)
W = Grid(axes=(0,), scale=0.01 + 0.002 * np.arange(6), zero=np.zeros(6))
OUT = Grid(scale=0.06, zero=5)


def linear(f: Function, x: Value, quantized: bool = True, k: int | None = None) -> Case:
    """A linear of a 2-D value with a per-axis weight, then a quantize."""
    w = f.transpose(f.dequantize(f.weight((6, x.shape[-1] if k is None else k), W)), (1, 0))
    y = f.matmul(x, w)
    return Case(f.results(f.quantize(y, OUT) if quantized else y))


def transposed(name: str, grid: Grid) -> Case:
    """dq -> transpose -> matmul, on the activation."""
    f = Function(name)
    return linear(f, f.transpose(f.dequantize(f.argument((8, 5), grid)), (1, 0)))


def flattened(name: str, grid: Grid) -> Case:
    """dq -> collapse_shape: what flatten gives."""
    f = Function(name)
    return linear(f, f.collapse(f.dequantize(f.argument((3, 2, 4), grid)), [[0], [1, 2]]))


def permuted(name: str, grid: Grid) -> Case:
    """dq -> permute -> collapse, which mixes the order of elements."""
    f = Function(name)
    x = f.transpose(f.dequantize(f.argument((3, 2, 4), grid)), (0, 2, 1))
    return linear(f, f.collapse(x, [[0], [1, 2]]))


def expanded(name: str, grid: Grid) -> Case:
    """dq -> expand_shape -> transpose -> collapse: heads of an attention."""
    f = Function(name)
    x = f.expand(f.dequantize(f.argument((4, 12), grid)), [[0], [1, 2]], (4, 3, 4))
    a = f.transpose(x, (1, 0, 2))
    y = f.dequantize(f.argument((3, 5, 4), Grid(scale=0.02, zero=3)))
    z = f.contract(a, y, "bmk,bnk->bmn", "generic")
    return Case(f.results(f.quantize(f.collapse(f.transpose(z, (1, 0, 2)), [[0], [1, 2]]), OUT)))


def sliced(name: str, grid: Grid, shape: tuple[int, int] = (7, 16), dynamic: tuple[int, ...] = ()) -> Case:
    """dq -> extract_slice with offsets and strides."""
    f = Function(name)
    x = f.dequantize(f.argument(shape, grid, dynamic))
    rows = (0, shape[0], 1) if dynamic else (1, 3, 2)
    return linear(f, f.slice(x, (rows[0], 3), (rows[1], 6), (rows[2], 2)))


def padded(name: str, grid: Grid, quantized: bool = True, value: float = 0.0) -> Case:
    """dq -> pad 0.0: the integers are padded with the zero point (or with another number on the grid)."""
    f = Function(name)
    return linear(f, f.pad(f.dequantize(f.argument((4, 5), grid)), (1, 2), (0, 1), value), quantized)


def joined(name: str, axis: int, grids: tuple[Grid, Grid]) -> Case:
    """dq, dq -> concat."""
    f = Function(name)
    shapes = ((3, 8), (2, 8)) if axis == 0 else ((3, 5), (3, 3))
    parts = [f.dequantize(f.argument(s, g)) for s, g in zip(shapes, grids, strict=True)]
    return linear(f, f.concat(parts, axis))


def chained() -> Case:
    """pad -> slice -> transpose -> collapse on one value."""
    f = Function("chained")
    x = f.pad(f.dequantize(f.argument((2, 3, 5), U)), (0, 1, 1), (0, 0, 2))
    x = f.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 2))
    x = f.collapse(f.transpose(x, (1, 0, 2)), [[0], [1, 2]])
    return linear(f, x)


def both_sides() -> Case:
    """Slices and transposes on both operands, zero points on both."""
    f = Function("both_sides")
    a = f.slice(f.dequantize(f.argument((6, 9), X)), (0, 1), (3, 4), (2, 2))
    b = f.slice(f.transpose(f.dequantize(f.argument((5, 8), U)), (1, 0)), (4, 0), (4, 5), (1, 1))
    return Case(f.results(f.quantize(f.matmul(a, b), OUT)))


def per_row(axis: int, extent: int) -> Grid:
    """Scales and zero points along an axis."""
    return Grid(axes=(axis,), scale=0.01 + 0.004 * np.arange(extent), zero=3 * np.arange(extent) - 4)


CASES = {
    case.name: case
    for case in [
        transposed("transpose", X), transposed("transpose_rows", per_row(1, 5)),
        flattened("flatten", U), flattened("flatten_rows", per_row(0, 3)),
        permuted("permute", X), permuted("permute_rows", per_row(0, 3)),
        expanded("expand", X), expanded("expand_rows", per_row(0, 4)),
        sliced("slice", X), sliced("slice_u8", U), sliced("slice_rows", per_row(0, 7)),
        sliced("slice_dynamic", U, (7, 16), (0,)),
        padded("pad", X), padded("pad_u8", U), padded("pad_zp_low", Grid(scale=0.1, zero=-128)),
        padded("pad_zp_high", Grid(signed=False, scale=0.1, zero=255), quantized=False),
        padded("pad_run_time", Grid(scale=0.1, zero=4, run_time="scalar")),
        padded("pad_run_time_u8", Grid(signed=False, scale=0.1, zero=204, run_time="extract")),
        padded("pad_on_the_grid", Grid(scale=0.25, zero=4), value=-1.75),
        joined("concat_rows", 0, (X, X)), joined("concat_k", 1, (U, U)),
        chained(), both_sides(),
    ]
}  # fmt: skip


def refused_concat(name: str, other: Grid) -> Case:
    """A concat of different parameters."""
    return joined(name, 0, (X, other))


def first_rows() -> Case:
    """The first rows of a tensor whose scales, one a row, are arguments."""
    f = Function("first_rows")
    return linear(f, f.slice(f.dequantize(f.argument((7, 16), RUN_TIME_ROWS)), (0, 0), (4, 16), (1, 1)))


RUN_TIME_ROWS = Grid(axes=(0,), scale=0.01 + 0.004 * np.arange(7), run_time="tensor")
DIFFERENT = "the concatenated tensors have different quantization parameters"
#: What is refused, and the reason.
REFUSED: dict[str, tuple[Case, str]] = {
    "scale": (refused_concat("concat_scale", Grid(scale=0.022, zero=-7)), DIFFERENT),
    "zero point": (refused_concat("concat_zero", Grid(scale=0.021, zero=-6)), DIFFERENT),
    "signedness": (refused_concat("concat_sign", Grid(signed=False, scale=0.021, zero=7)), DIFFERENT),
    "pad along scales": (
        padded("pad_along_scales", Grid(axes=(0,), scale=np.array([0.1, 0.2, 0.3, 0.4]))),
        "the scale varies along a padded dimension",
    ),
    "pad off the grid": (
        padded("pad_off_the_grid", X, value=1.0),
        "the pad value is not on the grid of the padded tensor",
    ),
    "first of run-time scales": (
        first_rows(),
        "the parameters are known only at run time and the layout operation takes the first of their elements",
    ),
}
REFUSED_CASES = {case.name: case for case, _ in REFUSED.values()}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(CASES))
def test_layout(name: str, variant: Variant, batches: Batches) -> None:
    """It fuses, no float layout is left, and the numbers hold, interpreted."""
    batch = batches(CASES, variant)
    fused = assert_fused(batch, name)
    for line in fused.after.splitlines():
        if any(op in line for op in ("tensor.pad", "tensor.extract_slice", "tensor.concat")):
            assert "f32" not in line, line
    assert_interpreted(batch, name)


@pytest.mark.parametrize("name", parameters(CASES))
def test_layout_in_iree(name: str, batches: Batches) -> None:
    """The same, compiled."""
    assert_numbers(batches(CASES, IREE_CPU), name)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("what", REFUSED)
def test_no_fuse_when_the_parameters_cannot_follow(what: str, variant: Variant, batches: Batches) -> None:
    """Refused at the layout operation with its reason; the contraction says that its operand is not dequantized."""
    case, reason = REFUSED[what]
    fused = batches(REFUSED_CASES, variant).fused(case.name)
    assert [e["reason"] for e in fused.report.missed] == [reason, "operand 0 (lhs) is not dequantized"]
    assert fused.report.applied == []
    assert fused.after == fused.before
