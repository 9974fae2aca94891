"""Spellings that are nearly those of a quantize: none is read as rounding to the nearest even, all stay right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from qfuse.matchers.nodes import Quantize
from tests.conftest import Recognize
from tests.matchers.ir import describe
from tests.tosa.ir import Lines
from tests.tosa.test_execution import matmul, quantized

STEP, ZERO = np.float32(0.05), -11


def one(f: Lines, name: str, *x: str) -> str:
    return f.op(name, list(x), f.like(x[0], "f32"))


def number(f: Lines, value: float, x: str) -> str:
    return f.number(value, x, "f32")


def nearest(
    f: Lines,
    x: str,
    *,
    half: float = 0.5,
    tie: float = 0.5,
    halved: float = 0.5,
    doubled: float = 2.0,
    below: str = "greater",
    either: str = "logical_or",
    both: str = "logical_and",
    odd: bool = False,
    swapped: bool = False,
    to_ceil: bool = False,
    exchanged: bool = False,
    next_even: bool = False,
) -> str:
    """The twelve operations, any one of them another."""
    real, truth = f.like(x, "f32"), f.like(x, "i1")
    floor, ceil = one(f, "floor", x), one(f, "ceil", x)
    rest = one(f, "sub", ceil, x) if to_ceil else one(f, "sub", x, floor)
    base = one(f, "floor", one(f, "add", x, number(f, 1.0, x))) if next_even else floor
    down = one(f, "floor", f.mul(base, number(f, halved, x), real))
    even = f.op("equal", [floor, f.mul(down, number(f, doubled, x), real)], truth)
    even = f.op("logical_not", [even], truth) if odd else even
    tied = f.op("equal", [rest, number(f, tie, x)], truth)
    sides = [number(f, half, x), rest]
    nearer = f.op(below, sides[::-1] if swapped else sides, truth)
    keep = f.op(either, [nearer, f.op(both, [tied, even], truth)], truth)
    return f.op("select", [keep, *((ceil, floor) if exchanged else (floor, ceil))], real)


def towards(f: Lines, x: str, below: float, first: str, second: str) -> str:
    """`first` where x is below a number, else `second`."""
    negative = f.op("greater", [number(f, below, x), x], f.like(x, "i1"))
    return f.op("select", [negative, one(f, first, x), one(f, second, x)], f.like(x, "f32"))


def away(f: Lines, x: str) -> str:
    half = number(f, 0.5, x)
    up, down = one(f, "floor", one(f, "add", x, half)), one(f, "ceil", one(f, "sub", x, half))
    negative = f.op("greater", [number(f, 0.0, x), x], f.like(x, "i1"))
    return f.op("select", [negative, down, up], f.like(x, "f32"))


NEARLY: dict[str, Callable[[Lines, str], str]] = {
    "floor": lambda f, x: one(f, "floor", x),
    "ceil": lambda f, x: one(f, "ceil", x),
    "half up": lambda f, x: one(f, "floor", one(f, "add", x, number(f, 0.5, x))),
    "half away": away,
    "trunc": lambda f, x: towards(f, x, 0.0, "ceil", "floor"),
    "away from 0": lambda f, x: towards(f, x, 0.0, "floor", "ceil"),
    "trunc at 1": lambda f, x: towards(f, x, 1.0, "ceil", "floor"),
    "threshold": lambda f, x: nearest(f, x, half=0.25),
    "tie elsewhere": lambda f, x: nearest(f, x, tie=0.25),
    "half down": lambda f, x: nearest(f, x, below="greater_equal"),
    "half odd": lambda f, x: nearest(f, x, odd=True),
    "operands swapped": lambda f, x: nearest(f, x, swapped=True),
    "rest to ceil": lambda f, x: nearest(f, x, to_ceil=True),
    "and for or": lambda f, x: nearest(f, x, either="logical_and"),
    "xor for or": lambda f, x: nearest(f, x, either="logical_xor"),
    "or for and": lambda f, x: nearest(f, x, both="logical_or"),
    "exchanged": lambda f, x: nearest(f, x, exchanged=True),
    "even of the next": lambda f, x: nearest(f, x, next_even=True),
    "times 4": lambda f, x: nearest(f, x, doubled=4.0),
    "quarter": lambda f, x: nearest(f, x, halved=0.25),
}


def quantize(f: Lines, x: str, rounding: Callable[[Lines, str], str]) -> str:
    """By `STEP` and `ZERO`, with another rounding."""
    scaled = rounding(f, f.mul(x, number(f, float(1 / STEP), x), f.like(x, "f32")))
    shifted = one(f, "add", scaled, number(f, ZERO, x))
    bounds = "max_val = 127.0 : f32, min_val = -128.0 : f32"
    return f.op("cast", [f.op("clamp", [shifted], f.like(x, "f32"), bounds)], f.like(x, "i8"))


def test_the_spelling_itself_is_read(recognize: Recognize) -> None:
    """With nothing changed."""
    f = Lines(x="4x8xf32")
    found = [n for n in recognize(f.module(quantize(f, "%x", nearest))) if isinstance(n, Quantize)]
    assert describe(found[-1].params).scale == pytest.approx(0.05)


@pytest.mark.parametrize("name", NEARLY)
def test_nothing_else_is_read_as_it(recognize: Recognize, name: str) -> None:
    """What is left is the cast, which rounds whole numbers: its scale is 1."""
    f = Lines(x="4x8xf32")
    found = [n for n in recognize(f.module(quantize(f, "%x", NEARLY[name]))) if isinstance(n, Quantize)]
    assert all(n.params.scale.scalar == 1.0 for n in found)


def accumulated(f: Lines) -> str:
    return matmul(f, quantized(f, "%x", 0.02, 5))


def added(f: Lines) -> str:
    other = quantized(f, f.op("reverse", ["%x"], f.types["%x"], "axis = 2 : i32"), 0.013, -7)
    return f.op("add", [quantized(f, "%x", 0.02, 5), other], f.types["%x"])


@pytest.mark.parametrize("before", [accumulated, added], ids=lambda b: b.__name__)
@pytest.mark.parametrize("name", ["floor", "ceil", "half away", "trunc", "threshold", "exchanged", "rest to ceil"])
def test_results_are_those_of_the_unfused_module(name: str, before: Callable[[Lines], str]) -> None:
    f = Lines(x="1x12x8xf32")
    text = f.module(quantize(f, before(f), NEARLY[name]))
    module = Bindings.first_available().parse_source(text, "module")
    qfuse.fuse(module, "tosa-int")
    rng = np.random.default_rng(len(name))
    parts = [rng.normal(0, 1, (1, 4, 8)), rng.normal(0, 9, (1, 4, 8)), rng.integers(-99, 99, (1, 4, 8)) * 0.05 + 0.025]
    x = np.concatenate(parts, 1).astype(np.float32)
    (want,), (got,) = tosa.run(text, [x]), tosa.run(module, [x])
    off = np.abs(want.astype(np.int64) - got.astype(np.int64))
    assert off.max() <= 1
    assert np.count_nonzero(off) <= off.size // 20


@pytest.mark.parametrize("before", [accumulated, added], ids=lambda b: b.__name__)
def test_each_step_of_a_quantize_may_be_read_as_a_float_too(before: Callable[[Lines], str]) -> None:
    """The step is returned beside the stored integers: both results are those of the unfused module."""
    f = Lines(x="1x4x8xf32")
    start = before(f)
    q = quantize(f, start, nearest)
    last = f.types[start].rsplit("x", 1)[0]
    names = [line.split(" = ")[0] for line in f.lines]
    steps = [n for n in names[names.index(start) :] if f.types[n] == f"{last}xf32"]
    assert len(steps) > 9
    x = np.random.default_rng(2).normal(0, 1, (1, 4, 8)).astype(np.float32)
    for step in steps:
        text = f.module(q, step)
        module = Bindings.first_available().parse_source(text, "module")
        report = qfuse.fuse(module, "tosa-int")
        assert report.summary["integer_ops"] >= 1
        want, got = tosa.run(text, [x]), tosa.run(module, [x])
        assert np.abs(want[0].astype(np.int64) - got[0].astype(np.int64)).max() <= 1
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-4)
        after = str(module)
        assert qfuse.fuse(module, "tosa-int").applied == []
        assert str(module) == after
