"""Indices and conditions that are computed from constants are constants in what is written: it stays in the profile."""

from __future__ import annotations

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines


def indices(f: Lines, start: str) -> str:
    """`|i - 3| / 2 * 2 + i / 3`, of i64, as a row of i32: the sum of a concat."""
    less = f.op("abs", [f.op("sub", [start, f.number(3, start, "i64")], "1x6x1xi64")], "1x6x1xi64")
    halves = f.op("cast", [f.op("intdiv", [less, f.number(2, start, "i64")], "1x6x1xi64")], "1x6x1xi32")
    thirds = f.op("cast", [f.op("intdiv", [start, f.number(3, start, "i64")], "1x6x1xi64")], "1x6x1xi32")
    both = f.op("concat", [halves, thirds], "1x6x2xi32", "axis = 2 : i32")
    weighted = f.mul(both, f.const([[[2, 1]]], "i32"), "1x6x2xi32")
    return f.op(
        "reshape", [f.op("reduce_sum", [weighted], "1x6x1xi32", "axis = 2 : i32"), f.const_shape([1, 6])], "1x6xi32"
    )


def gathered(f: Lines, start: str) -> str:
    """A gather of dequantized values that are quantized again."""
    x = f.op("gather", [f.dequantize("%q", 0.02, 5), indices(f, start)], "1x6x3xf32")
    return f.module(f.quantize(x, 0.02, 5))


def test_indices_are_constant() -> None:
    f = Lines(q="1x5x3xi8")
    text = gathered(f, f.const(np.arange(6).reshape(1, 6, 1), "i64"))
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    assert "i64" not in str(module)
    assert "tosa.intdiv" not in str(module)
    assert set(tosa.validate(module).extensions) == set()
    q = np.random.default_rng(1).integers(-128, 128, (1, 5, 3)).astype(np.int8)
    (got,) = tosa.run(module, [q])
    i = np.arange(6)
    np.testing.assert_array_equal(got, q[:, np.abs(i - 3) // 2 * 2 + i // 3])


def test_indices_of_an_argument_are_computed() -> None:
    """Only the gather is on integers."""
    f = Lines(q="1x5x3xi8", i="1x6x1xi64")
    module = Bindings.first_available().parse_source(gathered(f, "%i"), "module")
    assert qfuse.fuse(module, "tosa-int").missed == []
    assert "tosa.intdiv" in str(module)
    assert "f32" not in str(module)


@pytest.mark.parametrize("place", [0, 2])
def test_a_slice_of_a_choice(place: int) -> None:
    """Two places of what constant conditions choose, added: each is read by a slice of its own."""
    f = Lines(q="4x3x6xi8")
    x = f.dequantize("%q", 0.02, 5)
    rows = f.const(np.arange(6).reshape(1, 1, 6), "i32")
    mask = f.op("greater", [f.number(4, x, "i32"), rows], "1x1x6xi1")
    chosen = f.op("select", [mask, x, f.number(0.0, x, "f32")], "4x3x6xf32")

    def part(at: int) -> str:
        piece = f.op("slice", [chosen, f.const_shape([0, at, 0]), f.const_shape([4, 1, 6])], "4x1x6xf32")
        return f.op("reshape", [piece, f.const_shape([4, 6])], "4x6xf32")

    y = f.op("add", [part(1), part(place)], "4x6xf32")
    module = Bindings.first_available().parse_source(f.module(f.quantize(y, 0.031, -7)), "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    assert "f32" not in str(module)
    assert "tosa.greater" not in str(module)
    assert set(tosa.validate(module).extensions) == set()
    q = np.random.default_rng(2).integers(-128, 128, (4, 3, 6)).astype(np.int8)
    (got,) = tosa.run(module, [q])
    held = np.where(np.arange(6) < 4, (q.astype(np.float64) - 5) * 0.02, 0.0)
    real = np.clip((held[:, 1] + held[:, place]) / 0.031 - 7, -128, 127)
    assert np.abs(got - real).max() <= 0.5 + 1e-4
