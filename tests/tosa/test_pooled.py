"""Maxima of a convolution's float value in TOSA: taken of what RESCALE gives. On the reference model.

A twin without pooling says what RESCALE gives; the maximum of that must be the result, exactly. The unfused module may
be one step off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations import iree, tosa
from tests.tosa.ir import Lines, stored_bytes

Array = np.ndarray[Any, Any]

SHAPE, OUT = (1, 7, 6, 3), (1, 6, 6, 4)
RELU = "max_val = 3.40282347E+38 : f32, min_val = 0.0 : f32"
#: What is written for the negative infinity.
LEAST = float(np.finfo(np.float32).min)
RELU6 = "max_val = 6.0 : f32, min_val = 0.0 : f32"


@dataclass(frozen=True)
class Layer:
    """A convolution by two, a clamp, a pooling by three or along an axis, a clamp, and a quantize.

    Attributes:
        before: the first clamp, or None.
        behind: the second.
        axis: of a `reduce_max` or `reduce_min` in place of the pooling.
        name: of the pooling.
        moved: whether transposes surround the pooling, as torch-mlir writes it.
        element: stored type of the result.
        scale: of the result.
        zero: likewise.
        pooled: without it the layer is a twin.
    """

    before: str | None = RELU
    behind: str | None = None
    axis: int | None = None
    name: str = "max_pool2d"
    moved: bool = False
    element: str = "i8"
    scale: float = 0.037
    zero: int = -9
    weight: Any = (0.02, 0.013, 0.04, 0.007)
    pooled: bool = True

    @property
    def text(self) -> str:
        f, x = self.started()
        return f.module(self.quantized(f, x))

    def quantized(self, f: Lines, x: str) -> str:
        if self.behind is not None:
            x = f.op("clamp", [x], f.types[x], self.behind)
        half = 1 << (int(self.element[1:]) - 1)
        return f.quantize(x, self.scale, self.zero, -half, half - 1, self.element)

    def started(self) -> tuple[Lines, str]:
        f = Lines(q="x".join(map(str, SHAPE)) + "xi8")
        stored = np.random.default_rng(5).integers(-127, 128, (4, 2, 2, 3))
        scale = np.asarray(self.weight)
        w = f.dequantize(f.const(stored, "i8"), scale.reshape(-1, 1, 1, 1) if scale.ndim else float(scale))
        bias = f.const(np.asarray([0.5, -1.0, 0.0, 2.0]), "f32")
        pad = "pad = array<i64: 0, 0, 1, 0>"
        x = f.conv("conv2d", f.dequantize("%q", 0.0625, 3), w, bias, "1x6x6x4xf32", pad)
        if self.before is not None:
            x = f.op("clamp", [x], f.types[x], self.before)
        return f, self.maximum(f, x) if self.pooled else x

    def maximum(self, f: Lines, x: str) -> str:
        if self.axis is not None:
            shape = list(OUT)
            shape[self.axis] = 1
            return f.op(self.name, [x], "x".join(map(str, shape)) + "xf32", f"axis = {self.axis} : i32")
        if self.moved:
            x = f.op("transpose", [x], "1x4x6x6xf32", "perms = array<i32: 0, 3, 1, 2>")
            x = f.op("transpose", [x], "1x6x6x4xf32", "perms = array<i32: 0, 2, 3, 1>")
        window = "kernel = array<i64: 3, 3>, pad = array<i64: 1, 0, 1, 0>, stride = array<i64: 2, 2>"
        x = f.op("max_pool2d", [x], "1x3x3x4xf32", f"nan_mode = PROPAGATE, {window}")
        return f.op("transpose", [x], "1x4x3x3xf32", "perms = array<i32: 0, 3, 1, 2>") if self.moved else x

    def expected(self, stored: Array) -> Array:
        if self.axis is not None:
            return (np.max if self.name == "reduce_max" else np.min)(stored, axis=self.axis, keepdims=True)
        around = np.pad(stored, ((0, 0), (1, 0), (1, 0), (0, 0)), constant_values=np.iinfo(stored.dtype).min)
        found = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(1, 2))[:, ::2, ::2].max((-2, -1))
        return found.transpose(0, 3, 1, 2) if self.moved else found


LAYERS = {
    "relu": Layer(),
    "bare": Layer(before=None),
    "relu6": Layer(before=RELU6, scale=0.02, zero=-128),
    "relu behind": Layer(before=None, behind=RELU),
    "relu6 behind a relu": Layer(behind=RELU6),
    "among transposes": Layer(moved=True),
    "per tensor": Layer(weight=0.03),
    "ties": Layer(before=None, weight=0.5, scale=0.0625, zero=1),
    "16 bits": Layer(before=None, element="i16", scale=0.001, zero=0),
    "reduce_max": Layer(axis=1, name="reduce_max"),
    "reduce_min": Layer(axis=2, name="reduce_min", before=None),
    "over channels": Layer(axis=3, name="reduce_max", before=None),
}


def fused(text: str, **options: Any) -> tuple[str, qfuse.Report]:
    module = Bindings.first_available().parse_source(text, "module")
    report = qfuse.fuse(module, "tosa-int", **options)
    after = str(module)
    assert qfuse.fuse(module, "tosa-int", **options).applied == []
    assert str(module) == after
    return after, report


@pytest.mark.parametrize("options", [{}, {"scaling": "double"}], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_it_is_the_maximum_of_what_rescale_gives(name: str, options: dict[str, Any]) -> None:
    layer = LAYERS[name]
    after, report = fused(layer.text, **options)
    assert report.missed == []
    assert [e["fusion"] for e in report.applied] == ["qfuse.convolution", "qfuse.maximum", "qfuse.requantize"]
    assert "f32" not in after
    assert after.count(f"tosa.{layer.name} ") == 1
    assert after.count("tosa.transpose ") == layer.moved  # those before the pooling cancel
    extensions = {"doubleround"} & {f"{s}round" for s in options.values()} | {"int16"} & {f"int{layer.element[1:]}"}
    assert set(tosa.validate(after).extensions) == extensions
    twin, _ = fused(replace(layer, pooled=False, moved=False).text, **options)
    for q in stored_bytes(SHAPE, 3, 4):
        (got,), (stored,), (before,) = (tosa.run(text, [q]) for text in (after, twin, layer.text))
        assert np.array_equal(got, layer.expected(stored))
        assert np.abs(got.astype(np.int64) - before).max() <= 1


def as_without(text: str) -> list[tuple[str, str]]:
    """The missed entries; the module is what it is where the fusion is disabled."""
    after, report = fused(text)
    assert after == fused(text, disable=["qfuse.maximum"])[0]
    return [(e["op"], e["reason"]) for e in report.missed]


SEVERAL = "several operations read the result, so that it would be taken of integers and of floats"


def test_no_fuse_of_a_pooling_that_others_read_as_a_float() -> None:
    layer = Layer()
    f, x = layer.started()
    assert as_without(f.module(layer.quantized(f, x), x)) == [("tosa.max_pool2d", SEVERAL)]


def test_no_fuse_when_the_order_is_turned_behind() -> None:
    layer = Layer()
    f, x = layer.started()
    x = f.mul(x, f.number(-2.0, x, "f32"), f.types[x])
    reason = "what follows a maximum must keep the order of numbers, found a product with -2"
    assert ("tosa.max_pool2d", reason) in as_without(f.module(layer.quantized(f, x)))


@pytest.mark.parametrize(("number", "fires"), [(LEAST, True), (0.0, True), (-1.0, False)])
def test_padding_of_its_own(number: float, fires: bool) -> None:
    layer = Layer(before=None)
    f, x = replace(layer, pooled=False).started()
    x = f.op("pad", [x, f.const_shape([0, 0, 1, 1, 1, 1, 0, 0]), f.const(number, "f32")], "1x8x8x4xf32")
    window = "kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>"
    x = f.op("max_pool2d", [x], "1x4x4x4xf32", f"nan_mode = PROPAGATE, {window}")
    text = f.module(layer.quantized(f, x))
    if not fires:
        assert as_without(text)[0] == (
            "tosa.max_pool2d",
            f"padding must be the neutral infinity or 0, found {number:g}",
        )
        return
    after, report = fused(text)
    assert report.missed == []
    assert "f32" not in after
    for q in stored_bytes(SHAPE, 3, 4):
        (got,), (before,) = (tosa.run(t, [q]) for t in (after, text))
        assert np.abs(got.astype(np.int64) - before).max() <= 1


def test_stem_of_the_x86_quantizer() -> None:
    """Convolution, relu, padded max pooling, quantize; a residual block; the same with relu6: nothing stays in float.

    The unfused module saturates unsigned bytes wrongly, so what linalg makes of the same model is the reference.
    """
    here = Path(__file__).parent
    after, report = fused((here / "stem.x86.tosa.mlir").read_text())
    assert report.missed == []
    assert report.summary["integer_ops"] == report.summary["quantized_compute_ops"] == 7
    assert [e["op"] for e in report.applied if e["fusion"] == "qfuse.maximum"] == ["tosa.max_pool2d"] * 2
    assert after.count("tosa.max_pool2d") == 2
    assert after.count("tosa.max_pool2d") == sum("i8>" in line for line in after.splitlines() if "max_pool2d" in line)
    tosa.validate(after)
    context = ir.Context()
    other = ir.Module.parse((here.parent / "networks" / "model.stem.x86.mlir").read_text(), context)
    assert qfuse.fuse(other, "linalg", epilogue="fixed-point", scaling="single").missed == []
    program = iree.Program(iree.compile_module(other))
    rng = np.random.default_rng(9)
    for deviation in (0.3, 1.0, 30.0):
        x = rng.normal(0, deviation, (1, 3, 16, 16)).astype(np.float32)
        (got,), (wanted,) = tosa.run(after, [x]), program(x)
        assert np.abs(got - wanted).max() <= 0.02 * np.abs(wanted).max()
