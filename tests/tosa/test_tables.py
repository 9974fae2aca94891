"""Functions of 16 bits, or with a result of 16, as tables that TOSA reads between points."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.emit.elementwise import Points
from qfuse.integrations import iree, tosa
from tests.tosa.ir import Lines

Array = np.ndarray[Any, Any]
Build = Callable[[Lines, str], str]
Range = tuple[float, float]


def gelu(f: Lines, x: str) -> str:
    type_ = f.types[x]
    erf = f.op("erf", [f.mul(x, f.number(0.5**0.5, x, "f32"), type_)], type_)
    halves = f.mul(f.op("add", [erf, f.number(1.0, x, "f32")], type_), f.number(0.5, x, "f32"), type_)
    return f.mul(x, halves, type_)


def silu(f: Lines, x: str) -> str:
    return f.mul(x, f.op("sigmoid", [x], f.types[x]), f.types[x])


def unary(name: str) -> Build:
    return lambda f, x: f.op(name, [x], f.types[x])


#: What is tabulated, in numpy, the range of the input and that of the result.
FUNCTIONS = {
    "tanh": (unary("tanh"), np.tanh, (-4.0, 4.0), (-1.0, 1.0)),
    "sigmoid": (unary("sigmoid"), lambda x: 1 / (1 + np.exp(-x)), (-4.0, 4.0), (0.0, 1.0)),
    "gelu": (gelu, lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2, (-8.0, 8.0), (-0.17, 8.0)),
    "silu": (silu, lambda x: x / (1 + np.exp(-x)), (-4.0, 4.0), (-0.28, 4.0)),
    "exp": (unary("exp"), np.exp, (-2.0, 2.0), (0.0, 7.4)),
}
#: Those that bend more, and how many points they take.
BENT = {
    "exp": (unary("exp"), np.exp, (-8.0, 0.0), (0.0, 1.0), 1025),
    "sigmoid": (unary("sigmoid"), lambda x: 1 / (1 + np.exp(-x)), (-30.0, 30.0), (0.0, 1.0), 2049),
    "sin": (unary("sin"), np.sin, (-20.0, 20.0), (-1.0, 1.0), 2049),
}
#: Container, bits, bounds.
STORED = {"u16": ("i32", 0, 65535), "s16": ("i16", -32768, 32767), "s8": ("i8", -128, 127)}


def parameters(kind: str, low: float, high: float) -> tuple[np.float32, int]:
    """Scale and zero point of a range."""
    _, least, most = STORED[kind]
    scale = np.float32((high - low) / (most - least))
    return scale, least + round(-low / float(scale))


def table_module(write: Build, inner: Range, outer: Range, source: str, result: str) -> str:
    f = Lines(x="256x256xf32")
    values = through(f, "%x", source, inner)
    return f.module(through(f, write(f, values), result, outer))


def through(f: Lines, value: str, kind: str, bounds: Range) -> str:
    """A value through a quantize and a dequantize of a range."""
    element, low, high = STORED[kind]
    scale, zero = parameters(kind, *bounds)
    return f.dequantize(f.quantize(value, scale, zero, low, high, element), scale, zero)


def check(
    write: Build, real: Callable[[Array], Array], inner: Range, outer: Range, source: str, result: str
) -> tuple[str, dict[str, Any]]:
    """Within a step of the function in f64, for each integer that can be stored, and the same in IREE."""
    module = Bindings.first_available().parse_source(table_module(write, inner, outer, source, result), "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    assert [e["exactness"] for e in report.applied] == ["within-1-lsb"]
    assert tosa.validate(module).extensions == ("int16",)
    after = str(module)
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == after
    _, low, high = STORED[source]
    scale, zero = parameters(source, *inner)
    stored = np.resize(np.arange(low, high + 1), (256, 256))
    x = (stored - zero).astype(np.float64) * np.float64(scale)
    (got,) = tosa.run(module, [x.astype(np.float32)])
    step, offset = parameters(result, *outer)
    _, least, most = STORED[result]
    with np.errstate(invalid="ignore", divide="ignore"):
        want = real(x) / np.float64(step)
    want = np.clip(np.round(np.nan_to_num(want, nan=least - offset)), least - offset, most - offset)
    assert np.abs(np.round(got.astype(np.float64) / step) - want).max() <= 1
    lowered = Bindings("torch_mlir").parse_source(tosa.to_linalg(after), "after")
    (other,) = iree.Program(iree.compile_module(lowered))(x.astype(np.float32))
    np.testing.assert_array_equal(got, other)
    return after, report.applied[0]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("source", "result"), [("u16", "u16"), ("s16", "s16"), ("u16", "s8"), ("s8", "u16")])
def test_a_table_at_every_integer(name: str, source: str, result: str) -> None:
    _, entry = check(*FUNCTIONS[name], source, result)
    assert entry["entries"] == 513


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize(("source", "result"), [("u16", "u16"), ("s16", "s16")])
def test_tables_of_ranges_at_every_integer(name: str, source: str, result: str) -> None:
    """Where 513 points are too few."""
    *function, points = BENT[name]
    after, entry = check(*function, source, result)  # type: ignore[call-arg, arg-type]
    assert entry["entries"] == points
    assert after.count("tosa.greater_equal") == (points - 1) // 512 - 1
    assert after.count("tosa.logical_left_shift") == 1


def test_a_jump_from_end_to_end() -> None:
    """Of 8 bits, whose integers lie two lines apart: 32767 and 32768 lead up, one of which is too steep."""
    f = Lines(q="16x16xi8")
    y = f.op("reciprocal", [f.dequantize("%q", 2.0**-5)], "16x16xf32")
    module = Bindings.first_available().parse_source(
        f.module(f.quantize(y, np.float32(2.0**-12), 0, -32768, 32767, "i16")), "module"
    )
    report = qfuse.fuse(module, "tosa-int")
    assert [(e["fusion"], e["exactness"]) for e in report.applied] == [("qfuse.lookup", "within-1-lsb")]
    assert report.missed == []
    every = np.arange(-128, 128, dtype=np.int8).reshape(16, 16)
    (got,) = tosa.run(module, [every])
    with np.errstate(divide="ignore"):
        want = np.clip(np.rint(2.0**17 / every.astype(np.float64)), -32768, 32767)
    assert np.abs(got - want).max() <= 1
    assert want.min() == -32768
    assert want.max() == 32767


def test_a_function_that_bends_too_much_for_a_table() -> None:
    """Is named with its distance."""
    text = table_module(unary("rsqrt"), (0.0, 4.0), (0.0, 4.0), "u16", "u16")
    report = qfuse.fuse(Bindings.first_available().parse_source(text, "module"), "tosa-int")
    assert report.missed[0]["reason"] == "a table of 2049 points is up to 4 steps of the result from the function"


@pytest.mark.parametrize("ranges", [1, 2, 4])
@pytest.mark.parametrize("tables", [1, 2])
def test_points_are_read_as_the_machine_does(tables: int, ranges: int) -> None:
    """All 65536 integers."""
    rng = np.random.default_rng([tables, ranges])
    smooth = np.clip(np.cumsum(rng.integers(-900, 900, (ranges, 513)), 1), -32768, 32767).astype(np.int16)
    rest = rng.integers(-128, 129, (ranges, 513)).astype(np.int16)
    points = Points(0, 0, 0, (smooth, rest)[:tables], 7 if tables == 1 else 15)
    assert points.entries == ranges * 512 + 1
    every = np.arange(-32768, 32768, dtype=np.int16)
    (got,) = tosa.run(table_text(points), [every])
    assert np.array_equal(got, np.clip(points.apply(every), -32768, 32767))


def table_text(points: Points) -> str:
    """A module of the tables and what is built behind them, each range with tables of its own clamped integers."""
    f = Lines(x="65536xi16")
    wide, ranges = "65536xi32", len(points.tables[0])
    x = f.op("cast", ["%x"], wide)
    lines: list[str] = []
    for k in range(ranges):
        start = (k * 65536) // ranges - 32768
        place = f.mul(f.op("sub", [x, f.const(start, "i32")], wide), f.const(ranges, "i32"), wide)
        place = f.op("add", [place, f.const(-32768, "i32")], wide)
        place = f.op("maximum", [f.op("minimum", [place, f.const(32767, "i32")], wide), f.const(-32768, "i32")], wide)
        place = f.op("cast", [place], "65536xi16")
        read = [f.op("table", [place, f.const(t[k], "i16")], wide) for t in points.tables]
        if len(read) > 1:
            read = [f.op("add", [f.mul(read[0], f.const(256, "i32"), wide), read[1]], wide)]
        there = f.op("greater_equal", [x, f.const(start, "i32")], "65536xi1")
        lines = [f.op("select", [there, read[0], lines[0]], wide)] if lines else read
    how = (
        "input_unsigned = false, output_unsigned = false, per_channel = false, rounding_mode = SINGLE_ROUND,"
        " scale32 = true"
    )
    mantissa, shift = f.const(1 << 30, "i32"), f.const(points.shift + 30, "i8")
    operands = [lines[0], mantissa, shift, f.const(0, "i32"), f.const(0, "i16")]
    return f.module(f.op("rescale", operands, "65536xi16", how))
