"""`qfuse.concat`: branches of different parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qfuse
from tests.fusions.ir import Function, fused, parse, refused, run


def concat(f: Function, *values: str) -> str:
    rows = 4 * len(values)
    types = ", ".join("tensor<4x6xf32>" for _ in values)
    joined = f.line(f"tensor.concat dim(0) {', '.join(values)} : ({types}) -> tensor<{rows}x6xf32>")
    f.shape = (rows, 6)
    return joined


def two() -> Function:
    f = Function("two")
    x, y = f.dequantize(f.argument("i8"), 0.05, 3), f.dequantize(f.argument("i8"), 0.031, -7, unsigned=False)
    return f.returns(f.quantize(concat(f, x, y)))


def one_of_equal_parameters() -> Function:
    f = Function("one_of_equal_parameters")
    x, y = f.dequantize(f.argument("i8"), 0.0513, -5), f.dequantize(f.argument("i8"), 0.031, -7)
    return f.returns(f.quantize(concat(f, x, y)))


def expression() -> Function:
    f = Function("expression")
    x, y = f.dequantize(f.argument("i8"), 0.05, 3), f.dequantize(f.argument("i8"), 0.031, -7)
    both = f.binary("addf", x, y)
    return f.returns(f.quantize(concat(f, both, y, x)))


OPTIONS: list[dict[str, Any]] = [{}, {"rounding": "magic"}, {"epilogue": "fixed-point"}]


def product(f: Function, x: str, zero: int) -> str:
    """`x` times six columns of run-time weights."""
    w = f.dequantize(f.argument("i8", (6, 6)), 0.02, zero, shape=(6, 6))
    start = f.line("arith.constant dense<0.0> : tensor<4x6xf32>")
    types = "ins({}, {} : tensor<4x6xf32>, tensor<6x6xf32>) outs({} : tensor<4x6xf32>) -> tensor<4x6xf32>"
    return f.line("linalg.matmul " + types.format(x, w, start))


def accumulators() -> Function:
    """Two products and a dequantized tensor, with a relu behind their concat."""
    f = Function("accumulators")
    x = f.dequantize(f.argument("i8"), 0.05, 3)
    joined = concat(f, product(f, x, 0), x, product(f, x, -9))
    relu = f.unary(joined, "    %c = arith.constant 0.0 : f32\n    %y = arith.maximumf %a, %c : f32")
    return f.returns(f.quantize(relu))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_accumulators(options: dict[str, Any]) -> None:
    f = accumulators()
    module, report = fused(f, **options)
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.contraction", "qfuse.contraction", "qfuse.concat"]
    assert report.summary["integer_ops"] == report.summary["quantized_compute_ops"] == 3
    before, after = (run({f.name: m}, [f])[f.name] for m in (parse(f), module))
    for (want,), (got,) in zip(before, after, strict=True):
        assert np.abs(want.astype(np.int64) - got.astype(np.int64)).max() <= 1
    again = str(module)
    assert qfuse.fuse(module, **options).applied == []
    assert str(module) == again


FIRES = [two, one_of_equal_parameters, expression]


@pytest.mark.parametrize("make", FIRES, ids=lambda m: m.__name__)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fires(make: Callable[[], Function], options: dict[str, Any]) -> None:
    module, report = fused(make(), **options)
    (entry,) = report.applied
    assert entry["fusion"] == "qfuse.concat"
    assert entry["exactness"] == ("within-1-lsb" if "epilogue" in options else "bit-exact")
    assert report.missed == []
    assert report.summary["integer_ops"] == report.summary["quantized_compute_ops"] == 1
    assert "-> tensor<8x6xi8>" in str(module) or "-> tensor<12x6xi8>" in str(module)
    if "epilogue" in options:
        assert "f32" not in str(module)


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    functions = [make() for make in FIRES]
    modules = [{f.name: fused(f, **options)[0] for f in functions} for options in OPTIONS]
    return [run(m, functions) for m in ({f.name: parse(f) for f in functions}, *modules)]


@pytest.mark.parametrize("make", FIRES, ids=lambda m: m.__name__)
def test_same_integers(make: Callable[[], Function], results: list[dict[str, Any]]) -> None:
    before, *after = (r[make.__name__] for r in results)
    for options, found in zip(OPTIONS, after, strict=True):
        for a, b in zip(before, found, strict=True):
            off = np.abs(a[0].astype(np.int64) - b[0].astype(np.int64)).max()
            assert off <= ("epilogue" in options)


def test_no_fuse_of_a_float_branch() -> None:
    f = Function("float_branch")
    x, y = f.dequantize(f.argument("i8"), 0.05, 3), f.argument("f32")
    f.returns(f.quantize(concat(f, x, y)))
    reasons = refused(f)
    assert "a branch of the concat is not dequantized" in reasons
