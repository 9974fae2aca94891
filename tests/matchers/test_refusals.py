"""What contradicts itself is refused with a reason; what only looks like a quantize is left alone."""

from __future__ import annotations

import pytest

from qfuse.matchers.nodes import Contradiction, Dequantize, Elementwise, LayoutNode, Node, Opaque, Quantize
from tests.conftest import Recognize
from tests.matchers.ir import Described, describe, function, generic
from tests.matchers.test_quantize import body, operands_body

X = ["%x: tensor<4x8xf32>"]
X_ARG = "%x: tensor<4x8xf32>"
Q = ["%q: tensor<4x8xi8>"]
F32 = "tensor<4x8xf32>"


def only(nodes: list[Node]) -> Node:
    """The one node of a module."""
    assert len(nodes) == 1, nodes
    return nodes[0]


def reason(nodes: list[Node]) -> str:
    """The reason of the one node, a contradiction."""
    node = only(nodes)
    assert isinstance(node, Contradiction), node
    return node.reason


# -- contradictions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "cast", "to", "expected"),
    [
        ("0.0", "255.0", "fptosi", "i8",
         "the clamp [0, 255] does not fit the signed 8-bit storage that the cast produces"),
        ("-128.0", "127.0", "fptoui", "i8",
         "the clamp [-128, 127] does not fit the unsigned 8-bit storage that the cast produces"),
        ("-128.0", "127.0", "fptosi", "i4",
         "the clamp [-128, 127] does not fit the signed 4-bit storage that the cast produces"),
        ("10.0", "-10.0", "fptosi", "i8", "the clamp [10, -10] is empty"),
    ],
)  # fmt: skip
def test_refuse_clamp_against_cast(
    recognize: Recognize, low: str, high: str, cast: str, to: str, expected: str
) -> None:
    """The clamp and the cast must mean the same storage."""
    text = body(zero_point=None, low=low, high=high, cast=cast, to=to)
    assert reason(recognize(function(X_ARG, generic("%q", X, f"tensor<4x8x{to}>", text)))) == expected


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("0.0", "a scale is zero"),
        ("-0.5", "a scale is negative"),
        ("0x7F800000", "a scale is not finite"),
        ("0x7FC00000", "a scale is not finite"),
    ],
)
def test_refuse_impossible_scales(recognize: Recognize, scale: str, expected: str) -> None:
    """A scale is a positive finite number, in a quantize and in a dequantize."""
    assert reason(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", body(scale=scale))))) == expected
    text = (
        f"%s = arith.constant {scale} : f32\n%f = arith.sitofp %in : i8 to f32\n%r = arith.mulf %f, %s : f32\nyield %r"
    )
    assert reason(recognize(function("%q: tensor<4x8xi8>", generic("%f", Q, F32, text)))) == expected


def test_refuse_one_impossible_scale_of_an_axis(recognize: Recognize) -> None:
    """One bad scale of many is enough."""
    text = function(
        "%x: tensor<4x2xf32>",
        "%s = arith.constant dense<[0.5, 0.0]> : tensor<2xf32>",
        "%z = arith.constant dense<0> : tensor<2xi64>",
        generic("%q", ["%x: tensor<4x2xf32>", "%s: tensor<2xf32>", "%z: tensor<2xi64>"], "tensor<4x2xi8>",
                operands_body(), ["d0, d1", "d1", "d1"]),
    )  # fmt: skip
    assert reason(recognize(text)) == "a scale is zero"


@pytest.mark.parametrize(
    ("zero", "low", "high", "cast", "expected"),
    [
        ("200.0", "-128.0", "127.0", "fptosi", "the zero point 200 is outside the storage range [-128, 127]"),
        ("-1.0", "0.0", "255.0", "fptoui", "the zero point -1 is outside the storage range [0, 255]"),
    ],
)
def test_refuse_zero_point_outside_the_storage_of_a_quantize(
    recognize: Recognize, zero: str, low: str, high: str, cast: str, expected: str
) -> None:
    """A zero point is a value of the storage type."""
    text = body(zero_point=zero, low=low, high=high, cast=cast)
    assert reason(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text)))) == expected


