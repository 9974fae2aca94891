"""16 bits in TOSA: unsigned ones in i32 containers and signed ones, executed on the reference model.

The unfused module runs on it too; the two may differ by as many steps as the report states.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.emit.tosa_products import digits_of
from qfuse.integrations import tosa
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in

Build = Callable[[Lines, str], str]

#: Zero points and bounds of the quantizes: unsigned 16 bits in i32, signed ones in i16.
KINDS = {
    "unsigned": (30689, 0, 65535, "i32"),
    "unsigned from zero": (0, 0, 65535, "i32"),
    "unsigned in the middle": (32768, 0, 65535, "i32"),
    "signed in i32": (-1200, -32768, 32767, "i32"),
    "signed": (0, -32768, 32767, "i16"),
    "signed with a zero point": (-1200, -32768, 32767, "i16"),
}


def through(f: Lines, value: str, scale: float, kind: str, plus: int = 0) -> str:
    """A value through a quantize and a dequantize of 16 bits."""
    zero, low, high, element = KINDS[kind]
    zero = zero + plus if zero else 0
    q = f.quantize(value, np.float32(scale), zero, low, high, element)
    return f.dequantize(q, np.float32(scale), zero)


def weights(f: Lines, shape: tuple[int, ...], bits: int = 8, zero: int = 0) -> str:
    """A dequantized constant; its extremes are among it."""
    half = 1 << (bits - 1)
    stored = np.random.default_rng(7).integers(-half, half, shape)
    stored.reshape(-1)[:2] = -half, half - 1
    return f.dequantize(f.const(stored, f"i{bits}"), np.float32(0.01 * 2.0 ** (8 - bits)), zero)


def bias_of(n: int) -> np.ndarray:
    return np.random.default_rng(8).normal(0, 0.5, n)


def bias(f: Lines, n: int) -> str:
    return f.const(bias_of(n), "f32")


def convolution(name: str, w: tuple[int, ...], out: str, pad: str, zero: int = 0, bits: int = 8) -> Build:
    def build(f: Lines, x: str) -> str:
        return f.conv(name, x, weights(f, w, bits, zero), bias(f, int(out.split("x")[-2])), out, pad)

    return build


def strided(name: str, w: tuple[int, ...], out: str, pad: str, stride: str, dilation: str) -> Build:
    how = f"pad = array<i64: {pad}>, stride = array<i64: {stride}>, dilation = array<i64: {dilation}>"

    def build(f: Lines, x: str) -> str:
        operands = [x, weights(f, w, 16, 40), bias(f, w[0]), *[f.const(0.0, "f32")] * 2]
        return f.op(name, operands, out, f"acc_type = f32, {how}")

    return build


def of_volumes(f: Lines, x: str) -> str:
    x = f.op("reshape", [x, f.const_shape([1, 3, 6, 3, 2])], "1x3x6x3x2xf32")
    build = strided("conv3d", (3, 2, 3, 2, 2), "1x3x3x3x3xf32", "0, 1, 0, 1, 1, 0", "1, 2, 1", "1, 1, 1")
    return build(f, x)


def of_two(name: str) -> Callable[[Lines, str, str], str]:
    def build(f: Lines, x: str, kind: str) -> str:
        turned = f.op("reverse", ["%x"], f.types["%x"], "axis = 1 : i32")
        y = through(f, turned, 3.1e-5, kind, 700)
        return f.mul(x, y, f.types[x]) if name == "mul" else f.op(name, [x, y], f.types[x])

    return build


def concat(f: Lines, x: str, kind: str) -> str:
    y = through(f, "%x", 3.1e-5, kind, 700)
    return f.op("concat", [x, y], "1x12x6x3xf32", "axis = 1 : i32")


def max_pool(f: Lines, x: str) -> str:
    window = "kernel = array<i64: 2, 2>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 2, 2>"
    return f.op("max_pool2d", [x], "1x4x4x3xf32", f"nan_mode = PROPAGATE, {window}")


def spread(f: Lines, x: str) -> str:
    """Reshapes and a transpose between the product and its quantize, which i48 has none of; scales of columns."""
    zeros = [f.const(0.0, "f32")] * 2
    stored = np.random.default_rng(7).integers(-32768, 32768, (1, 3, 8))
    w = f.dequantize(f.const(stored, "i16"), np.linspace(1e-5, 4e-5, 8).reshape(1, 1, 8))
    y = f.op("matmul", [f.op("reshape", [x, f.const_shape([1, 36, 3])], "1x36x3xf32"), w, *zeros], "1x36x8xf32")
    y = f.op("reshape", [y, f.const_shape([1, 36, 2, 4])], "1x36x2x4xf32")
    return f.op("transpose", [y], "1x2x36x4xf32", "perms = array<i32: 0, 2, 1, 3>")


def of_rows(f: Lines, x: str) -> str:
    """Scales of both signs that vary along the rows."""
    y = product(16, biased=False)(f, x)
    return f.mul(y, f.const(np.linspace(-1, 2, 6).reshape(1, 6, 1), "f32"), f.types[y])


def avg_pool(pad: str, out: str) -> Build:
    window = f"kernel = array<i64: 2, 2>, pad = array<i64: {pad}>, stride = array<i64: 2, 2>"
    return lambda f, x: f.op("avg_pool2d", [x, *[f.const(0.0, "f32")] * 2], out, f"acc_type = f32, {window}")


def mean(f: Lines, x: str) -> str:
    total = f.op("reduce_sum", [x], "1x1x6x3xf32", "axis = 1 : i32")
    return f.mul(total, f.number(1 / 6, total, "f32"), "1x1x6x3xf32")


def reduced(f: Lines, x: str) -> str:
    return f.op("reduce_max", [x], "1x6x1x3xf32", "axis = 2 : i32, nan_mode = PROPAGATE")


def relu(f: Lines, x: str) -> str:
    return f.op("clamp", [x], f.types[x], "max_val = 3.40282347E+38 : f32, min_val = 0.0 : f32")


def moved(f: Lines, x: str) -> str:
    """Layout operations that do not cancel."""
    t = f.op("transpose", [x], "1x3x6x6xf32", "perms = array<i32: 0, 3, 1, 2>")
    t = f.op("pad", [t, f.const_shape([0, 0, 0, 0, 1, 0, 0, 1]), f.const(0.0, "f32")], "1x3x7x7xf32")
    return f.op("reshape", [t, f.const_shape([3, 49])], "3x49xf32")


def sliced(f: Lines, x: str) -> str:
    return f.op("slice", [x, f.const_shape([0, 1, 2, 0]), f.const_shape([1, 4, 3, 2])], "1x4x3x2xf32")


def product(bits: int, zero: int = 0, biased: bool = True, turned: bool = False) -> Build:
    """Of the rows of `x` by constant weights, or the other way round."""

    def build(f: Lines, x: str) -> str:
        zeros = [f.const(0.0, "f32")] * 2
        if turned:
            y = f.op(
                "matmul",
                [
                    weights(f, (1, 5, 36), bits, zero),
                    f.op("reshape", [x, f.const_shape([1, 36, 3])], "1x36x3xf32"),
                    *zeros,
                ],
                "1x5x3xf32",
            )
            return f.op("add", [y, f.const(np.random.default_rng(3).normal(0, 1, (1, 5, 1)), "f32")], "1x5x3xf32")
        rows = f.op("reshape", [x, f.const_shape([1, 6, 18])], "1x6x18xf32")
        y = f.op("matmul", [rows, weights(f, (1, 18, 5), bits, zero), *zeros], "1x6x5xf32")
        return f.op("add", [y, f.const(bias_of(5).reshape(1, 1, 5), "f32")], "1x6x5xf32") if biased else y

    return build


def product_of_two(f: Lines, x: str, kind: str) -> str:
    y = through(f, "%x", 3.1e-5, kind, 700)
    return multiplied(f, x, y)


def multiplied(f: Lines, x: str, y: str) -> str:
    """Of one by the other transposed, in batches."""
    x = f.op("reshape", [x, f.const_shape([2, 3, 18])], "2x3x18xf32")
    y = f.op(
        "transpose",
        [f.op("reshape", [y, f.const_shape([2, 3, 18])], "2x3x18xf32")],
        "2x18x3xf32",
        "perms = array<i32: 0, 2, 1>",
    )
    return f.op("matmul", [x, y, *[f.const(0.0, "f32")] * 2], "2x3x3xf32")


def residual(bits: int) -> Build:
    """A convolution, its input added, and a relu."""
    same = convolution("conv2d", (3, 3, 3, 3), "1x6x6x3xf32", "pad = array<i64: 1, 1, 1, 1>", bits=bits)
    return lambda f, x: relu(f, f.op("add", [same(f, x), x], f.types[x]))


def of_channels(f: Lines, x: str) -> str:
    """Scales of the filters' channels."""
    stored = np.random.default_rng(1).integers(-128, 128, (4, 3, 3, 3))
    w = f.dequantize(f.const(stored, "i8"), np.linspace(0.002, 0.02, 4).reshape(4, 1, 1, 1))
    return relu(f, f.conv("conv2d", x, w, bias(f, 4), "1x5x5x4xf32", PAD))


