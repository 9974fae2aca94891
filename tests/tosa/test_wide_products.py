"""Products that exceed i32: MUL divides them by a power of two. Every integer of 16 bits, against real arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import iree, tosa
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in

Array = np.ndarray[Any, Any]

#: Container, least and greatest integer, zero point.
STORED = {
    "signed": ("i16", -32768, 32767, 0),
    "signed with a zero point": ("i16", -32768, 32767, 20000),
    "unsigned": ("i32", 0, 65535, 30000),
    "unsigned from zero": ("i32", 0, 65535, 0),
}
STEP = 2.0**-12


def clamped(f: Lines, x: str, low: float, high: float) -> str:
    return f.op("clamp", [x], f.types[x], f"max_val = {high} : f32, min_val = {low} : f32")


def square(f: Lines, x: str) -> str:
    return f.mul(x, x, f.types[x])


def hardswish(f: Lines, x: str) -> str:
    type_ = f.types[x]
    gate = clamped(f, f.op("add", [x, f.number(3.0, x, "f32")], type_), 0.0, 6.0)
    return f.mul(f.mul(x, gate, type_), f.number(1 / 6, x, "f32"), type_)


def cube(f: Lines, x: str) -> str:
    return f.mul(square(f, x), x, f.types[x])


def quadratic(f: Lines, x: str) -> str:
    """Of both signs, with a sum behind the product."""
    return f.op("sub", [f.number(20.0, x, "f32"), square(f, x)], f.types[x])


#: What is written, in numpy, and the range of results.
FUNCTIONS: dict[str, tuple[Callable[[Lines, str], str], Callable[[Array], Array], float]] = {
    "square": (square, lambda x: x * x, 64.0),
    "hardswish": (hardswish, lambda x: x * np.clip(x + 3, 0, 6) / np.float64(np.float32(1 / 6)) ** -1, 8.0),
    "cube": (cube, lambda x: x**3, 512.0),
    "quadratic": (quadratic, lambda x: 20 - x * x, 64.0),
}


#: Values of `scaling`, the extensions that they need, and how far a result may be from a tie and differ.
SCALINGS = {"single": (set[str](), 0.01), "double": ({"doubleround"}, 0.01), "inexact": ({"inexactround"}, 0.1)}


def fused(text: str, results: int, **options: str) -> tuple[str, list[float]]:
    """The fused module, and the distance that the report says of each result."""
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int", **options)
    after = str(module)
    assert report.missed == []
    assert [(e["fusion"], e["exactness"]) for e in report.applied] == [("qfuse.elementwise", "within-1-lsb")] * results
    assert floats_in(after) == []
    extensions, farthest = SCALINGS[options.get("scaling", "single")]
    assert set(tosa.validate(after).extensions) <= {"int16", *extensions}
    assert qfuse.fuse(module, "tosa-int", **options).applied == []
    assert str(module) == after
    distances = [e["tie_distance"] for e in report.applied]
    assert max(distances) < farthest
    return after, distances


def check(after: str, inputs: list[Array], real: Sequence[Array], distances: Sequence[float], scaling: str) -> None:
    """Results are as near to those of real arithmetic as the report says, on the reference model and in IREE.

    Args:
        after: the module.
        inputs: of the module.
        real: results in steps, before they are rounded.
        distances: from a tie, at which a result may be rounded the other way.
        scaling: how the module rounds; MLIR lowers all but `inexact`.
    """
    results = tosa.run(after, inputs)
    for exact, got, distance in zip(real, results, distances, strict=True):
        bounded = np.clip(exact, -32768, 32767)
        assert np.abs(got - bounded).max() <= 0.5 + distance
        assert np.abs(got - np.rint(bounded)).max() <= 1
    if scaling != "inexact":
        program = iree.Program(iree.compile_module(Bindings("torch_mlir").parse_source(tosa.to_linalg(after), "after")))
        for first, second in zip(results, program(*inputs), strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("kind", STORED)
def test_functions_of_every_integer(kind: str, scaling: str) -> None:
    element, low, high, zero = STORED[kind]
    f = Lines(x="256x256xf32") if element == "i32" else Lines(q=f"256x256x{element}")
    q = f.quantize("%x", np.float32(STEP), zero, low, high, element) if element == "i32" else "%q"
    x = f.dequantize(q, STEP, zero)
    steps = [np.float32(reach / 32768) for *_, reach in FUNCTIONS.values()]
    written = [write(f, x) for write, *_ in FUNCTIONS.values()]
    results = [f.quantize(y, s, 0, -32768, 32767, "i16") for y, s in zip(written, steps, strict=True)]
    after, distances = fused(f.module(*results), len(FUNCTIONS), scaling=scaling)
    assert len(re.findall(r"tosa.mul .*%", after)) > len(FUNCTIONS)
    every = np.arange(low, high + 1).reshape(256, 256)
    values = (every - zero) * STEP
    real = [f(values) / np.float64(s) for (_, f, _), s in zip(FUNCTIONS.values(), steps, strict=True)]
    inputs = [values.astype(np.float32) if element == "i32" else every.astype(np.int16)]
    check(after, inputs, real, distances, scaling)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("kind", STORED)
def test_a_product_of_two(kind: str, scaling: str) -> None:
    """Random, ties, and every pairing of extremes."""
    element, low, high, zero = STORED[kind]
    f = Lines(x="64x64xf32", y="64x64xf32")
    held = [f.dequantize(f.quantize(v, np.float32(STEP), zero, low, high, element), STEP, zero) for v in ("%x", "%y")]
    out = np.float32(2.0**-9)
    text = f.module(f.quantize(f.mul(*held, "64x64xf32"), out, 0, -32768, 32767, "i16"))
    after, distances = fused(text, 1, scaling=scaling)
    rng = np.random.default_rng(3)
    a, b = rng.integers(low, high + 1, (2, 64, 64))
    a[:8], b[:8] = rng.choice([low, high, zero, zero + 1], (2, 8, 64))
    a[8:16], b[8:16] = zero + 1 + 2 * rng.integers(0, 50, (8, 64)), zero + 2**14  # ties
    a, b = (np.clip(n, low, high) for n in (a, b))
    inputs = [((n - zero) * STEP).astype(np.float32) for n in (a, b)]
    check(after, inputs, [(a - zero) * (b - zero) * STEP**2 / np.float64(out)], distances, scaling)


@pytest.mark.parametrize("kind", ["signed", "unsigned from zero"])
def test_powers_of_two(kind: str) -> None:
    """One product and one RESCALE, also where the product is within i32."""
    element, low, high, zero = STORED[kind]
    f = Lines(x="64x64xf32")
    x = f.dequantize(f.quantize("%x", np.float32(STEP), zero, low, high, element), STEP, zero)
    text = f.module(f.quantize(square(f, x), np.float32(2.0**-7), 0, -32768, 32767, "i16"))
    after, distances = fused(text, 1, epilogue="power-of-two")
    assert len(re.findall(r"tosa.mul .*i32", after)) == after.count("tosa.rescale") == 1
    values = np.random.default_rng(4).integers(low, high + 1, (64, 64)) - zero
    values[:8] = 2**8 * (1 + 2 * np.arange(64))  # ties
    check(after, [(values * STEP).astype(np.float32)], [(values * STEP) ** 2 * 2.0**7], distances, "single")


@pytest.mark.parametrize("scaling", ["gemmlowp", "half-even"])
def test_roundings_that_tosa_does_not_have(scaling: str) -> None:
    module = Bindings.first_available().parse_source(Lines(x="4xf32").module("%x"), "module")
    with pytest.raises(qfuse.UsageError, match="scaling"):
        qfuse.fuse(module, "tosa-int", scaling=scaling)