DEQUANTIZE = """
    %s = arith.constant 0.5 : f32
    %z = arith.constant {zero} : i32
    %w = arith.{extend} %in : i8 to i32
    %d = arith.subi %w, %z : i32
    %f = arith.{convert} %d : i32 to f32
    %r = arith.mulf %f, %s : f32
    yield %r
"""


@pytest.mark.parametrize(
    ("extend", "zero", "expected"),
    [
        ("extsi", "128", "the zero point 128 is outside the storage range [-128, 127]"),
        ("extui", "-1", "the zero point -1 is outside the storage range [0, 255]"),
        ("extui", "256", "the zero point 256 is outside the storage range [0, 255]"),
    ],
)
def test_refuse_zero_point_outside_the_storage_of_a_dequantize(
    recognize: Recognize, extend: str, zero: str, expected: str
) -> None:
    """The extension says the range that the zero point must lie in."""
    text = generic("%f", Q, F32, DEQUANTIZE.format(extend=extend, zero=zero, convert="sitofp"))
    assert reason(recognize(function("%q: tensor<4x8xi8>", text))) == expected


def test_refuse_mixed_signs(recognize: Recognize) -> None:
    """Sign-extended and then converted as unsigned is neither."""
    text = """
        %s = arith.constant 0.5 : f32
        %w = arith.extsi %in : i8 to i32
        %f = arith.uitofp %w : i32 to f32
        %r = arith.mulf %f, %s : f32
        yield %r
    """
    found = reason(recognize(function("%q: tensor<4x8xi8>", generic("%f", Q, F32, text))))
    assert found == "storage is sign-extended and then converted as unsigned"


def test_refuse_unsigned_difference(recognize: Recognize) -> None:
    """q - z may be negative; reading it as unsigned is no dequantize."""
    text = generic("%f", Q, F32, DEQUANTIZE.format(extend="extui", zero="3", convert="uitofp"))
    found = reason(recognize(function("%q: tensor<4x8xi8>", text)))
    assert found == "the zero point is subtracted and the difference, maybe negative, read as unsigned"


# -- what only looks similar -----------------------------------------------------------------------------------


def test_no_quantize_without_a_clamp(recognize: Recognize) -> None:
    """A float to integer cast of a rounded quotient may be anything."""
    text = body(zero_point=None).replace("%m = arith.maximumf %r, %l : f32", "")
    text = text.replace("%n = arith.minimumf %m, %h : f32", "").replace("fptosi %n", "fptosi %r")
    assert isinstance(only(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text)))), Elementwise)


@pytest.mark.parametrize("bound", ["maximumf", "minimumf"])
def test_no_quantize_with_half_a_clamp(recognize: Recognize, bound: str) -> None:
    """One bound is not enough: the cast would overflow on the other side."""
    text = body(zero_point=None)
    if bound == "maximumf":
        text = text.replace("%m = arith.maximumf %r, %l : f32", "").replace("minimumf %m", "minimumf %r")
    else:
        text = text.replace("%n = arith.minimumf %m, %h : f32", "").replace("fptosi %n", "fptosi %m")
    assert isinstance(only(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text)))), Elementwise)


@pytest.mark.parametrize("rounding", ["math.floor", "math.ceil", "math.round", "math.trunc"])
def test_no_quantize_with_other_rounding(recognize: Recognize, rounding: str) -> None:
    """Only half to even is the quantize of the contract."""
    text = body().replace("math.roundeven", rounding)
    assert isinstance(only(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text)))), Elementwise)


def test_no_quantize_without_rounding(recognize: Recognize) -> None:
    """A truncating cast is no quantize."""
    text = body(zero_point=None).replace("%r = math.roundeven %d : f32", "").replace("maximumf %r", "maximumf %d")
    assert isinstance(only(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text)))), Elementwise)


def test_no_quantize_with_a_fractional_zero_point(recognize: Recognize) -> None:
    """A zero point is an integer."""
    text = generic("%q", X, "tensor<4x8xi8>", body(zero_point="0.5"))
    assert isinstance(only(recognize(function(X_ARG, text))), Elementwise)


