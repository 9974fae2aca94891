"""Every TOSA spelling that frontends write, read as nodes that do not depend on the dialect."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.indexing import dim
from qfuse.matchers.nodes import (
    Contraction,
    Contradiction,
    Convolution,
    Dequantize,
    Elementwise,
    LayoutNode,
    Node,
    Opaque,
    Quantize,
    Reduction,
)
from tests.conftest import Recognize
from tests.matchers.ir import describe, f32
from tests.tosa.ir import Lines

N = TypeVar("N", bound=Node)


def last(nodes: list[Node], kind: type[N]) -> N:
    """The last node of a kind: the whole chain, whose parts may be nodes, too."""
    return [n for n in nodes if isinstance(n, kind)][-1]


# -- quantize --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("zero", [0, 3, -128])
def test_quantize(recognize: Recognize, zero: int, truncated: bool) -> None:
    """Product with the reciprocal, twelve operations of rounding, zero point, clamp, cast (or trunc and cast)."""
    f = Lines(x="4x8xf32")
    q = f.quantize("%x", 0.02, zero, truncated=truncated)
    node = last(recognize(f.module(q)), Quantize)
    found = describe(node.params)
    assert (found.zero_point, found.storage, found.low, found.high) == (zero, "s8", -128, 127)
    assert found.scale == pytest.approx(0.02, rel=1e-7)
    assert node.reciprocal
    assert node.input.op == "elem"
    assert not node.repaired


@pytest.mark.parametrize(("low", "high", "element", "storage"), [(-8, 7, "i8", "s8"), (-32768, 32767, "i16", "s16")])
def test_quantize_ranges(recognize: Recognize, low: int, high: int, element: str, storage: str) -> None:
    f = Lines(x="4x8xf32")
    found = describe(last(recognize(f.module(f.quantize("%x", 0.5, 0, low, high, element))), Quantize).params)
    assert (found.storage, found.low, found.high) == (storage, low, high)


def test_quantize_per_channel(recognize: Recognize) -> None:
    """Constants of shape [n, 1]."""
    f = Lines(x="3x4xf32")
    scale = np.array([[0.5], [0.25], [2.0]])
    zero = np.array([[1], [0], [-4]])
    params = last(recognize(f.module(f.quantize("%x", scale, zero))), Quantize).params
    found = describe(params)
    assert found.scale == [0.5, 0.25, 2.0]
    assert found.zero_point == [1, 0, -4]
    assert params.scale.index == (dim(0),)


def test_scale_is_that_of_the_dequantize_that_the_reciprocal_belongs_to(recognize: Recognize) -> None:
    """Of a reciprocal alone the nearest f32 is taken; several have the same reciprocal."""
    for n in range(1, 200):
        scale = np.float32(n) * np.float32(0.00371)
        f = Lines(x="4x8xf32")
        d = f.dequantize(f.quantize("%x", scale, 3), scale, 3)
        nodes = recognize(f.module(d))
        assert last(nodes, Quantize).params.scale.scalar == last(nodes, Dequantize).params.scale.scalar == scale


def test_scale_of_a_lone_reciprocal(recognize: Recognize) -> None:
    """The f32 nearest to one over it."""
    scale = np.float32(0.0371)
    f = Lines(x="4x8xf32")
    node = last(recognize(f.module(f.quantize("%x", scale))), Quantize)
    assert node.params.scale.scalar == np.float32(1 / np.float64(np.float32(1) / scale))


def test_quantize_with_a_reciprocal_at_run_time(recognize: Recognize) -> None:
    """Per token: `tosa.reciprocal` of scales of shape [n, 1]."""
    f = Lines(x="3x4xf32", s="3x1xf32")
    inverse = f.op("reciprocal", ["%s"], "3x1xf32")
    rounded = f.round(f.mul("%x", inverse, "3x4xf32"))
    clamped = f.op("clamp", [rounded], "3x4xf32", "max_val = 127.0 : f32, min_val = -128.0 : f32")
    params = last(recognize(f.module(f.op("cast", [clamped], "3x4xi8"))), Quantize).params
    assert not params.scale.is_constant
    assert params.scale.index[0] == dim(0)
    assert params.zero_point.scalar == 0


def test_a_cast_rounds(recognize: Recognize) -> None:
    """TOSA's cast of floats rounds to the nearest even: a quantize of scale 1, of what was computed before."""
    f = Lines(x="4x8xf32")
    scaled = f.mul("%x", f.number(2.0, "%x", "f32"), "4x8xf32")
    clamped = f.op("clamp", [scaled], "4x8xf32", "max_val = 127.0 : f32, min_val = -128.0 : f32")
    found = describe(last(recognize(f.module(f.op("cast", [clamped], "4x8xi8"))), Quantize).params)
    assert (found.scale, found.zero_point, found.low, found.high) == (1.0, 0, -128, 127)


