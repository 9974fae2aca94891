"""Comparisons and selects that are operations of their own: clamps, leaky and parametric relu."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines, stored_bytes

Array = np.ndarray[Any, Any]

SHAPE = (1, 4, 5, 3)
SCALE, ZERO = 0.02, 5
RESULT, RESULT_ZERO = 0.0137, -3
SLOPES = np.asarray([0.1, -0.25, 0.0, 1.0, 2.0])
WEIGHTS = np.random.default_rng(1).integers(-127, 128, (5, 1, 1, 3))
BIAS = np.float32(np.random.default_rng(2).normal(0, 0.3, 5))


def chosen(f: Lines, how: str, x: str) -> str:
    """The activation of `x` as a comparison and a select."""
    type_, bool_ = f.types[x], f.like(x, "i1")
    zero, bound = f.number(0.0, x, "f32"), f.number(0.6, x, "f32")
    if how == "relu":
        return f.op("select", [f.op("greater", [x, zero], bool_), x, zero], type_)
    if how == "clamp":
        x = f.op("select", [f.op("greater", [zero, x], bool_), zero, x], type_)
        return f.op("select", [f.op("greater_equal", [x, bound], bool_), bound, x], type_)
    slopes = SLOPES[0] if how == "leaky" else SLOPES[: f.shape(x)[-1]].reshape(1, 1, 1, -1)
    slope = f.const(slopes, "f32") if how == "parametric" else f.number(float(slopes), x, "f32")
    scaled = f.mul(x, slope, type_)
    if how == "parametric":
        return f.op("select", [f.op("greater", [zero, x], bool_), scaled, x], type_)
    return f.op("select", [f.op("greater_equal", [x, zero], bool_), x, scaled], type_)


def real(how: str, x: Array) -> Array:
    """The same in f64."""
    if how == "relu":
        return np.maximum(x, 0)
    if how == "clamp":
        return np.clip(x, 0, np.float32(0.6))
    slope = np.float32(SLOPES[0]) if how == "leaky" else np.float32(SLOPES[: x.shape[-1]])
    return np.where(x > 0, x, x * slope)


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("how", ["relu", "clamp", "leaky", "parametric"])
def test_a_comparison_and_a_select(how: str, product: bool) -> None:
    f = Lines(q="x".join(map(str, SHAPE)) + "xi8")
    x = f.dequantize("%q", SCALE, ZERO)
    if product:
        weights = f.dequantize(f.const(WEIGHTS, "i8"), 0.01)
        x = f.conv("conv2d", x, weights, f.const(BIAS, "f32"), "1x4x5x5xf32", "pad = array<i64: 0, 0, 0, 0>")
    text = f.module(f.quantize(chosen(f, how, x), RESULT, RESULT_ZERO))
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    after = str(module)
    assert "tosa.greater" not in after
    assert set(tosa.validate(after).extensions) == set()
    assert qfuse.fuse(module, "tosa-int").applied == []
    for q in stored_bytes(SHAPE, ZERO, 3):
        value = (q.astype(np.float64) - ZERO) * np.float32(SCALE)
        if product:
            value = value @ (WEIGHTS[:, 0, 0].T * np.float64(np.float32(0.01))) + BIAS
        steps = np.clip(real(how, value) / np.float32(RESULT) + RESULT_ZERO, -128, 127)
        (got,) = tosa.run(after, [q])
        assert (np.abs(got - steps) <= 0.5 + 1e-3).all()


@pytest.mark.parametrize("kind", ["another threshold", "another value", "two values"])
def test_what_is_no_clamp_stays(kind: str) -> None:
    """The choice jumps where the sign changes, or depends on a second tensor."""
    f = Lines(q="1x4x5x3xi8", r="1x4x5x3xi8")
    x, y = f.dequantize("%q", SCALE, ZERO), f.dequantize("%r", SCALE, ZERO)
    number = f.number(0.1 if kind == "another threshold" else 0.0, x, "f32")
    tested = y if kind == "two values" else x
    other = f.op("add", [y, f.number(0.5, x, "f32")], f.types[x]) if kind == "another value" else f.mul(
        x, f.const(SLOPES[:3].reshape(1, 1, 1, 3), "f32"), f.types[x]
    )  # fmt: skip
    y = f.op("select", [f.op("greater", [tested, number], f.like(x, "i1")), x, other], f.types[x])
    text = f.module(f.quantize(y, RESULT, RESULT_ZERO))
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.applied == []
    assert {e["reason"] for e in report.missed} == {
        "the elementwise operation has no integer form: a choice by cmpf of dequantized values"
    }
    a, b = (stored_bytes(SHAPE, ZERO, seed)[0] for seed in (4, 5))
    assert (tosa.run(str(module), [a, b])[0] == tosa.run(text, [a, b])[0]).all()