@pytest.mark.parametrize("to", ["i1", "i64"])
def test_no_quantize_to_other_widths(recognize: Recognize, to: str) -> None:
    """Storage has 2 to 32 bits: a rounded i64 is an index or a zero point."""
    text = body(zero_point=None, low="0.0", high="1.0", to=to, cast="fptoui")
    node = only(recognize(function(X_ARG, generic("%q", X, f"tensor<4x8x{to}>", text))))
    assert isinstance(node, Elementwise)


def test_no_quantize_with_a_clamp_that_varies(recognize: Recognize) -> None:
    """Bounds are numbers, the same for all elements."""
    text = body().replace("%l = arith.constant -128.0 : f32", "").replace("maximumf %a, %l", "maximumf %a, %in_1")
    source = ["%x: tensor<4x8xf32>", "%b: tensor<8xf32>"]
    operation = generic("%q", source, "tensor<4x8xi8>", text, ["d0, d1", "d1"])
    assert isinstance(only(recognize(function(f"{X_ARG}, %b: tensor<8xf32>", operation))), Elementwise)


def test_no_quantize_with_a_scale_for_each_element(recognize: Recognize) -> None:
    """A division by as many run-time numbers as there are elements is a division of two tensors."""
    shape = "tensor<4x8xf32>"
    text = function(
        f"%x: {shape}, %s: {shape}, %z: tensor<i64>",
        generic("%q", [f"%x: {shape}", f"%s: {shape}", "%z: tensor<i64>"], "tensor<4x8xi8>",
                operands_body(), ["d0, d1", "d0, d1", ""]),
    )  # fmt: skip
    assert isinstance(only(recognize(text)), Elementwise)


@pytest.mark.parametrize("shape", ["4x8", "?x?"])
def test_no_dequantize_with_a_scale_for_each_element(recognize: Recognize, shape: str) -> None:
    """A mask times a tensor is a product, also of dynamic extents."""
    text = generic(
        "%f", [f"%q: tensor<{shape}xi8>", f"%y: tensor<{shape}xf32>"], f"tensor<{shape}xf32>",
        "%f = arith.sitofp %in : i8 to f32\n%r = arith.mulf %f, %in_1 : f32\nyield %r", out="%y",
    )  # fmt: skip
    assert isinstance(only(recognize(function(f"%q: tensor<{shape}xi8>, %y: tensor<{shape}xf32>", text))), Elementwise)


@pytest.mark.parametrize("source", ["i1", "i32", "i64"])
def test_no_dequantize_of_a_plain_conversion(recognize: Recognize, source: str) -> None:
    """Booleans, accumulators and indices are converted too."""
    convert = "uitofp" if source == "i1" else "sitofp"
    argument = f"%q: tensor<4x8x{source}>"
    text = generic("%f", [argument], F32, f"%f = arith.{convert} %in : {source} to f32\nyield %f")
    assert isinstance(only(recognize(function(argument, text))), Elementwise)


@pytest.mark.parametrize("source", ["i1", "i33", "i64"])
def test_no_dequantize_of_other_widths(recognize: Recognize, source: str) -> None:
    """Scaled integers of other widths are not quantized storage."""
    convert = "uitofp" if source == "i1" else "sitofp"
    argument = f"%q: tensor<4x8x{source}>"
    text = generic(
        "%f", [argument], F32,
        f"%s = arith.constant 0.5 : f32\n%f = arith.{convert} %in : {source} to f32\n"
        "%r = arith.mulf %f, %s : f32\nyield %r",
    )  # fmt: skip
    assert isinstance(only(recognize(function(argument, text))), Elementwise)


@pytest.mark.parametrize("split", [False, True])
def test_no_dequantize_when_the_difference_wraps(recognize: Recognize, split: bool) -> None:
    """A subtraction in the storage type itself wraps around, in one body or in two."""
    subtract = "%z = arith.constant 3 : i8\n%d = arith.subi %in, %z : i8\n"
    scale = "%s = arith.constant 0.5 : f32\n%f = arith.sitofp {} : i8 to f32\n%r = arith.mulf %f, %s : f32\nyield %r"
    if split:
        operations = [
            generic("%d", Q, "tensor<4x8xi8>", subtract + "yield %d"),
            generic("%f", ["%d: tensor<4x8xi8>"], F32, scale.format("%in")),
        ]
        node = recognize(function("%q: tensor<4x8xi8>", *operations))[-1]
        assert isinstance(node, Dequantize)
        assert describe(node.params) == Described(scale=0.5)
        assert node.storage == node.op.operands[0]
    else:
        text = generic("%f", Q, F32, subtract + scale.format("%d"))
        assert isinstance(only(recognize(function("%q: tensor<4x8xi8>", text))), Elementwise)