PAD = "pad = array<i64: 1, 0, 0, 1>"
ONE: dict[str, Build] = {
    "conv2d": convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD),
    "conv2d of weights with a zero point": convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD, -7),
    "depthwise_conv2d": convolution("depthwise_conv2d", (3, 3, 3, 2), "1x5x5x6xf32", PAD),
    "conv2d of 16 by 16 bits": convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD, bits=16),
    "conv2d of 16 by 16 bits with two zero points": convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD, 900, 16),
    "conv2d of 16 by 16 bits at one point": convolution(
        "conv2d", (4, 1, 1, 3), "1x6x6x4xf32", "pad = array<i64: 0, 0, 0, 0>", bits=16
    ),
    "depthwise_conv2d of 16 by 16 bits": convolution("depthwise_conv2d", (3, 3, 3, 1), "1x5x5x3xf32", PAD, bits=16),
    "conv2d of 16 by 16 bits with strides": strided(
        "conv2d", (4, 3, 2, 3), "1x2x3x4xf32", "1, 0, 0, 0", "2, 2", "2, 1"
    ),
    "conv3d of 16 by 16 bits": of_volumes,
    "transpose_conv2d": convolution(
        "transpose_conv2d", (4, 3, 3, 3), "1x9x7x4xf32", "out_pad = array<i64: 0, 1, -1, 0>"
    ),
    "conv2d and a residual": residual(8),
    "conv2d of 16 by 16 bits and a residual": residual(16),
    "conv2d with scales of channels": of_channels,
    "matmul": product(16),
    "matmul without a bias": product(16, biased=False),
    "matmul of weights with a zero point": product(16, -3000),
    "matmul of weights on the left": product(16, 500, turned=True),
    "matmul by 8 bits": product(8),
    "matmul by 8 bits with a zero point": product(8, 11),
    "matmul of many dimensions": spread,
    "matmul with scales of rows": of_rows,
    "max_pool2d": max_pool,
    "avg_pool2d": avg_pool("0, 0, 0, 0", "1x3x3x3xf32"),
    "avg_pool2d with padding": avg_pool("1, 1, 0, 0", "1x4x3x3xf32"),
    "mean": mean,
    "reduce_max": reduced,
    "relu": relu,
    "tanh": lambda f, x: f.op("tanh", [f.mul(x, f.number(3.0, x, "f32"), f.types[x])], f.types[x]),
    "sigmoid": lambda f, x: f.op("sigmoid", [f.mul(x, f.number(4.0, x, "f32"), f.types[x])], f.types[x]),
    "moves": moved,
    "slice": sliced,
    "requantized": lambda f, x: x,
}
TWO = {**{n: of_two(n) for n in ("add", "sub", "mul", "maximum")}, "concat": concat, "matmul": product_of_two}


