"""Every operation that `tosa-int` writes: valid, in integers, and right on the reference model.

The unfused module is the oracle: it quantizes what real arithmetic in f32 gives. A fused result may be one step off
where that is within rounding of a tie.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines

#: What computes on floats in a module that is integer between its quantizes and dequantizes.
HEAVY = (
    "tosa.matmul", "tosa.conv2d", "tosa.conv3d", "tosa.depthwise_conv2d", "tosa.transpose_conv2d", "tosa.max_pool2d",
    "tosa.avg_pool2d", "tosa.reduce_sum", "tosa.reduce_max", "tosa.maximum", "tosa.minimum", "tosa.concat",
    "tosa.transpose", "tosa.reshape", "tosa.pad", "tosa.gather", "tosa.tanh", "tosa.exp", "tosa.erf",
)  # fmt: skip

Build = Callable[[Lines], str]


def quantized(f: Lines, value: str, scale: float, zero: int, bits: int = 8) -> str:
    """A value through a quantize and a dequantize."""
    half = 1 << (bits - 1)
    q = f.quantize(value, np.float32(scale), zero, -half, half - 1, f"i{bits}")
    return f.dequantize(q, np.float32(scale), zero)


def weights(f: Lines, shape: tuple[int, ...], scale: float = 0.01) -> str:
    """A dequantized constant."""
    stored = np.random.default_rng(7).integers(-127, 128, shape)
    return f.dequantize(f.const(stored, "i8"), np.float32(scale))


def bias(f: Lines, n: int) -> str:
    return f.const(np.random.default_rng(8).normal(0, 0.5, n), "f32")


def convolution(name: str, x: str, w: tuple[int, ...], out: str, pad: str, bits: int = 8) -> tuple[str, Build]:
    """A convolution of `x` with constant weights of shape `w`."""

    def build(f: Lines) -> str:
        channels = int(out.split("x")[-2])
        return f.conv(
            name, quantized(f, "%x", 0.02, 5 if bits == 8 else 0, bits), weights(f, w), bias(f, channels), out, pad
        )

    return x, build


def of_one(x: str, write: Callable[[Lines, str], str], scale: float = 0.02, zero: int = 5) -> tuple[str, Build]:
    """Something of one quantized tensor."""
    return x, lambda f: write(f, quantized(f, "%x", scale, zero))


def of_two(x: str, name: str) -> tuple[str, Build]:
    """An elementwise operation of two tensors of different parameters."""

    def build(f: Lines) -> str:
        a = quantized(f, "%x", 0.02, 5)
        b = quantized(f, f.op("reverse", ["%x"], f.types["%x"], "axis = 1 : i32"), 0.013, -7)
        return f.mul(a, b, f.types["%x"]) if name == "mul" else f.op(name, [a, b], f.types["%x"])

    return x, build


def matmul(f: Lines, x: str) -> str:
    shape = f.shape(x)
    zero = f.const(0.0, "f32")
    return f.op("matmul", [x, weights(f, (shape[0], shape[2], 5)), zero, zero], f"{shape[0]}x{shape[1]}x5xf32")


def product_of_two(f: Lines, x: str) -> str:
    """Both operands at run time, both zero points not 0."""
    n, m, k = f.shape(x)
    other = f.op("transpose", [quantized(f, "%x", 0.03, -9)], f"{n}x{k}x{m}xf32", "perms = array<i32: 0, 2, 1>")
    zero = f.const(0.0, "f32")
    return f.op("matmul", [x, other, zero, zero], f"{n}x{m}x{m}xf32")


def pool(name: str, pad: str = "0, 0, 0, 0", out: str = "1x3x3x3xf32") -> Callable[[Lines, str], str]:
    def write(f: Lines, x: str) -> str:
        kind = "nan_mode = PROPAGATE" if name == "max_pool2d" else "acc_type = f32"
        zeros = [] if name == "max_pool2d" else [f.const(0.0, "f32"), f.const(0.0, "f32")]
        window = f"kernel = array<i64: 2, 2>, pad = array<i64: {pad}>, stride = array<i64: 2, 2>"
        return f.op(name, [x, *zeros], out, f"{kind}, {window}")

    return write


def interpolated(f: Lines, x: str) -> str:
    """Between neighbours, by weights that vary along both dimensions and are 0 in places."""
    other = quantized(f, f.op("reverse", ["%x"], f.types[x], "axis = 1 : i32"), 0.02, 5)
    rows, columns = f.const([[[0.0]], [[0.75]], [[0.25]], [[1.0]]], "f32"), f.const([[[0.0, 0.25, 0.75, 0.5]]], "f32")
    along = f.op("add", [x, f.mul(f.op("sub", [other, x], f.types[x]), columns, f.types[x])], f.types[x])
    return f.op("add", [x, f.mul(f.op("sub", [along, x], f.types[x]), rows, f.types[x])], f.types[x])


def concat(f: Lines, x: str) -> str:
    """Of branches with different parameters."""
    other = quantized(f, "%x", 0.031, -20)
    shape = f.shape(x)
    out = "x".join(map(str, [shape[0], 2 * shape[1], *shape[2:]])) + "xf32"
    return f.op("concat", [x, other], out, "axis = 1 : i32")


def pad(f: Lines, x: str) -> str:
    return f.op("pad", [x, f.const_shape([0, 0, 1, 2]), f.const(0.0, "f32")], "4x11xf32")


def gather(f: Lines, x: str) -> str:
    return f.op("gather", [x, f.const([[2, 0, 2, 1]], "i32")], "1x4x6xf32")


def sliced(f: Lines, x: str) -> str:
    return f.op("slice", [x, f.const_shape([1, 2]), f.const_shape([2, 5])], "2x5xf32")


def moved(f: Lines, x: str) -> str:
    """Moves that do not cancel."""
    t = f.op("transpose", [x], "8x4xf32", "perms = array<i32: 1, 0>")
    return f.op("reshape", [t, f.const_shape([2, 16])], "2x16xf32")


def unary(name: str) -> Callable[[Lines, str], str]:
    return lambda f, x: f.op(name, [x], f.types[x])


def clamp(f: Lines, x: str) -> str:
    return f.op("clamp", [matmul(f, x)], "1x4x5xf32", "max_val = 3.40282347E+38 : f32, min_val = 0.0 : f32")


PAD = "pad = array<i64: 1, 0, 0, 1>"
CASES: dict[str, tuple[str, Build]] = {
    "conv2d": convolution("conv2d", "1x6x6x3xf32", (4, 3, 3, 3), "1x5x5x4xf32", PAD),
    "conv2d of 16 bits": convolution("conv2d", "1x6x6x3xf32", (4, 3, 3, 3), "1x5x5x4xf32", PAD, 16),
    "depthwise_conv2d": convolution("depthwise_conv2d", "1x6x6x3xf32", (3, 3, 3, 1), "1x5x5x3xf32", PAD),
    "depthwise_conv2d by 2": convolution("depthwise_conv2d", "1x6x6x3xf32", (3, 3, 3, 2), "1x5x5x6xf32", PAD),
    "conv3d": convolution(
        "conv3d", "1x4x4x4x2xf32", (3, 2, 2, 2, 2), "1x3x3x3x3xf32", "pad = array<i64: 0, 0, 0, 0, 0, 0>"
    ),
    "transpose_conv2d": convolution(
        "transpose_conv2d", "1x4x4x3xf32", (4, 2, 2, 3), "1x5x5x4xf32", "out_pad = array<i64: 0, 0, 0, 0>"
    ),
    "matmul": of_one("1x4x8xf32", matmul),
    "matmul of two": of_one("2x4x8xf32", product_of_two),
    "relu": of_one("1x4x8xf32", clamp),
    "max_pool2d": of_one("1x6x6x3xf32", pool("max_pool2d")),
    "max_pool2d with padding": of_one("1x6x6x3xf32", pool("max_pool2d", "1, 1, 1, 1", "1x4x4x3xf32")),
    "avg_pool2d": of_one("1x6x6x3xf32", pool("avg_pool2d")),
    "reduce_sum": of_one("4x8xf32", lambda f, x: f.op("reduce_sum", [x], "4x1xf32", "axis = 1 : i32")),
    "reduce_max": of_one(
        "4x8xf32", lambda f, x: f.op("reduce_max", [x], "4x1xf32", "axis = 1 : i32, nan_mode = PROPAGATE")
    ),
    **{name: of_two("4x8xf32", name) for name in ("add", "sub", "mul", "maximum", "minimum")},
    "interpolation": of_one("4x3x4xf32", interpolated),
    "concat": of_one("2x3x4xf32", concat),
    **{name: of_one("4x8xf32", unary(name)) for name in ("tanh", "exp", "erf")},
    "reshape and transpose": of_one("4x8xf32", moved),
    "slice": of_one("4x8xf32", sliced),
    "pad": of_one("4x8xf32", pad),
    "gather": of_one("1x3x6xf32", gather),
}  # fmt: skip


def both(name: str) -> tuple[str, str, qfuse.Report, float]:
    """The module of a case before and after, the report, and the step of its result."""
    type_, build = CASES[name]
    f = Lines(x=type_)
    result = build(f)
    bits = 16 if "16" in name else 8
    step = 0.05 if bits == 8 else 0.001
    text = f.module(quantized(f, result, step, -11 if bits == 8 else 0, bits))
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    return text, str(module), report, step


def floats_in(text: str) -> list[str]:
    """Operations on floats that are no steps of a quantize or dequantize."""
    return [line for line in text.splitlines() if any(f"= {name} " in line for name in HEAVY) and "xf32" in line]


@pytest.mark.parametrize("name", CASES)
def test_operation(name: str) -> None:
    """Integer between quantize and dequantize, valid in the profiles it needs, and within a step of the oracle."""
    text, after, report, step = both(name)
    assert report.missed == []
    reversed_ = [line for line in floats_in(after) if "tosa.reverse" not in line]
    assert reversed_ == []
    needs = tosa.validate(after)
    assert set(needs.extensions) <= ({"int16"} if "16" in name else set())
    shape = [int(n) for n in CASES[name][0].split("x")[:-1]]
    rng = np.random.default_rng(len(name))
    inputs = [
        rng.normal(0, 1, shape).astype(np.float32),
        (rng.integers(-200, 200, shape) * np.float32(0.01)).astype(np.float32),  # ties of the first quantize
        rng.choice(np.array([-1e9, 0, 1e9], np.float32), shape),
    ]
    for x in inputs:
        (want,), (got,) = tosa.run(text, [x]), tosa.run(after, [x])
        off = np.round((got - want) / step)
        assert np.abs(off).max() <= 1
        assert np.count_nonzero(off) <= max(1, off.size // 20)


@pytest.mark.parametrize("name", ["conv2d", "depthwise_conv2d by 2", "matmul of two", "add", "concat", "avg_pool2d"])
def test_again_changes_nothing(name: str) -> None:
    _, after, _, _ = both(name)
    module = Bindings.first_available().parse_source(after, "module")
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == after


@pytest.mark.parametrize("high", [127, 255])
def test_zero_points_at_run_time(high: int) -> None:
    """Of dynamic quantization, signed and unsigned, against real arithmetic."""
    low = high - 255
    f = Lines(x="1x4x8xf32", z="1x1x1xi32")
    float_zero = f.op("cast", ["%z"], "1x1x1xf32")
    rounded = f.round(f.mul("%x", f.number(50.0, "%x", "f32"), "1x4x8xf32"))
    bounds = f"max_val = {float(high)} : f32, min_val = {float(low)} : f32"
    clamped = f.op("clamp", [f.op("add", [rounded, float_zero], "1x4x8xf32")], "1x4x8xf32", bounds)
    wide = f.op("cast", [f.op("cast", [clamped], "1x4x8xi8")], "1x4x8xi32")
    less = f.op("cast", [f.op("sub", [wide, "%z"], "1x4x8xi32")], "1x4x8xf32")
    x = f.mul(less, f.number(0.02, "%x", "f32"), "1x4x8xf32")
    module = Bindings.first_available().parse_source(f.module(matmul(f, x)), "module")
    assert qfuse.fuse(module, "tosa-int").summary["integer_ops"] == 1
    assert "tosa.matmul" in str(module)
    assert floats_in(str(module)) == []
    data = np.random.default_rng(5).normal(0, 1, (1, 4, 8)).astype(np.float32)
    stored = np.random.default_rng(7).integers(-127, 128, (1, 8, 5)) * 0.01
    for zero in (low, low + 128, high - 20):
        (got,) = tosa.run(module, [data, np.full((1, 1, 1), zero, np.int32)])
        exact = (np.clip(np.round(data * np.float32(50)) + zero, low, high) - zero) * 0.02
        assert np.allclose(got, exact @ stored, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["conv2d", "depthwise_conv2d", "conv2d by one point"])
@pytest.mark.parametrize("zero", [-128, 5, 127])
def test_padding_of_zero_points_at_run_time(name: str, zero: int) -> None:
    """What a window reads of the padding is no zero point that is subtracted."""
    taps = (1, 1) if "point" in name else (3, 2)
    f = Lines(x="2x6x5x3xf32", z="1x1x1x1xi32")
    float_ = f.types["%x"]
    rounded = f.round(f.mul("%x", f.number(50.0, "%x", "f32"), float_))
    shifted = f.op("add", [rounded, f.op("cast", ["%z"], "1x1x1x1xf32")], float_)
    clamped = f.op("clamp", [shifted], float_, "max_val = 127.0 : f32, min_val = -128.0 : f32")
    wide = f.op("cast", [f.op("cast", [clamped], f.like("%x", "i8"))], f.like("%x", "i32"))
    less = f.op("cast", [f.op("sub", [wide, "%z"], f.like("%x", "i32"))], float_)
    x = f.mul(less, f.number(0.02, "%x", "f32"), float_)
    depthwise = name.startswith("depthwise")
    shape = (*taps, 3, 2) if depthwise else (4, *taps, 3)
    w = weights(f, shape)
    height, width = 6 + 1 + 2 - taps[0] + 1, 5 + 1 + 0 - taps[1] + 1
    channels = 6 if depthwise else 4
    out = f"2x{height}x{width}x{channels}xf32"
    y = f.conv(name.split()[0], x, w, bias(f, channels), out, "pad = array<i64: 1, 2, 1, 0>")
    text = f.module(y)
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    assert report.summary["integer_ops"] == 1
    assert floats_in(str(module)) == []
    tosa.validate(module)
    for data in (np.random.default_rng(5).normal(0, 2, (2, 6, 5, 3)), np.full((2, 6, 5, 3), 9.0)):
        inputs = [data.astype(np.float32), np.full((1, 1, 1, 1), zero, np.int32)]
        (want,), (got,) = tosa.run(text, inputs), tosa.run(module, inputs)
        assert np.allclose(got, want, rtol=1e-5, atol=1e-4)


def test_zero_points_of_bytes_at_run_time() -> None:
    """Added as floats by the quantize: corrected as the integers that they are, and left alone by a second run."""
    f = Lines(x="1x4x8xf32", z="1x4x1xi8")
    float_zero = f.op("cast", ["%z"], "1x4x1xf32")
    rounded = f.round(f.mul("%x", f.number(50.0, "%x", "f32"), "1x4x8xf32"))
    bounds = "max_val = 127.0 : f32, min_val = -128.0 : f32"
    clamped = f.op("clamp", [f.op("add", [rounded, float_zero], "1x4x8xf32")], "1x4x8xf32", bounds)
    stored = f.op("cast", [clamped], "1x4x8xi8")
    less = f.op("sub", [f.op("cast", [stored], "1x4x8xf32"), float_zero], "1x4x8xf32")
    result = matmul(f, f.mul(less, f.number(0.02, "%x", "f32"), "1x4x8xf32"))
    module = Bindings.first_available().parse_source(f.module(result), "module")
    assert qfuse.fuse(module, "tosa-int").summary["integer_ops"] == 1
    after = str(module)
    assert "(tensor<1x4x1xf32>) -> tensor<1x4x1xi32>" not in after
    again = qfuse.fuse(module, "tosa-int")
    assert again.applied == []
    assert str(module) == after
    data = np.random.default_rng(5).normal(0, 1, (1, 4, 8)).astype(np.float32)
    zero = np.array([-128, -3, 0, 127], np.int8).reshape(1, 4, 1)
    exact = (np.clip(np.round(data * np.float32(50)) + zero, -128, 127) - zero) * 0.02
    (got,) = tosa.run(module, [data, zero])
    assert np.allclose(got, exact @ (np.random.default_rng(7).integers(-127, 128, (1, 8, 5)) * 0.01), atol=1e-5)