def test_no_dequantize_with_a_fractional_zero_point(recognize: Recognize) -> None:
    """float(q) - 0.5 is not an integer difference."""
    text = """
        %s = arith.constant 0.5 : f32
        %f = arith.sitofp %in : i8 to f32
        %d = arith.subf %f, %s : f32
        %r = arith.mulf %d, %s : f32
        yield %r
    """
    assert isinstance(only(recognize(function("%q: tensor<4x8xi8>", generic("%f", Q, F32, text)))), Elementwise)


def test_no_dequantize_with_a_bias_in_the_body(recognize: Recognize) -> None:
    """A sum behind the product is another computation."""
    text = """
        %s = arith.constant 0.5 : f32
        %f = arith.sitofp %in : i8 to f32
        %r = arith.mulf %f, %s : f32
        %b = arith.addf %r, %s : f32
        yield %b
    """
    assert isinstance(only(recognize(function("%q: tensor<4x8xi8>", generic("%f", Q, F32, text)))), Elementwise)


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2"])
def test_no_dequantize_to_exotic_floats(recognize: Recognize, element: str) -> None:
    """The arithmetic of types below f16 is not read."""
    text = generic(
        "%f", Q, f"tensor<4x8x{element}>",
        f"%s = arith.constant 0.5 : {element}\n%f = arith.sitofp %in : i8 to {element}\n"
        f"%r = arith.mulf %f, %s : {element}\nyield %r",
    )  # fmt: skip
    assert not isinstance(only(recognize(function("%q: tensor<4x8xi8>", text))), Dequantize)


def test_several_results_are_opaque(recognize: Recognize) -> None:
    """An elementwise operation with two results is none of these."""
    text = """
        %e = tensor.empty() : tensor<4x8xf32>
        %r:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>,
          affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
          ins(%q : tensor<4x8xi8>) outs(%e, %e : tensor<4x8xf32>, tensor<4x8xf32>) {
        ^bb0(%in: i8, %a: f32, %b: f32):
          %f = arith.sitofp %in : i8 to f32
          linalg.yield %f, %f : f32, f32
        } -> (tensor<4x8xf32>, tensor<4x8xf32>)
    """
    assert isinstance(only(recognize(function("%q: tensor<4x8xi8>", text))), Opaque)


def test_copies_and_unknown_maps(recognize: Recognize) -> None:
    """A body that yields its input is a layout; a map outside the algebra leaves the operation opaque."""
    copy = generic("%f", ["%x: tensor<8xf32>"], F32, "yield %in", ["d1"])
    node = only(recognize(function("%x: tensor<8xf32>", copy)))
    assert isinstance(node, LayoutNode)
    assert node.layout.kind == "broadcast"
    strange = generic("%f", ["%x: tensor<4x5xf32>"], F32, "yield %in", ["d0, d1 ceildiv 2"])
    assert isinstance(only(recognize(function("%x: tensor<4x5xf32>", strange))), Opaque)


def test_unranked_tensors_are_of_no_interest(recognize: Recognize) -> None:
    """Nothing is said about tensors of unknown rank."""
    assert recognize(function("%x: tensor<*xf32>", "%y = tensor.cast %x : tensor<*xf32> to tensor<*xf32>")) == []


def test_empty_tensors(recognize: Recognize) -> None:
    """A dimension of extent zero, and parameters without a value."""
    text = function(
        "%x: tensor<4x0xf32>",
        "%s = arith.constant dense<> : tensor<0xf32>",
        "%z = arith.constant dense<> : tensor<0xi64>",
        generic("%q", ["%x: tensor<4x0xf32>", "%s: tensor<0xf32>", "%z: tensor<0xi64>"], "tensor<4x0xi8>",
                operands_body(), ["d0, d1", "d1", "d1"]),
    )  # fmt: skip
    assert isinstance(only(recognize(text)), Quantize)
