"""Operands that come through reshapes: the integers are reshaped, and the result is that of the unfused module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import tosa
from tests.tosa.ir import Lines
from tests.tosa.test_execution import floats_in, matmul, quantized

STEP = 0.03


def relu(f: Lines, x: str) -> str:
    return f.op("clamp", [x], f.types[x], "max_val = 3.40282347E+38 : f32, min_val = 0.0 : f32")


def reshape(f: Lines, x: str, shape: Sequence[int]) -> str:
    return f.op("reshape", [x, f.const_shape(shape)], "x".join(map(str, shape)) + "xf32")


def transpose(f: Lines, x: str, order: Sequence[int]) -> str:
    shape = [f.shape(x)[i] for i in order]
    return f.op(
        "transpose", [x], "x".join(map(str, shape)) + "xf32", f"perms = array<i32: {', '.join(map(str, order))}>"
    )


def first(f: Lines) -> str:
    return relu(f, quantized(f, "%x", 0.02, 5))


def second(f: Lines) -> str:
    return quantized(f, "%y", 0.013, -7)


def binary(f: Lines, name: str, a: str, b: str) -> str:
    return f.mul(a, b, f.types[a]) if name == "mul" else f.op(name, [a, b], f.types[a])


def split(f: Lines) -> str:
    return binary(f, "add", reshape(f, first(f), [2, 5, 8]), second(f))


def merged(f: Lines) -> str:
    return binary(f, "mul", reshape(f, first(f), [10, 8]), second(f))


def between(f: Lines) -> str:
    """Merged before and split behind."""
    return reshape(f, binary(f, "sub", reshape(f, first(f), [10, 8]), second(f)), [2, 5, 8])


def heads(f: Lines) -> str:
    return binary(f, "maximum", transpose(f, reshape(f, first(f), [2, 5, 4, 3]), [0, 2, 1, 3]), second(f))


def no_heads(f: Lines) -> str:
    return binary(f, "add", reshape(f, transpose(f, first(f), [0, 2, 1, 3]), [2, 5, 12]), second(f))


def constant(f: Lines) -> str:
    """A constant of another shape."""
    c = f.const(np.random.default_rng(3).normal(0, 1, (10, 8)), "f32")
    both = binary(f, "add", reshape(f, first(f), [10, 8]), c)
    return binary(f, "add", reshape(f, both, [2, 5, 8]), second(f))


def product(f: Lines) -> str:
    """A linear layer: flattened, multiplied, biased, split again."""
    x = matmul(f, reshape(f, quantized(f, "%x", 0.02, 5), [1, 10, 8]))
    biased = binary(f, "add", reshape(f, x, [10, 5]), f.const(np.arange(5)[None] * 0.1, "f32"))
    return reshape(f, biased, [2, 5, 5])


def residual(f: Lines) -> str:
    return binary(f, "add", product(f), second(f))


def gated(f: Lines) -> str:
    return binary(f, "mul", reshape(f, relu(f, product(f)), [2, 5, 5]), second(f))


ONE, LAYER = ["qfuse.elementwise"], ["qfuse.contraction", "qfuse.requantize"]
CASES: dict[str, tuple[str, str, Callable[[Lines], str], list[str]]] = {
    "split": ("10x8xf32", "2x5x8xf32", split, ONE),
    "merged": ("2x5x8xf32", "10x8xf32", merged, ONE),
    "between": ("2x5x8xf32", "10x8xf32", between, ONE),
    "heads": ("2x5x12xf32", "2x4x5x3xf32", heads, ONE),
    "no heads": ("2x4x5x3xf32", "2x5x12xf32", no_heads, ONE),
    "constant": ("2x5x8xf32", "2x5x8xf32", constant, ONE),
    "residual": ("2x5x8xf32", "2x5x5xf32", residual, LAYER),
    "gated": ("2x5x8xf32", "2x5x5xf32", gated, ["qfuse.contraction", *ONE]),
}


@pytest.mark.parametrize("name", CASES)
def test_operation(name: str) -> None:
    """In integers, valid, within a step of the oracle; a second run applies nothing."""
    x, y, build, fusions = CASES[name]
    f = Lines(x=x, y=y)
    text = f.module(quantized(f, build(f), STEP, -11))
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int")
    after = str(module)
    assert [e["fusion"] for e in report.applied] == fusions
    assert report.missed == []
    assert floats_in(after) == []
    assert tosa.validate(after).extensions == ()
    assert qfuse.fuse(module, "tosa-int").applied == []
    assert str(module) == after
    rng = np.random.default_rng(len(name))
    shapes = [[int(n) for n in type_.split("x")[:-1]] for type_ in (x, y)]
    inputs = [
        [rng.normal(0, 1, s).astype(np.float32) for s in shapes],
        [(rng.integers(-200, 200, s) * np.float32(0.01)).astype(np.float32) for s in shapes],
        [rng.choice(np.array([-1e9, 0, 1e9], np.float32), s) for s in shapes],
    ]
    for given in inputs:
        (want,), (got,) = tosa.run(text, given), tosa.run(after, given)
        off = np.round((got - want) / STEP)
        assert np.abs(off).max() <= 1
        assert np.count_nonzero(off) <= max(1, off.size // 20)


def test_no_fuse_of_rows_that_are_repeated() -> None:
    """Behind an operation on them; the module stays as it was."""
    f = Lines(x="2x8xf32", y="4x8xf32")
    tiled = f.op("tile", [first(f), f.const_shape([2, 1])], "4x8xf32")
    text = f.module(quantized(f, binary(f, "add", tiled, second(f)), STEP, -11))
    module = Bindings.first_available().parse_source(text, "module")
    before = str(module)
    report = qfuse.fuse(module, "tosa-int")
    place = "an operand of the elementwise operation is read at (((d0) mod 2), d1), which is not a list of dimensions"
    assert {e["reason"] for e in report.missed if e["op"] != "tosa.tile"} == {place}
    assert str(module) == before


def test_parameters_in_blocks_along_the_merged_dimension() -> None:
    """Three scales of six elements each are written out as eighteen: against real arithmetic."""
    scales, zeros = np.asarray([0.01, 0.02, 0.03], np.float32), np.asarray([3, -4, 60])
    f = Lines(q="2x4x3x6xi8", p="2x4x18xi8")
    x = f.dequantize("%q", scales.reshape(1, 1, 3, 1), zeros.reshape(1, 1, 3, 1))
    y = binary(f, "add", reshape(f, x, [2, 4, 18]), f.dequantize("%p", 0.015, -4))
    module = Bindings.first_available().parse_source(f.module(f.quantize(y, 0.04, 2)), "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.missed == []
    assert floats_in(str(module)) == []
    near = 0.5 + report.applied[0]["tie_distance"] + 1e-6
    rng = np.random.default_rng(6)
    for low, high in ((-128, 127), (-128, -127), (126, 127), (-3, 4)):
        q, p = (rng.integers(low, high + 1, shape).astype(np.int8) for shape in ((2, 4, 3, 6), (2, 4, 18)))
        (got,) = tosa.run(module, [q, p])
        left = ((q - zeros[:, None]) * scales[:, None].astype(np.float64)).reshape(2, 4, 18)
        real = (left + (p + 4.0) * np.float32(0.015)) / np.float64(np.float32(0.04)) + 2
        assert np.abs(got - np.clip(real, -128, 127)).max() <= near
