"""`qfuse.concat`: branches of different parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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


FIRES = [two, one_of_equal_parameters, expression]
OPTIONS: list[dict[str, Any]] = [{}, {"rounding": "magic"}, {"epilogue": "fixed-point"}]


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
