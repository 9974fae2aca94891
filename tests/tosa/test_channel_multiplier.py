"""Depthwise convolutions with several results a channel, whose filters' parameters vary: against real arithmetic.

The parameters of result channel `c * M + m` are those of the filter `[c, m]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines, stored_bytes
from tests.tosa.test_execution import floats_in

Array = np.ndarray[Any, Any]

SHAPE = (2, 6, 5, 3)
SCALE, ZERO = 0.02, 7
RESULT = (0.11, -9)
#: Shape of the filters' parameters, for 4 results a channel.
VARYING = {
    "of each result": (1, 1, 3, 4),
    "of each channel": (1, 1, 3, 1),
    "of each result of a channel": (1, 1, 1, 4),
    "of all": (1, 1, 1, 1),
}
PAD = (1, 0, 0, 1)


def scales_of(shape: tuple[int, ...]) -> Array:
    return np.geomspace(0.002, 0.02, int(np.prod(shape))).reshape(shape).astype(np.float32)


def zeros_of(shape: tuple[int, ...]) -> Array:
    return (np.arange(int(np.prod(shape))) * 3 % 11 - 5).reshape(shape)


def filters_of(multiplier: int, low: int = -128, high: int = 127) -> Array:
    """Random ones with both extremes."""
    found = np.random.default_rng(5).integers(low, high + 1, (3, 3, SHAPE[3], multiplier))
    found.reshape(-1)[:2] = low, high
    return found


def bias_of(n: int) -> Array:
    return np.random.default_rng(6).normal(0, 2, n).astype(np.float32)


def convolved(x: Array, w: Array) -> Array:
    """In real arithmetic, with steps of 1."""
    (top, bottom, left, right), (height, width) = PAD, w.shape[:2]
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    out = x.shape[1] - height + 1, x.shape[2] - width + 1
    windows = [x[:, i : i + out[0], j : j + out[1], :, None] * w[i, j] for i in range(height) for j in range(width)]
    return np.sum(windows, axis=0).reshape(x.shape[0], *out, -1)


def convolution(f: Lines, x: str, w: str) -> str:
    n = int(np.prod(f.shape(w)[2:]))
    pad = f"pad = array<i64: {', '.join(map(str, PAD))}>"
    return f.conv("depthwise_conv2d", x, w, f.const(bias_of(n), "f32"), f"{SHAPE[0]}x5x4x{n}xf32", pad)


def check(text: str, inputs: list[Array], real: Any, step: float, low: int, high: int) -> str:
    """All integers but for a dequantize at the end; results as near to real arithmetic as the report says."""
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    after = str(module)
    assert report.missed == []
    assert floats_in(after) == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.convolution", "qfuse.requantize"]
    assert report.applied[1]["exactness"] == "within-1-lsb"
    near = 0.5 + report.applied[1]["tie_distance"] + 1e-6
    tosa.validate(after)
    for q in inputs:
        (got,) = tosa.run(after, [q])
        want = np.clip(real(q) / np.float32(step) + RESULT[1], low, high)
        assert np.abs(got - want).max() <= near
        assert np.unique(got).size > 3
    assert qfuse.fuse(module, "tosa-int").applied == []
    return after


@pytest.mark.parametrize("zero", [False, True], ids=["", "zero points too"])
@pytest.mark.parametrize("varying", VARYING)
def test_scales(varying: str, zero: bool) -> None:
    shape = VARYING[varying]
    scales, zeros = scales_of(shape), zeros_of(shape) if zero else np.zeros(shape, np.int64)
    stored = filters_of(4, *((-120, 120) if zero else (-128, 127)))
    f = Lines(q="x".join(map(str, (*SHAPE, "i8"))))
    w = f.dequantize(f.const(stored, "i8"), scales, zeros)
    text = f.module(f.quantize(convolution(f, f.dequantize("%q", SCALE, ZERO), w), *RESULT))

    def real(q: Array) -> Array:
        x = (q.astype(np.float64) - ZERO) * np.float32(SCALE)
        return convolved(x, (stored - zeros) * scales.astype(np.float64)) + bias_of(12)

    after = check(text, stored_bytes(SHAPE, ZERO, 3), real, RESULT[0], -128, 127)
    assert f"per_channel = {'false' if varying == 'of all' else 'true'}" in after


@pytest.mark.parametrize("multiplier", [1, 2, 5])
def test_filters_in_the_order_of_a_framework(multiplier: int) -> None:
    """`[results, 1, height, width]`, quantized a result, transposed and reshaped in float."""
    n = 3 * multiplier
    scales = scales_of((n, 1, 1, 1))
    stored = filters_of(multiplier).reshape(3, 3, n, 1).transpose(2, 3, 0, 1)
    f = Lines(q="x".join(map(str, (*SHAPE, "i8"))))
    w = f.dequantize(f.const(stored, "i8"), scales)
    w = f.op("transpose", [w], f"3x3x{n}x1xf32", "perms = array<i32: 2, 3, 0, 1>")
    w = f.op("reshape", [w, f.const_shape([3, 3, 3, multiplier])], f"3x3x3x{multiplier}xf32")
    text = f.module(f.quantize(convolution(f, f.dequantize("%q", SCALE, ZERO), w), *RESULT))

    def real(q: Array) -> Array:
        x = (q.astype(np.float64) - ZERO) * np.float32(SCALE)
        return convolved(x, filters_of(multiplier) * scales.astype(np.float64).reshape(3, multiplier)) + bias_of(n)

    check(text, stored_bytes(SHAPE, ZERO, 3), real, RESULT[0], -128, 127)


def test_scales_of_the_input_too() -> None:
    """They are read at `channel floordiv 4`."""
    scales, own = scales_of((1, 1, 3, 4)), np.asarray([0.01, 0.02, 0.05], np.float32)
    f = Lines(q="x".join(map(str, (*SHAPE, "i8"))))
    w = f.dequantize(f.const(filters_of(4), "i8"), scales)
    x = f.dequantize("%q", own.reshape(1, 1, 1, 3), ZERO)
    text = f.module(f.quantize(convolution(f, x, w), *RESULT))

    def real(q: Array) -> Array:
        return convolved((q.astype(np.float64) - ZERO) * own, filters_of(4) * scales.astype(np.float64)) + bias_of(12)

    check(text, stored_bytes(SHAPE, ZERO, 3), real, RESULT[0], -128, 127)


def test_sixteen_bits() -> None:
    scales, zero = scales_of((1, 1, 3, 4)), 300
    f = Lines(q="x".join(map(str, (*SHAPE, "i16"))))
    w = f.dequantize(f.const(filters_of(4), "i8"), scales)
    x = f.dequantize("%q", 1e-4, zero)
    text = f.module(f.quantize(convolution(f, x, w), 6e-4, RESULT[1], -32768, 32767, "i16"))

    def real(q: Array) -> Array:
        x = (q.astype(np.float64) - zero) * np.float32(1e-4)
        return convolved(x, filters_of(4) * scales.astype(np.float64)) + bias_of(12)

    rng = np.random.default_rng(4)
    inputs = [rng.integers(-32768, 32768, SHAPE), rng.choice([-32768, 32767], SHAPE), np.full(SHAPE, zero)]
    after = check(text, [q.astype(np.int16) for q in inputs], real, 6e-4, -32768, 32767)
    assert "xi48>" in after


def test_a_float_result() -> None:
    """The sums are scaled by a constant of 12 channels."""
    scales = scales_of((1, 1, 3, 4))
    f = Lines(q="x".join(map(str, (*SHAPE, "i8"))))
    w = f.dequantize(f.const(filters_of(4), "i8"), scales)
    module = Bindings.first_available().parse_source(
        f.module(convolution(f, f.dequantize("%q", SCALE, ZERO), w)), "module"
    )
    report = qfuse.fuse(module, "tosa-int")
    assert [e["fusion"] for e in report.applied] == ["qfuse.convolution"]
    assert "acc_type = i32" in str(module)
    for q in stored_bytes(SHAPE, ZERO, 3):
        (got,) = tosa.run(module, [q])
        x = (q.astype(np.float64) - ZERO) * np.float32(SCALE)
        want = convolved(x, filters_of(4) * scales.astype(np.float64)) + bias_of(12)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)