def check(text: str, shape: tuple[int, ...], step: float, depth: int = 1) -> tuple[str, qfuse.Report]:
    """Fuses, validates and runs: no float operation is left, and results are as near as the report says.

    Args:
        text: of the module.
        shape: of its argument.
        step: of its results.
        depth: how many roundings there are one behind the other.
    """
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    after = str(module)
    assert report.missed == []
    assert [line for line in floats_in(after) if "tosa.reverse" not in line] == []
    assert set(tosa.validate(after).extensions) <= {"int16"}
    stated = [re.fullmatch(r"within-(\d+)-lsb", e["exactness"]) for e in report.applied]
    steps = depth * max((int(m[1]) for m in stated if m), default=0)
    rng = np.random.default_rng(sum(shape))
    kinds = [
        rng.normal(0, 0.7, shape),
        rng.integers(-30000, 30000, shape) * 2.05e-5,  # ties of the first quantize
        rng.choice([-1e9, 0, 1e9], shape),
    ]
    x = np.choose(rng.choice(3, shape, p=[0.45, 0.45, 0.1]), kinds).astype(np.float32)
    for want, got in zip(tosa.run(text, [x]), tosa.run(after, [x]), strict=True):
        assert np.abs(np.round((got.astype(np.float64) - want) / np.float32(step))).max() <= steps
    return after, report


def module_of(
    write: Callable[[Lines, str, str], str], shape: tuple[int, ...], step: float, kinds: Sequence[str] = tuple(KINDS)
) -> str:
    """The same of the argument quantized in different ways, a result each."""
    f = Lines(x="x".join(map(str, (*shape, "f32"))))
    results = [through(f, write(f, through(f, "%x", 4.1e-5, k), k), step, k, -900) for k in kinds]
    return f.module(*results)


SHAPE = (1, 6, 6, 3)