def test_other_roundings_are_no_steps_of_a_quantize(recognize: Recognize) -> None:
    """Compared with another number than one half: what is left is the cast."""
    f = Lines(x="4x8xf32")
    q = f.quantize("%x", 0.5)
    text = f.module(q).replace("dense<0.5>", "dense<0.25>")
    assert text != f.module(q)
    assert describe(last(recognize(text), Quantize).params).scale == 1.0
    assert describe(last(recognize(f.module(q)), Quantize).params).scale == 0.5


# -- dequantize ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 3, -128])
@pytest.mark.parametrize(("element", "storage"), [("i8", "s8"), ("i16", "s16")])
def test_dequantize(recognize: Recognize, zero: int, element: str, storage: str) -> None:
    f = Lines(q=f"4x8x{element}")
    found = describe(last(recognize(f.module(f.dequantize("%q", 0.02, zero))), Dequantize).params)
    assert (found.scale, found.zero_point, found.storage) == (f32(0.02), zero, storage)


def test_dequantize_per_channel(recognize: Recognize) -> None:
    f = Lines(q="3x4xi8")
    d = f.dequantize("%q", np.array([[0.5], [0.25], [2.0]]), np.array([[1], [0], [-4]]))
    found = describe(last(recognize(f.module(d)), Dequantize).params)
    assert found.scale == [0.5, 0.25, 2.0]
    assert found.zero_point == [1, 0, -4]


def test_dequantize_per_channel_with_reshaped_zero_points(recognize: Recognize) -> None:
    """A constant of i64, reshaped and cast."""
    f = Lines(q="3x4xi8")
    shape = f.const_shape([3, 1])
    reshaped = f.op("reshape", [f.const(np.array([1, 0, -4]), "i64"), shape], "3x1xi64")
    zero = f.op("cast", [reshaped], "3x1xi32")
    wide = f.op("cast", ["%q"], "3x4xi32")
    less = f.op("cast", [f.op("sub", [wide, zero], "3x4xi32")], "3x4xf32")
    d = f.mul(less, f.const(np.array([[0.5], [0.25], [2.0]]), "f32"), "3x4xf32")
    found = describe(last(recognize(f.module(d)), Dequantize).params)
    assert found.scale == [0.5, 0.25, 2.0]
    assert found.zero_point == [1, 0, -4]


def test_dequantize_with_parameters_at_run_time(recognize: Recognize) -> None:
    f = Lines(q="3x4xi8", z="3x1xi32", s="3x1xf32")
    wide = f.op("cast", ["%q"], "3x4xi32")
    less = f.op("cast", [f.op("sub", [wide, "%z"], "3x4xi32")], "3x4xf32")
    params = last(recognize(f.module(f.mul(less, "%s", "3x4xf32"))), Dequantize).params
    assert not params.scale.is_constant
    assert not params.zero_point.is_constant
    assert params.scale.index[0] == params.zero_point.index[0] == dim(0)


# -- unsigned --------------------------------------------------------------------------------------------------


def test_unsigned_by_the_clamp(recognize: Recognize) -> None:
    """And what reads the integers, also behind moves, reads unsigned ones."""
    f = Lines(x="4x8xf32")
    q = f.quantize("%x", 0.02, 7, 0, 255)
    moved = f.op("transpose", [q], "8x4xi8", "perms = array<i32: 1, 0>")
    nodes = recognize(f.module(f.dequantize(moved, 0.02, 7)))
    for kind in (Quantize, Dequantize):
        node = last(nodes, kind)
        assert node.repaired
        assert not node.params.storage.signed
    assert describe(last(nodes, Quantize).params).high == 255


