"""Elementwise operations whose operands come through reshapes: the stored integers are reshaped instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.fusions.ir import Function, fused, parse, refused, run, tensor
from tests.fusions.test_elementwise import RELU, product

Shape = Sequence[int]


def relu(f: Function, x: str, shape: Shape) -> str:
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    return f.elementwise([(x, shape, "f32", dims)], RELU, shape=shape)


def collapse(f: Function, x: str, groups: str, own: Shape, shape: Shape) -> str:
    return f.line(f"tensor.collapse_shape {x} {groups} : {tensor(own, 'f32')} into {tensor(shape, 'f32')}")


def expand(f: Function, x: str, groups: str, own: Shape, shape: Shape) -> str:
    sizes = ", ".join(map(str, shape))
    types = f"{tensor(own, 'f32')} into {tensor(shape, 'f32')}"
    return f.line(f"tensor.expand_shape {x} {groups} output_shape [{sizes}] : {types}")


def transpose(f: Function, x: str, own: Shape, permutation: Shape) -> str:
    shape = [own[p] for p in permutation]
    out = f.empty(shape, "f32")
    return f.line(
        f"linalg.transpose ins({x} : {tensor(own, 'f32')}) outs({out} : {tensor(shape, 'f32')})"
        f" permutation = {list(permutation)}"
    )


def other(f: Function) -> str:
    return f.dequantize(f.argument("i8"), 0.031, -7)


def split() -> Function:
    f = Function("split", (2, 5, 8))
    x = relu(f, f.dequantize(f.argument("i8", (10, 8)), shape=(10, 8)), (10, 8))
    both = f.binary("addf", expand(f, x, "[[0, 1], [2]]", (10, 8), (2, 5, 8)), other(f))
    return f.returns(f.quantize(both))


def merged() -> Function:
    f = Function("merged", (10, 8))
    x = relu(f, f.dequantize(f.argument("i8", (2, 5, 8)), shape=(2, 5, 8)), (2, 5, 8))
    both = f.binary("mulf", collapse(f, x, "[[0, 1], [2]]", (2, 5, 8), (10, 8)), other(f))
    return f.returns(f.quantize(both))


def other_sizes() -> Function:
    """6 x 4 as 3 x 8: merged and split."""
    f = Function("other_sizes", (3, 8))
    x = relu(f, f.dequantize(f.argument("i8", (6, 4)), shape=(6, 4)), (6, 4))
    flat = collapse(f, x, "[[0, 1]]", (6, 4), (24,))
    both = f.binary("subf", expand(f, flat, "[[0, 1]]", (24,), (3, 8)), other(f))
    return f.returns(f.quantize(both))


def heads() -> Function:
    """Split, then transposed."""
    f = Function("heads", (2, 4, 5, 3))
    x = relu(f, f.dequantize(f.argument("i8", (2, 5, 12)), shape=(2, 5, 12)), (2, 5, 12))
    x = expand(f, x, "[[0], [1], [2, 3]]", (2, 5, 12), (2, 5, 4, 3))
    return f.returns(f.quantize(f.binary("addf", transpose(f, x, (2, 5, 4, 3), (0, 2, 1, 3)), other(f))))


def no_heads() -> Function:
    """Transposed, then merged."""
    f = Function("no_heads", (2, 5, 12))
    x = relu(f, f.dequantize(f.argument("i8", (2, 4, 5, 3)), shape=(2, 4, 5, 3)), (2, 4, 5, 3))
    x = collapse(f, transpose(f, x, (2, 4, 5, 3), (0, 2, 1, 3)), "[[0], [1], [2, 3]]", (2, 5, 4, 3), (2, 5, 12))
    return f.returns(f.quantize(f.binary("addf", x, other(f))))


def channels() -> Function:
    """Scales run along a dimension that is split."""
    f = Function("channels", (4, 2, 3))
    scales = [0.01, 0.02, 0.04, 0.05, 0.07, 0.11]
    x = f.dequantize(f.argument("i8", (4, 6)), scales, [0, 3, -8, 1, 2, -1], shape=(4, 6))
    x = expand(f, relu(f, x, (4, 6)), "[[0], [1, 2]]", (4, 6), (4, 2, 3))
    return f.returns(f.quantize(f.binary("addf", x, other(f))))


def constant() -> Function:
    """A constant of another shape is written as it is read."""
    f = Function("constant", (2, 5, 4))
    values = np.random.default_rng(2).normal(size=(10, 4)).astype(np.float32).tolist()
    c = f.line(f"arith.constant dense<{values}> : tensor<10x4xf32>")
    x = f.dequantize(f.argument("i8", (10, 4)), shape=(10, 4))
    body = "    %y = arith.addf %a, %b : f32"
    both = f.elementwise([(x, (10, 4), "f32", "d0, d1"), (c, (10, 4), "f32", "d0, d1")], body, shape=(10, 4))
    both = relu(f, both, (10, 4))
    return f.returns(f.quantize(f.binary("addf", expand(f, both, "[[0, 1], [2]]", (10, 4), (2, 5, 4)), other(f))))


EXACT = [split, merged, other_sizes, heads, no_heads, channels, constant]


def residual(name: str, op: str) -> Function:
    """A product of two matrices with a bias, split, and a tensor of that shape: the residual branch of a layer."""
    f = Function(name, (4, 6))
    x = product(f)
    f.shape = (2, 2, 6)
    both = f.binary(op, expand(f, x, "[[0, 1], [2]]", (4, 6), (2, 2, 6)), f.dequantize(f.argument("i8"), 0.04, -7))
    return f.returns(f.quantize(both, 0.15, -128))


ACCUMULATED = [("added", "addf"), ("subtracted", "subf")]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, list[list[Any]]]]:
    functions = [*(make() for make in EXACT), *(residual(*how) for how in ACCUMULATED)]
    found = {"unfused": run({f.name: parse(f) for f in functions}, functions)}
    for options in ({}, {"epilogue": "fixed-point"}):
        found[str(options)] = run({f.name: fused(f, **options)[0] for f in functions}, functions)
    return found


@pytest.mark.parametrize("make", EXACT, ids=lambda m: m.__name__)
def test_the_float_arithmetic_is_repeated_on_reshaped_integers(
    make: Callable[[], Function], results: dict[str, Any]
) -> None:
    function = make()
    module, report = fused(function)
    assert [(e["fusion"], e["exactness"]) for e in report.applied] == [("qfuse.elementwise", "bit-exact")]
    assert report.missed == []
    assert "floordiv" not in str(module)
    assert " mod " not in str(module)
    for before, after in zip(results["unfused"][function.name], results["{}"][function.name], strict=True):
        np.testing.assert_array_equal(before[0], after[0])


@pytest.mark.parametrize("make", EXACT, ids=lambda m: m.__name__)
def test_in_fixed_point_it_is_within_a_step(make: Callable[[], Function], results: dict[str, Any]) -> None:
    function = make()
    module, report = fused(function, epilogue="fixed-point")
    assert [(e["fusion"], e["exactness"]) for e in report.applied] == [("qfuse.elementwise", "within-1-lsb")]
    assert "f32" not in str(module)
    fixed = results["{'epilogue': 'fixed-point'}"][function.name]
    for before, after in zip(results["unfused"][function.name], fixed, strict=True):
        assert np.abs(before[0].astype(np.int64) - after[0].astype(np.int64)).max() <= 1


@pytest.mark.parametrize("options", [{}, {"epilogue": "fixed-point"}], ids=str)
@pytest.mark.parametrize("how", ACCUMULATED)
def test_a_residual_behind_a_reshape_joins_the_epilogue(
    how: tuple[str, str], options: dict[str, Any], results: dict[str, Any]
) -> None:
    function = residual(*how)
    module, report = fused(function, **options)
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", "qfuse.requantize"]
    assert report.missed == []
    assert "tensor<2x2x6xf32>" not in str(module)
    assert "tensor<4x6xf32>" not in str(module)
    for before, after in zip(results["unfused"][function.name], results[str(options)][function.name], strict=True):
        assert np.abs(before[0].astype(np.int64) - after[0].astype(np.int64)).max() <= 1


# -- refusals --------------------------------------------------------------------------------------------------------


def test_no_fuse_of_every_other_row() -> None:
    """Rows that a slice with a step takes, behind an operation on them."""
    f = Function("steps", (5, 8))
    x = relu(f, f.dequantize(f.argument("i8", (10, 8)), shape=(10, 8)), (10, 8))
    part = f.line(f"tensor.extract_slice {x}[0, 0] [5, 8] [2, 1] : tensor<10x8xf32> to tensor<5x8xf32>")
    f.returns(f.quantize(f.binary("addf", part, other(f))))
    place = "an operand of the elementwise operation is read at (d0 * 2, d1), which is not a list of dimensions"
    assert set(refused(f)) == {place}


def test_no_fuse_of_a_dynamic_dimension_that_is_split() -> None:
    f = Function("dynamic", (None, 5, 8))
    x = relu(f, f.dequantize(f.argument("i8", (None, 8)), shape=(None, 8)), (None, 8))
    n = f.line(f"tensor.dim {f.arguments[0][0]}, {f.line('arith.constant 0 : index')} : tensor<?x8xi8>")
    size = f.line(f"arith.divui {n}, {f.line('arith.constant 5 : index')} : index")
    split = f.line(
        f"tensor.expand_shape {x} [[0, 1], [2]] output_shape [{size}, 5, 8] : tensor<?x8xf32> into tensor<?x5x8xf32>"
    )
    f.returns(f.quantize(f.binary("addf", split, other(f))))
    place = "an operand of the elementwise operation is read at (d0 * 5 + d1, d2), which is not a list of dimensions"
    assert place in refused(f)