@pytest.mark.parametrize("first", [True, False])
def test_a_product_of_16_and_8_bits(first: bool) -> None:
    """Both at run time."""

    def write(f: Lines, x: str, kind: str) -> str:
        y = f.dequantize(f.quantize("%x", np.float32(0.01), -20), np.float32(0.01), -20)
        return multiplied(f, *((x, y) if first else (y, x)))

    after, _ = check(module_of(write, SHAPE, 2e-3), SHAPE, 2e-3)
    assert after.count("tosa.matmul") == len(KINDS)


@pytest.mark.parametrize("name", ONE)
def test_of_one(name: str) -> None:
    step = 1.3e-3 if "conv" in name or "matmul" in name else 5.2e-5
    after, _ = check(module_of(lambda f, x, _: ONE[name](f, x), SHAPE, step), SHAPE, step)
    if "conv" in name or "matmul" in name:
        assert "xi48>" in after


@pytest.mark.parametrize("name", TWO)
def test_of_two(name: str) -> None:
    check(module_of(TWO[name], SHAPE, 6.3e-5), SHAPE, 6.3e-5)


def test_a_chain_stays_in_i16() -> None:
    """Nothing returns to i32 between two convolutions but what the zero point of the result takes."""

    def two(f: Lines, x: str, kind: str) -> str:
        first = convolution("conv2d", (3, 3, 3, 3), "1x6x6x3xf32", "pad = array<i64: 1, 1, 1, 1>")
        x = through(f, first(f, x), 1e-3, kind)
        t = f.op("transpose", [x], "1x3x6x6xf32", "perms = array<i32: 0, 3, 1, 2>")
        t = f.op("reshape", [t, f.const_shape([1, 3, 36, 1])], "1x3x36x1xf32")
        t = f.op("reshape", [t, f.const_shape([1, 3, 6, 6])], "1x3x6x6xf32")
        x = f.op("transpose", [t], "1x6x6x3xf32", "perms = array<i32: 0, 2, 3, 1>")
        return convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD)(f, x)

    after, report = check(module_of(two, SHAPE, 0.05, ["unsigned"]), SHAPE, 0.05, 2)
    assert report.summary["integer_ops"] == 2
    assert after.count("tosa.pad") == 2
    between = after[after.index("tosa.conv2d") : after.rindex("tosa.conv2d")]
    assert len(re.findall("= tosa.cast", between)) == 1


def test_multipliers_of_31_bits() -> None:
    """Results are those of real arithmetic but for what lies next to a tie."""
    text = module_of(lambda f, x, _: product(16, biased=False)(f, x), SHAPE, 3e-4, ["signed"])
    _, report = check(text, SHAPE, 3e-4)
    (entry,) = (e for e in report.applied if "narrowed" in e)
    assert entry["narrowed"] > 0
    assert entry["tie_distance"] < 1e-3
    module = Bindings.first_available().parse_source(text, "module")
    qfuse.fuse(module, "tosa-int")
    x = np.random.default_rng(2).normal(0, 0.6, SHAPE).astype(np.float32)
    stored = np.clip(np.round(x * (np.float32(1) / np.float32(4.1e-5))), -32768, 32767).astype(np.int64)
    w = np.random.default_rng(7).integers(-32768, 32768, (1, 18, 5))
    w.reshape(-1)[:2] = -32768, 32767
    sums = (stored.reshape(1, 6, 18) @ w).astype(np.float64)
    real = sums * np.float64(np.float32(4.1e-5)) * np.float64(np.float32(0.01 / 256)) / np.float64(np.float32(3e-4))
    (got,) = tosa.run(module, [x])
    clear = np.abs(real - np.floor(real) - 0.5) > 2e-3
    want = np.clip(np.round(real), -32768, 32767)
    assert np.array_equal(np.round(got.astype(np.float64) / 3e-4)[clear], want[clear])


def test_again_changes_nothing() -> None:
    text = module_of(lambda f, x, _: product(16)(f, x), SHAPE, 1e-3)
    module = Bindings.first_available().parse_source(text, "module")
    qfuse.fuse(module, "tosa-int")
    after = str(module)
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == after


@pytest.mark.parametrize("total", [[[0]], [[5, -32767]], [[32768, -40000]], [[2**40, -(2**40) + 7]], [[2**31], [-9]]])
def test_digits_add_up(total: list[list[int]]) -> None:
    held = np.asarray(total, np.int64)[None]
    rows, digits = digits_of(held)
    assert sum((r * d for r, d in zip(rows, digits, strict=True)), np.zeros_like(held)).tolist() == held.tolist()
    assert all(abs(r) < 1 << 15 and int(np.abs(d).max()) < 1 << 15 for r, d in zip(rows, digits, strict=True))