def test_unsigned_by_the_zero_point(recognize: Recognize) -> None:
    """A clamp to [-128, 127] with a zero point of 133, as the ONNX importer writes."""
    f = Lines(x="4x8xf32")
    node = last(recognize(f.module(f.quantize("%x", 0.02, 133, -128, 127))), Quantize)
    found = describe(node.params)
    assert node.repaired
    assert (found.storage, found.low, found.high) == ("u8", 0, 255)


@pytest.mark.parametrize(("other", "unsigned"), [(133, True), (100, False), (-7, False)])
def test_bounds_that_fit_both_follow_what_is_certain_in_the_function(
    recognize: Recognize, other: int, unsigned: bool
) -> None:
    """The ONNX importer writes signed bounds for unsigned storage: a zero point of 0 fits both."""
    f = Lines(x="4x8xf32")
    first = f.quantize("%x", 0.02, 0, -128, 127)
    nodes = recognize(f.module(first, f.quantize("%x", 0.03, other, -128, 127)))
    found = [n for n in nodes if isinstance(n, Quantize)]
    assert [n.repaired for n in found] == [unsigned, other > 127]
    assert [n.params.quant_max for n in found] == [255 if n.repaired else 127 for n in found]


def test_no_repair_of_bounds_that_fit_both_where_both_are_certain(recognize: Recognize) -> None:
    f = Lines(x="4x8xf32")
    results = [f.quantize("%x", 0.02, zero, -128, 127) for zero in (0, 133, -7)]
    nodes = recognize(f.module(*results))
    reason = last(nodes, Contradiction).reason
    assert reason.startswith("the clamp [-128, 127] stands for signed and for unsigned storage in the function")
    assert [n.repaired for n in nodes if isinstance(n, Quantize)] == [True, False]


@pytest.mark.parametrize(
    ("written", "read", "reason"),
    [
        ((0.02, -3, 0, 255), None, "the clamp [0, 255] is that of unsigned storage and the zero point -3 is negative"),
        ((0.02, 3, -128, 127), 200, "the zero point 200 is that of unsigned storage, which was quantized to signed"),
        ((0.02, 3, 0, 255), -5, "the zero point -5 is negative and the storage was quantized as unsigned"),
    ],
)
def test_no_repair_when_evidence_contradicts_itself(
    recognize: Recognize, written: tuple[float, int, int, int], read: int | None, reason: str
) -> None:
    f = Lines(x="4x8xf32")
    result = f.quantize("%x", *written)
    if read is not None:
        result = f.dequantize(result, 0.02, read)
    assert last(recognize(f.module(result)), Contradiction).reason.startswith(reason)


# -- between and behind ----------------------------------------------------------------------------------------


def test_relu_is_a_clamp(recognize: Recognize) -> None:
    """Of which the greatest finite number bounds nothing."""
    f = Lines(x="4x8xf32")
    r = f.op("clamp", ["%x"], "4x8xf32", "max_val = 3.40282347E+38 : f32, min_val = 0.0 : f32")
    scalar = last(recognize(f.module(r)), Elementwise).scalar
    assert (scalar.op, scalar.args[0].op, scalar.args[1].payload) == ("max", "elem", 0.0)


def test_matmul(recognize: Recognize) -> None:
    """Wrapped in reshapes to rank 3."""
    f = Lines(a="4x8xf32", b="8x5xf32")
    a = f.op("reshape", ["%a", f.const_shape([1, 4, 8])], "1x4x8xf32")
    b = f.op("reshape", ["%b", f.const_shape([1, 8, 5])], "1x8x5xf32")
    zero = f.const(0.0, "f32")
    c = f.op("matmul", [a, b, zero, zero], "1x4x5xf32")
    nodes = recognize(f.module(f.op("reshape", [c, f.const_shape([4, 5])], "4x5xf32")))
    node = last(nodes, Contraction)
    assert node.extents == (1, 4, 5, 8)
    assert node.reduction == (3,)
    assert not node.integer
    assert [n.layout.kind for n in nodes if isinstance(n, LayoutNode)] == ["reshape"] * 3


