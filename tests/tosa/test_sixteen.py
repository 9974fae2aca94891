"""16 bits in TOSA: unsigned ones in i32 containers and signed ones, executed on the reference model.

The unfused module runs on it too; the two may differ by as many steps as the report states.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in

Array = np.ndarray
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


def bias(f: Lines, n: int) -> str:
    return f.const(np.random.default_rng(8).normal(0, 0.5, n), "f32")


def convolution(name: str, w: tuple[int, ...], out: str, pad: str, zero: int = 0) -> Build:
    def build(f: Lines, x: str) -> str:
        return f.conv(name, x, weights(f, w, zero=zero), bias(f, int(out.split("x")[-2])), out, pad)

    return build


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


def moved(f: Lines, x: str) -> str:
    """Layout operations that do not cancel."""
    t = f.op("transpose", [x], "1x3x6x6xf32", "perms = array<i32: 0, 3, 1, 2>")
    t = f.op("pad", [t, f.const_shape([0, 0, 0, 0, 1, 0, 0, 1]), f.const(0.0, "f32")], "1x3x7x7xf32")
    return f.op("reshape", [t, f.const_shape([3, 49])], "3x49xf32")


def sliced(f: Lines, x: str) -> str:
    return f.op("slice", [x, f.const_shape([0, 1, 2, 0]), f.const_shape([1, 4, 3, 2])], "1x4x3x2xf32")


PAD = "pad = array<i64: 1, 0, 0, 1>"
ONE: dict[str, Build] = {
    "conv2d": convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD),
    "conv2d of weights with a zero point": convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD, -7),
    "depthwise_conv2d": convolution("depthwise_conv2d", (3, 3, 3, 2), "1x5x5x6xf32", PAD),
    "max_pool2d": max_pool,
    "moves": moved,
    "slice": sliced,
    "requantized": lambda f, x: x,
}
TWO = {**{n: of_two(n) for n in ("add", "sub", "mul", "maximum")}, "concat": concat}


#: Both factors reach 65535.
BEYOND = ("mul", "unsigned from zero")


def check(text: str, shape: tuple[int, ...], step: float) -> tuple[str, qfuse.Report]:
    """Fuses, validates and runs: no float operation is left, and results are as near as the report says."""
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    after = str(module)
    assert report.missed == []
    assert [line for line in floats_in(after) if "tosa.reverse" not in line] == []
    assert set(tosa.validate(after).extensions) <= {"int16"}
    stated = [re.fullmatch(r"within-(\d+)-lsb", e["exactness"]) for e in report.applied]
    steps = sum(int(m[1]) for m in stated if m)
    rng = np.random.default_rng(sum(shape))
    kinds = [
        rng.normal(0, 0.7, shape),
        rng.integers(-30000, 30000, shape) * 2.05e-5,  # ties of the first quantize
        rng.choice([-1e9, 0, 1e9], shape),
    ]
    x = np.choose(rng.choice(3, shape, p=[0.45, 0.45, 0.1]), kinds).astype(np.float32)
    (want,), (got,) = tosa.run(text, [x]), tosa.run(after, [x])
    assert np.abs(np.round((got.astype(np.float64) - want) / np.float32(step))).max() <= steps
    return after, report


def module_of(write: Callable[[Lines, str], str], kind: str, shape: tuple[int, ...], step: float) -> str:
    f = Lines(x="x".join(map(str, (*shape, "f32"))))
    result = write(f, through(f, "%x", 4.1e-5, kind))
    return f.module(through(f, result, step, kind, -900))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ONE)
def test_of_one(name: str, kind: str) -> None:
    step = 1.3e-3 if "conv" in name else 5.2e-5
    after, _ = check(module_of(ONE[name], kind, (1, 6, 6, 3), step), (1, 6, 6, 3), step)
    if "conv" in name:
        assert "xi48>" in after


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in TWO for k in KINDS if (n, k) != BEYOND])
def test_of_two(name: str, kind: str) -> None:
    check(module_of(lambda f, x: TWO[name](f, x, kind), kind, (1, 6, 6, 3), 6.3e-5), (1, 6, 6, 3), 6.3e-5)


def test_a_product_of_17_bits_each() -> None:
    """Does not fit i32."""
    name, kind = BEYOND
    text = module_of(lambda f, x: TWO[name](f, x, kind), kind, (1, 6, 6, 3), 6.3e-5)
    report = qfuse.fuse(Bindings.first_available().parse_source(text, "module"), "tosa-int")
    assert "exceeds i32" in report.missed[0]["reason"]


def test_a_chain_stays_in_i16() -> None:
    """Nothing returns to i32 between two convolutions but what the zero point of the result takes."""

    def two(f: Lines, x: str) -> str:
        first = convolution("conv2d", (3, 3, 3, 3), "1x6x6x3xf32", "pad = array<i64: 1, 1, 1, 1>")
        x = through(f, first(f, x), 1e-3, "unsigned")
        t = f.op("transpose", [x], "1x3x6x6xf32", "perms = array<i32: 0, 3, 1, 2>")
        t = f.op("reshape", [t, f.const_shape([1, 3, 36, 1])], "1x3x36x1xf32")
        t = f.op("reshape", [t, f.const_shape([1, 3, 6, 6])], "1x3x6x6xf32")
        x = f.op("transpose", [t], "1x6x6x3xf32", "perms = array<i32: 0, 2, 3, 1>")
        return convolution("conv2d", (4, 3, 3, 3), "1x5x5x4xf32", PAD)(f, x)

    after, report = check(module_of(two, "unsigned", (1, 6, 6, 3), 0.05), (1, 6, 6, 3), 0.05)
    assert report.summary["integer_ops"] == 2
    assert after.count("tosa.pad") == 2
    between = after[after.index("tosa.conv2d") : after.rindex("tosa.conv2d")]
    assert len(re.findall("= tosa.cast", between)) == 1
