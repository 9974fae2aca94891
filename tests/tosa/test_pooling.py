"""Means in TOSA: windows that leave out padding, sums of sums, padding that counts. Against real arithmetic.

The input is an i8 tensor, so that the reference is exact: what is divided is an integer. A result may differ from the
nearest step only where the real value is a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines, stored_bytes

Array = np.ndarray[Any, Any]

SHAPE = (1, 7, 6, 3)
SCALE, ZERO = 0.02, 5
#: Name: kernel, stride, padding (top, bottom, left, right), extents of the result.
WINDOWS = {
    "none": ((2, 2), (1, 2), (0, 0, 0, 0), (6, 3)),
    "around": ((3, 3), (2, 1), (1, 1, 1, 1), (4, 6)),
    "behind": ((2, 3), (2, 2), (0, 1, 0, 1), (4, 3)),
    "before": ((3, 2), (2, 2), (2, 0, 0, 0), (4, 3)),
    "wide": ((3, 3), (1, 1), (2, 2, 2, 2), (9, 8)),
}
#: Scale and zero point of the result: finer, the same, and coarser with another zero point.
RESULTS = {"finer": (0.0071, -11), "same": (SCALE, ZERO), "coarser": (0.04, 3)}


def inputs(shape: tuple[int, ...]) -> list[Array]:
    """Random, extreme, and small integers whose means are ties often."""
    return stored_bytes(shape, ZERO, 3)


def mean(q: Array, kernel: Any, stride: Any, pad: Any, out: Any, counted: bool = False) -> Array:
    """Means of windows of `q - ZERO`, of what is not padding or with zeros for it."""
    top, bottom, left, right = pad
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    values = np.pad(q.astype(np.float64) - ZERO, around)
    there = np.pad(np.ones(q.shape), around, constant_values=1 if counted else 0)
    found = np.empty((q.shape[0], *out, q.shape[3]))
    for i, j in np.ndindex(*out):
        rows = slice(i * stride[0], i * stride[0] + kernel[0])
        columns = slice(j * stride[1], j * stride[1] + kernel[1])
        total = values[:, rows, columns].sum((1, 2))
        found[:, i, j] = total / there[:, rows, columns].sum((1, 2))
    return found


def pooled(window: str, result: str, *, counted: bool = False, low: int = -128, bits: int = 8) -> str:
    """An average pooling of stored integers, quantized."""
    kernel, stride, pad, out = WINDOWS[window]
    scale, zero = RESULTS[result]
    f = Lines(q="x".join(map(str, SHAPE)) + f"xi{bits}")
    x = f.dequantize("%q", SCALE, ZERO)
    if counted:
        extents = (1, SHAPE[1] + pad[0] + pad[1], SHAPE[2] + pad[2] + pad[3], 3)
        shape = "x".join(map(str, extents)) + "xf32"
        x = f.op("pad", [x, f.const_shape([0, 0, *pad, 0, 0]), f.const(0.0, "f32")], shape)
        pad = (0, 0, 0, 0)
    none = f.const(0.0, "f32")
    how = f"acc_type = f32, kernel = array<i64: {kernel[0]}, {kernel[1]}>, pad = array<i64: {', '.join(map(str, pad))}>"
    y = f.op(
        "avg_pool2d",
        [x, none, none],
        f"1x{out[0]}x{out[1]}x3xf32",
        f"{how}, stride = array<i64: {stride[0]}, {stride[1]}>",
    )
    return f.module(f.quantize(y, scale, zero, low, 127))


def fused(text: str) -> tuple[str, qfuse.Report]:
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    after = str(module)
    assert "f32" not in after
    assert set(tosa.validate(after).extensions) == set()
    again = qfuse.fuse(module, "tosa-int")
    assert again.applied == []
    assert str(module) == after
    return after, report


def is_nearest(got: Array, real: Array, low: int = -128) -> bool:
    """Whether stored integers are within a half of the real value in steps, once clamped; ties may go either way."""
    return bool((np.abs(got - np.clip(real, low, 127)) <= 0.5 + 1e-5).all())


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("counted", [False, True])
def test_average_pooling(window: str, result: str, counted: bool) -> None:
    kernel, stride, pad, out = WINDOWS[window]
    scale, zero = RESULTS[result]
    after, report = fused(pooled(window, result, counted=counted))
    assert report.applied[-1]["exactness"] == "within-1-lsb"
    assert report.applied[-1]["tie_distance"] < 1e-5
    one = result == "same"
    assert [after.count(f"tosa.{name} ") for name in ("avg_pool2d", "depthwise_conv2d", "rescale")] == [
        one,
        not one,
        not one,
    ]
    for q in inputs(SHAPE):
        (got,) = tosa.run(after, [q])
        real = mean(q, kernel, stride, pad, out, counted) * (np.float32(SCALE) / np.float64(np.float32(scale))) + zero
        assert is_nearest(got, real)


@pytest.mark.parametrize("zero", [-128, 127])
def test_one_operation_with_narrower_bounds(zero: int) -> None:
    """The clamp of the quantize follows; the extreme zero points are operands."""
    f = Lines(q="1x7x6x3xi8")
    none = f.const(0.0, "f32")
    window = "kernel = array<i64: 3, 3>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 1>"
    y = f.op("avg_pool2d", [f.dequantize("%q", SCALE, zero), none, none], "1x4x6x3xf32", f"acc_type = f32, {window}")
    y = f.op("clamp", [y], "1x4x6x3xf32", "max_val = 1.0 : f32, min_val = -1.0 : f32")
    narrow, _ = fused(f.module(f.quantize(y, SCALE, zero, -100, 90)))
    assert "tosa.rescale" in narrow  # the clamp before the quantize is of the epilogue
    f = Lines(q="1x7x6x3xi8")
    none = f.const(0.0, "f32")
    y = f.op("avg_pool2d", [f.dequantize("%q", SCALE, zero), none, none], "1x4x6x3xf32", f"acc_type = f32, {window}")
    after, _ = fused(f.module(f.quantize(y, SCALE, zero, -100, 90)))
    assert after.count("tosa.avg_pool2d") == 1
    for q in inputs(SHAPE):
        real = mean(q, (3, 3), (2, 1), (1, 1, 1, 1), (4, 6)) + ZERO
        (got,) = tosa.run(after, [q])
        assert is_nearest(got, np.clip(real, -100, 90))


@pytest.mark.parametrize("scaling", ["double", "inexact"])
def test_one_operation_rounds_once_whatever_the_scaling(scaling: str) -> None:
    module = Bindings.first_available().parse_source(pooled("around", "same"), "module")
    report = qfuse.fuse(module, "tosa-int", scaling=scaling)
    assert report.applied[-1]["scaling"] == "single"
    assert "tosa.rescale" not in str(module)
    assert set(tosa.validate(module).extensions) == set()


def test_powers_of_two_only() -> None:
    """A division by nine is no shift, one by four is."""
    module = Bindings.first_available().parse_source(pooled("around", "same"), "module")
    report = qfuse.fuse(module, "tosa-int", epilogue="power-of-two")
    assert [e["reason"] for e in report.missed][-1].startswith("the scale to the result must be a power of two")
    module = Bindings.first_available().parse_source(pooled("none", "same"), "module")
    assert qfuse.fuse(module, "tosa-int", epilogue="power-of-two").missed == []
    assert "tosa.depthwise_conv2d" in str(module)


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (3, 2, 1), (0, 1, 3)])
def test_sums_of_sums_are_one_sum(axes: tuple[int, ...]) -> None:
    """The mean over several dimensions, which TOSA spells as one sum a dimension."""
    shape = (2, 5, 4, 3)
    f = Lines(q="2x5x4x3xi8")
    x = f.dequantize("%q", SCALE, ZERO)
    for axis in axes:
        extents = f.shape(x)
        extents[axis] = 1
        x = f.op("reduce_sum", [x], "x".join(map(str, extents)) + "xf32", f"axis = {axis} : i32")
    size = int(np.prod([shape[a] for a in axes]))
    x = f.mul(x, f.number(1.0 / size, x, "f32"), f.types[x])
    after, report = fused(f.module(f.quantize(x, 0.0113, -4)))
    assert [e["fusion"] for e in report.applied] == ["qfuse.sum", "qfuse.requantize"]
    assert after.count("tosa.reduce_sum") == len(axes)
    assert report.summary["quantized_compute_ops"] == report.summary["integer_ops"] == 1
    assert after.count("tosa.rescale") == 1
    for q in inputs(shape):
        (got,) = tosa.run(after, [q])
        real = (q.astype(np.float64) - ZERO).mean(axes, keepdims=True) * SCALE / np.float32(0.0113) - 4
        assert is_nearest(got, real)


def test_a_mean_of_means_through_moves() -> None:
    """Divisions and layout operations between two sums."""
    f = Lines(q="2x5x4x3xi8")
    x = f.dequantize("%q", SCALE, ZERO)
    x = f.op("reduce_sum", [x], "2x5x1x3xf32", "axis = 2 : i32")
    x = f.mul(x, f.number(0.25, x, "f32"), f.types[x])
    x = f.op("transpose", [x], "3x2x1x5xf32", "perms = array<i32: 3, 0, 2, 1>")
    x = f.op("reshape", [x, f.const_shape([3, 2, 5])], "3x2x5xf32")
    x = f.op("reduce_sum", [x], "3x2x1xf32", "axis = 2 : i32")
    x = f.mul(x, f.number(0.2, x, "f32"), f.types[x])
    after, _ = fused(f.module(f.quantize(x, 0.0113, -4)))
    for q in inputs((2, 5, 4, 3)):
        (got,) = tosa.run(after, [q])
        real = (q.astype(np.float64) - ZERO).mean((1, 2)).T[:, :, None] * SCALE / np.float32(0.0113) - 4
        assert is_nearest(got, real)


def test_a_sum_behind_what_is_not_linear_stays() -> None:
    """A clamp between two sums does not commute with the second."""
    f = Lines(q="2x5x4x3xi8")
    x = f.op("reduce_sum", [f.dequantize("%q", SCALE, ZERO)], "2x5x1x3xf32", "axis = 2 : i32")
    x = f.op("clamp", [x], f.types[x], "max_val = 1.0 : f32, min_val = 0.0 : f32")
    x = f.op("reduce_sum", [x], "2x1x1x3xf32", "axis = 1 : i32")
    module = Bindings.first_available().parse_source(f.module(f.quantize(x, 0.1, -4)), "module")
    report = qfuse.fuse(module, "tosa-int")
    reasons = {e["reason"] for e in report.missed}
    assert "no fusion is registered for a sum over dimensions on accumulators" in reasons


@pytest.mark.parametrize("high", [127, 255])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_first_place_of_the_greatest(axis: int, high: int) -> None:
    """Of signed and of unsigned bytes, whose order is kept 128 less."""
    zero = -3 if high == 127 else 140
    f = Lines(x="4x5x3xf32")
    x = f.dequantize(f.quantize("%x", SCALE, zero, high - 255, high), SCALE, zero)
    result = "x".join(str(n) for i, n in enumerate((4, 5, 3)) if i != axis) + "xi32"
    text = f.module(f.op("argmax", [x], result, f"axis = {axis} : i32, nan_mode = PROPAGATE"))
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert [e["fusion"] for e in report.applied if "repair" not in e["fusion"]] == ["qfuse.argmax"]
    assert report.missed == []
    assert "xi8>) -> tensor" in next(line for line in str(module).splitlines() if "tosa.argmax" in line)
    assert set(tosa.validate(module).extensions) == set()
    again = str(module)
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == again
    for q in inputs((4, 5, 3)):
        stored = q.astype(np.int64) + high - 127
        (got,) = tosa.run(module, [((stored - zero) * np.float32(SCALE)).astype(np.float32)])
        np.testing.assert_array_equal(got, stored.argmax(axis))


def test_one_operation_on_unsigned_bytes() -> None:
    """They are kept 128 less: so are both zero points."""
    f = Lines(x="1x7x6x3xf32")
    x = f.dequantize(f.quantize("%x", SCALE, 140, 0, 255), SCALE, 140)
    none = f.const(0.0, "f32")
    window = "kernel = array<i64: 3, 3>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 1>"
    y = f.op("avg_pool2d", [x, none, none], "1x4x6x3xf32", f"acc_type = f32, {window}")
    module = Bindings.first_available().parse_source(
        f.module(f.dequantize(f.quantize(y, SCALE, 140, 0, 255), SCALE, 140)), "module"
    )
    assert qfuse.fuse(module, "tosa-int").missed == []
    assert str(module).count("tosa.avg_pool2d") == 1
    for q in inputs(SHAPE):
        stored = q.astype(np.int64) + 128
        (got,) = tosa.run(module, [((stored - 140) * np.float32(SCALE)).astype(np.float32)])
        real = mean(stored - 140 + ZERO, (3, 3), (2, 1), (1, 1, 1, 1), (4, 6))
        assert (np.abs(got / np.float32(SCALE) - real) <= 0.5 + 1e-4).all()


@pytest.mark.parametrize("quantized", [False, True])
def test_padded_sums_that_others_read_as_floats(quantized: bool) -> None:
    """A pad behind sums is by the zero point where these are quantized, and by 0.0 in their float value."""
    f = Lines(q="2x5x4x3xi8")
    x = f.op("reduce_sum", [f.dequantize("%q", SCALE, ZERO)], "2x5x1x3xf32", "axis = 2 : i32")
    x = f.op("pad", [x, f.const_shape([0, 0, 1, 2, 0, 0, 0, 1]), f.const(0.0, "f32")], "2x8x1x4xf32")
    y = f.op("exp", [x], f.types[x])
    text = f.module(y, f.quantize(x, 0.0513, -4)) if quantized else f.module(y)
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.summary["integer_ops"] == 1
    after = str(module)
    tosa.validate(after)
    for q in inputs((2, 5, 4, 3)):
        sums = (q.astype(np.float64) - ZERO).sum(2, keepdims=True) * np.float32(SCALE)
        real = np.pad(sums, ((0, 0), (1, 2), (0, 0), (0, 1)))
        values = tosa.run(after, [q])
        np.testing.assert_allclose(values[0], np.exp(real), rtol=1e-5)
        if quantized:
            assert is_nearest(values[1], real / np.float32(0.0513) - 4)