def test_convolution(recognize: Recognize) -> None:
    """Of which padding belongs to the operation; transposes around it are layout."""
    f = Lines(x="1x3x6x6xf32", w="4x3x3x3xf32", b="4xf32")
    x = f.op("transpose", ["%x"], "1x6x6x3xf32", "perms = array<i32: 0, 2, 3, 1>")
    w = f.op("transpose", ["%w"], "4x3x3x3xf32", "perms = array<i32: 0, 2, 3, 1>")
    y = f.conv("conv2d", x, w, "%b", "1x6x6x4xf32", "pad = array<i64: 1, 1, 1, 1>")
    nodes = recognize(f.module(f.op("transpose", [y], "1x4x6x6xf32", "perms = array<i32: 0, 3, 1, 2>")))
    node = last(nodes, Convolution)
    assert node.padding == ((0, 0), (1, 1), (1, 1), (0, 0))
    assert node.extents == (1, 6, 6, 4, 3, 3, 3)
    assert node.init_index == (dim(3),)
    assert len([n for n in nodes if isinstance(n, LayoutNode)]) == 3


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_convolution(recognize: Recognize, multiplier: int) -> None:
    f = Lines(x="1x6x6x3xf32", w=f"3x3x3x{multiplier}xf32", b=f"{3 * multiplier}xf32")
    y = f.conv("depthwise_conv2d", "%x", "%w", "%b", f"1x4x4x{3 * multiplier}xf32", "pad = array<i64: 0, 0, 0, 0>")
    node = last(recognize(f.module(y)), Convolution)
    assert node.multiplier == multiplier
    assert node.extents == (1, 4, 4, 3 * multiplier, 3, 3)


@pytest.mark.parametrize(
    ("name", "attributes", "kind"),
    [
        ("max_pool2d", "nan_mode = PROPAGATE", "max"),
        ("avg_pool2d", "acc_type = f32", "mean"),
    ],
)
def test_pooling(recognize: Recognize, name: str, attributes: str, kind: str) -> None:
    f = Lines(x="1x6x6x3xf32")
    zeros = [] if kind == "max" else [f.const(0.0, "f32"), f.const(0.0, "f32")]
    window = "kernel = array<i64: 2, 2>, pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>"
    y = f.op(name, ["%x", *zeros], "1x3x3x3xf32", f"{attributes}, {window}")
    node = last(recognize(f.module(y)), Reduction)
    assert (node.kind, node.extents) == (kind, (1, 3, 3, 3, 2, 2))


@pytest.mark.parametrize(("yes", "no"), [("floor", None), (None, "ceil"), ("ceil", None), (None, "floor")])
def test_a_choice_with_one_rounded_side_is_no_rounding(recognize: Recognize, yes: str | None, no: str | None) -> None:
    """`where(c, floor(x), y)` and the like."""
    f = Lines(x="4xf32", y="4xf32", c="4xi1")
    sides = ["%y" if name is None else f.op(name, ["%x"], "4xf32") for name in (yes, no)]
    found = last(recognize(f.module(f.op("select", ["%c", *sides], "4xf32"))), Elementwise)
    assert found.op.name == "tosa.select"
    assert found.scalar.op == "select"


def test_custom_quantizers_are_opaque_by_their_name(recognize: Recognize) -> None:
    """Block floating point, for example."""
    f = Lines(x="4x8xf32")
    attributes = 'operator_name = "block_quantize", domain_name = "d", implementation_attrs = "8,1"'
    node = last(recognize(f.module(f.op("custom", ["%x"], "4x8xf32", attributes))), Opaque)
    assert node.kind == "tosa.custom block_quantize"


@pytest.mark.parametrize("shift", [0, 4])
def test_integer_products_with_a_shift(shift: int) -> None:
    """Beside quantized values and on them: read without error, and left alone."""
    f = Lines(q="2x3xi8", n="2x3xi32")
    x = f.dequantize("%q", np.float32(0.05), 3)
    wide = f.op("mul", [f.op("cast", ["%q"], "2x3xi32"), "%n", f.const(shift, "i8")], "2x3xi32")
    y = f.op("add", [x, f.op("cast", [wide], "2x3xf32")], "2x3xf32")
    q = f.quantize(y, np.float32(0.06), -4)
    module = Bindings.first_available().parse_source(f.module(q), "module")
    report = qfuse.fuse(module, "tosa-int")
    assert report.applied == []
    assert f"dense<{shift}> : tensor<1xi8>" in str(module)
