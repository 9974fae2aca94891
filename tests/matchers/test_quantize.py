"""Quantizes in linalg, one operation each: FORMS Q1 (per tensor), Q2 (per axis), Q3 (per group), Q5 (captured)."""

from __future__ import annotations

import numpy as np
import pytest

from qfuse._mlir import Bindings
from qfuse.matchers.nodes import Node, Quantize
from tests.conftest import Recognize
from tests.matchers.ir import Described, blob, describe, f16, f32, function, generic

X = ["%x: tensor<4x8xf32>"]
X_ARG = "%x: tensor<4x8xf32>"


def only_quantize(nodes: list[Node]) -> Quantize:
    """The one quantize of a module."""
    found = [n for n in nodes if isinstance(n, Quantize)]
    assert len(found) == 1, [type(n).__name__ for n in nodes]
    return found[0]


def body(
    scale: str = "0.5",
    zero_point: str | None = "3.0",
    low: str = "-128.0",
    high: str = "127.0",
    cast: str = "fptosi",
    to: str = "i8",
    element: str = "f32",
) -> str:
    """The usual body with literal constants; no addition when the zero point is None."""
    add = "" if zero_point is None else f"%z = arith.constant {zero_point} : {element}\n"
    added = "%r" if zero_point is None else "%a"
    return f"""
        %s = arith.constant {scale} : {element}
        %l = arith.constant {low} : {element}
        %h = arith.constant {high} : {element}
        {add}%d = arith.divf %in, %s : {element}
        %r = math.roundeven %d : {element}
        {"" if zero_point is None else f"%a = arith.addf %r, %z : {element}"}
        %m = arith.maximumf {added}, %l : {element}
        %n = arith.minimumf %m, %h : {element}
        %q = arith.{cast} %n : {element} to {to}
        yield %q
    """


# -- per tensor ------------------------------------------------------------------------------------------------


def test_per_tensor(recognize: Recognize) -> None:
    """Division, round, zero point, clamp, cast (Q1)."""
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", body()))))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)
    assert not node.reciprocal
    assert not node.zero_point_first
    assert node.input.op == "elem"


@pytest.mark.parametrize("zero_point", ["0.0", None])
def test_zero_point_zero_kept_or_folded(recognize: Recognize, zero_point: str | None) -> None:
    """An addition of 0.0 and none at all are the same symmetric parameters."""
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", body(zero_point=zero_point)))))
    assert describe(node.params) == Described(scale=0.5)
    assert node.params.symmetric


def test_scale_one_is_folded_away(recognize: Recognize) -> None:
    """No division: the scale is 1."""
    text = body().replace("%d = arith.divf %in, %s : f32", "").replace("roundeven %d", "roundeven %in")
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=1.0, zero_point=3)


@pytest.mark.parametrize("shared", ["low", "high"])
def test_zero_point_shares_the_constant_of_a_bound(recognize: Recognize, shared: str) -> None:
    """A zero point equal to a bound is the same SSA value."""
    name = "%l" if shared == "low" else "%h"
    text = body().replace("addf %r, %z", f"addf %r, {name}")
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=0.5, zero_point=-128 if shared == "low" else 127)


def test_unsigned_shares_zero_with_the_fill_of_a_matmul(recognize: Recognize) -> None:
    """Zero point, lower bound and a fill are one constant outside the operation."""
    text = """
        %d = arith.divf %in, %s : f32
        %r = math.roundeven %d : f32
        %a = arith.addf %r, %zero : f32
        %m = arith.maximumf %a, %zero : f32
        %n = arith.minimumf %m, %h : f32
        %q = arith.fptoui %n : f32 to i8
        yield %q
    """
    nodes = recognize(
        function(
            "%x: tensor<4x8xf32>, %e: tensor<4x8xf32>",
            "%zero = arith.constant 0.0 : f32\n%s = arith.constant 0.25 : f32\n%h = arith.constant 255.0 : f32",
            "%f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>",
            generic("%q", X, "tensor<4x8xi8>", text),
        )
    )
    assert describe(only_quantize(nodes).params) == Described(scale=0.25, storage="u8", low=0, high=255)


@pytest.mark.parametrize(
    ("to", "cast", "low", "high", "storage", "limits"),
    [
        ("i8", "fptoui", "0.0", "255.0", "u8", (0, 255)),
        ("i8", "fptosi", "-8.0", "7.0", "s8", (-8, 7)),
        ("i8", "fptosi", "0.0", "127.0", "s8", (0, 127)),
        ("i4", "fptosi", "-8.0", "7.0", "s4", (-8, 7)),
        ("i4", "fptoui", "0.0", "15.0", "u4", (0, 15)),
        ("i16", "fptosi", "-32768.0", "32767.0", "s16", (-32768, 32767)),
        ("i16", "fptoui", "0.0", "65535.0", "u16", (0, 65535)),
        ("i32", "fptosi", "-2147483648.0", "2147483648.0", "s32", (-(2**31), 2**31 - 1)),
    ],
)
def test_storage_types(
    recognize: Recognize, to: str, cast: str, low: str, high: str, storage: str, limits: tuple[int, int]
) -> None:
    """Width from the result, signedness from the cast, range from the clamp (2^31 in f32 for i32)."""
    text = body(zero_point="1.0", low=low, high=high, cast=cast, to=to)
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, f"tensor<4x8x{to}>", text))))
    expected = Described(scale=0.5, zero_point=1, storage=storage, low=limits[0], high=limits[1])
    assert describe(node.params) == expected


@pytest.mark.parametrize(
    ("element", "rounded"), [("f16", f16(0.02)), ("bf16", 0.02001953125), ("f64", 0.02), ("f32", f32(0.02))]
)
def test_expressed_types(recognize: Recognize, element: str, rounded: float) -> None:
    """The whole quantize in another float type; the scale is the number that this type holds."""
    text = body(scale="2.000000e-02", element=element)
    node = only_quantize(
        recognize(
            function(
                f"%x: tensor<4x8x{element}>", generic("%q", [f"%x: tensor<4x8x{element}>"], "tensor<4x8xi8>", text)
            )
        )
    )
    assert describe(node.params) == Described(scale=rounded, zero_point=3, expressed=element)


@pytest.mark.parametrize(("element", "rounded"), [("f32", f32(0.02)), ("f16", f16(0.02)), ("bf16", 0.02001953125)])
@pytest.mark.parametrize("place", ["inside", "outside"])
def test_f64_constant_that_is_truncated(recognize: Recognize, element: str, rounded: float, place: str) -> None:
    """A scale that is an f64 constant, truncated in the body or in front of the operation."""
    cast = f"%s = arith.truncf %c : f64 to {element}\n"
    text = body(element=element).replace(f"%s = arith.constant 0.5 : {element}\n", cast if place == "inside" else "")
    outside = "%c = arith.constant 2.000000e-02 : f64\n" + (cast if place == "outside" else "")
    source = f"%x: tensor<4x8x{element}>"
    node = only_quantize(recognize(function(source, outside, generic("%q", [source], "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=rounded, zero_point=3, expressed=element)


def test_rank_zero(recognize: Recognize) -> None:
    """A tensor without dimensions."""
    source = "%x: tensor<f32>"
    node = only_quantize(recognize(function(source, generic("%q", [source], "tensor<i8>", body()))))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)


def test_dynamic_extents(recognize: Recognize) -> None:
    """Extents do not matter to a quantize per tensor."""
    source = "%x: tensor<?x8xf32>"
    text = generic("%q", [source], "tensor<?x8xi8>", body(), out="%o")
    node = only_quantize(recognize(function(f"{source}, %o: tensor<?x8xi8>", text)))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)
    assert node.params.extents == (None, 8)


def test_operands_in_the_other_order(recognize: Recognize) -> None:
    """Commutative operations with their operands exchanged, minimum before maximum."""
    text = """
        %s = arith.constant 0.5 : f32
        %z = arith.constant 3.0 : f32
        %l = arith.constant -128.0 : f32
        %h = arith.constant 127.0 : f32
        %d = arith.divf %in, %s : f32
        %r = math.roundeven %d : f32
        %a = arith.addf %z, %r : f32
        %n = arith.minimumf %h, %a : f32
        %m = arith.maximumf %l, %n : f32
        %q = arith.fptosi %m : f32 to i8
        yield %q
    """
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)


def test_zero_point_before_rounding(recognize: Recognize) -> None:
    """The zero point may be added first; ties then round differently, so the node says it."""
    text = """
        %s = arith.constant 2.0 : f32
        %z = arith.constant 3.0 : f32
        %l = arith.constant -128.0 : f32
        %h = arith.constant 127.0 : f32
        %d = arith.mulf %in, %s : f32
        %a = arith.addf %d, %z : f32
        %r = math.roundeven %a : f32
        %m = arith.maximumf %r, %l : f32
        %n = arith.minimumf %m, %h : f32
        %q = arith.fptosi %n : f32 to i8
        yield %q
    """
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)
    assert node.zero_point_first
    assert node.reciprocal


@pytest.mark.parametrize(("below", "above"), [("ult", "ugt"), ("olt", "ogt"), ("ule", "uge"), ("ole", "oge")])
@pytest.mark.parametrize("shared", [True, False])
def test_clamp_by_compare_and_select(recognize: Recognize, below: str, above: str, shared: bool) -> None:
    """Clamps as comparisons and selects; the compared and the selected constant may be two with one value."""
    second = "" if shared else "%l2 = arith.constant -128.0 : f32\n%h2 = arith.constant 127.0 : f32"
    low, high = ("%l", "%h") if shared else ("%l2", "%h2")
    text = f"""
        %s = arith.constant 0.5 : f32
        %l = arith.constant -128.0 : f32
        %h = arith.constant 127.0 : f32
        {second}
        %d = arith.divf %in, %s : f32
        %r = math.roundeven %d : f32
        %c = arith.cmpf {below}, %r, %l : f32
        %m = arith.select %c, {low}, %r : f32
        %e = arith.cmpf {above}, %m, %h : f32
        %n = arith.select %e, {high}, %m : f32
        %q = arith.fptosi %n : f32 to i8
        yield %q
    """
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=0.5)


def test_relu_in_front_stays_with_the_input(recognize: Recognize) -> None:
    """What is computed in the same body before the division is the input, not the quantize."""
    text = body().replace("arith.divf %in, %s", "arith.divf %relu, %s")
    text = "%o = arith.constant 0.0 : f32\n%relu = arith.maximumf %in, %o : f32\n" + text.strip()
    node = only_quantize(recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", text))))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)
    assert node.input.op == "max"


# -- per axis and per group ------------------------------------------------------------------------------------

OPERANDS_BODY = """
    %l = arith.constant -128.0 : f32
    %h = arith.constant 127.0 : f32
    %zf = arith.sitofp %in_2 : {zero} to f32
    {truncated}
    %d = arith.divf %in, {scale} : f32
    %r = math.roundeven %d : f32
    %a = arith.addf %r, %zf : f32
    %m = arith.maximumf %a, %l : f32
    %n = arith.minimumf %m, %h : f32
    %q = arith.fptosi %n : f32 to i8
    yield %q
"""


def operands_body(zero: str = "i64", truncated: bool = False) -> str:
    """The body of a quantize whose scale and zero point are operands."""
    cast = "%sf = arith.truncf %in_1 : f64 to f32" if truncated else ""
    return OPERANDS_BODY.format(zero=zero, truncated=cast, scale="%sf" if truncated else "%in_1")


@pytest.mark.parametrize("zero", ["i64", "i32", "i8"])
def test_per_axis_constants(recognize: Recognize, zero: str) -> None:
    """Scales and zero points of one axis (Q2), zero points of any width."""
    text = function(
        "%x: tensor<4x2xf32>",
        "%s = arith.constant dense<[0.5, 0.25]> : tensor<2xf32>",
        f"%z = arith.constant dense<[3, -1]> : tensor<2x{zero}>",
        generic("%q", ["%x: tensor<4x2xf32>", "%s: tensor<2xf32>", f"%z: tensor<2x{zero}>"], "tensor<4x2xi8>",
                operands_body(zero), ["d0, d1", "d1", "d1"]),
    )  # fmt: skip
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale=[0.5, 0.25], zero_point=[3, -1], granularity="per-axis(1)", scale_at="d1", zero_at="d1"
    )


def test_per_axis_zero_points_that_are_all_zero(recognize: Recognize) -> None:
    """A resource of zeros is not folded upstream, and means symmetric."""
    text = function(
        "%x: tensor<2x4xf32>",
        "%s = arith.constant dense_resource<scale> : tensor<2xf32>",
        "%z = arith.constant dense_resource<zero> : tensor<2xi64>",
        generic("%q", ["%x: tensor<2x4xf32>", "%s: tensor<2xf32>", "%z: tensor<2xi64>"], "tensor<2x4xi8>",
                operands_body(), ["d0, d1", "d0", "d0"]),
        resources=f'scale: "{blob(np.array([0.1, 0.2], np.float32))}", zero: "{blob(np.zeros(2, np.int64), 8)}"',
    )  # fmt: skip
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale=[f32(0.1), f32(0.2)], granularity="per-axis(0)", scale_at="d0"
    )


def test_per_axis_f64_scales(recognize: Recognize) -> None:
    """f64 scales that the body truncates are f32 scales."""
    text = function(
        "%x: tensor<4x2xf32>",
        "%s = arith.constant dense<[0.1, 0.2]> : tensor<2xf64>",
        "%z = arith.constant dense<[3, -1]> : tensor<2xi64>",
        generic("%q", ["%x: tensor<4x2xf32>", "%s: tensor<2xf64>", "%z: tensor<2xi64>"], "tensor<4x2xi8>",
                operands_body(truncated=True), ["d0, d1", "d1", "d1"]),
    )  # fmt: skip
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale=[f32(0.1), f32(0.2)], zero_point=[3, -1], granularity="per-axis(1)", scale_at="d1", zero_at="d1"
    )


def test_per_axis_f16(recognize: Recognize) -> None:
    """f16 data with f32 scales: the body truncates the scales, which are then f16 numbers."""
    steps = operands_body().replace("f32", "f16").replace("divf %in, %in_1", "divf %in, %sf")
    steps = "%sf = arith.truncf %in_1 : f32 to f16\n" + steps.strip()
    text = function(
        "%x: tensor<4x2xf16>",
        "%s = arith.constant dense<[0.1, 0.2]> : tensor<2xf32>",
        "%z = arith.constant dense<[3, -1]> : tensor<2xi64>",
        generic("%q", ["%x: tensor<4x2xf16>", "%s: tensor<2xf32>", "%z: tensor<2xi64>"], "tensor<4x2xi8>",
                steps, ["d0, d1", "d1", "d1"]),
    )  # fmt: skip
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale=[f16(0.1), f16(0.2)], zero_point=[3, -1], granularity="per-axis(1)", scale_at="d1", zero_at="d1",
        expressed="f16",
    )  # fmt: skip


@pytest.mark.parametrize("equal", [True, False])
def test_equal_constants_of_an_axis_are_one(recognize: Recognize, equal: bool) -> None:
    """A splat of scales is a scale per tensor."""
    scales = "dense<0.5>" if equal else "dense<[0.5, 0.25]>"
    text = function(
        "%x: tensor<4x2xf32>",
        f"%s = arith.constant {scales} : tensor<2xf32>",
        "%z = arith.constant dense<3> : tensor<2xi64>",
        generic("%q", ["%x: tensor<4x2xf32>", "%s: tensor<2xf32>", "%z: tensor<2xi64>"], "tensor<4x2xi8>",
                operands_body(), ["d0, d1", "d1", "d1"]),
    )  # fmt: skip
    found = describe(only_quantize(recognize(text)).params)
    if equal:
        assert found == Described(scale=0.5, zero_point=3)
    else:
        assert found == Described(scale=[0.5, 0.25], zero_point=3, granularity="per-axis(1)", scale_at="d1")


@pytest.mark.parametrize(
    ("place", "shape", "granularity", "at"),
    [
        ("d1", "2", "per-axis(1)", "d1"),
        ("d0, 0", "4x1", "per-axis(0)", "d0, 0"),
        ("0", "1", "per-tensor", "0"),
        ("", "", "per-tensor", ""),
    ],
)
def test_run_time_parameters(recognize: Recognize, place: str, shape: str, granularity: str, at: str) -> None:
    """Scale and zero point as function arguments: per axis, per token, one-element and rank-0 tensors."""
    scale = f"tensor<{shape}{'x' if shape else ''}f32>"
    zero = f"tensor<{shape}{'x' if shape else ''}i64>"
    text = function(
        f"%x: tensor<4x2xf32>, %s: {scale}, %z: {zero}",
        generic("%q", ["%x: tensor<4x2xf32>", f"%s: {scale}", f"%z: {zero}"], "tensor<4x2xi8>",
                operands_body(), ["d0, d1", place, place]),
    )  # fmt: skip
    node = only_quantize(recognize(text))
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point="run-time i64", granularity=granularity, scale_at=at, zero_at=at
    )
    assert node.params.scale.value is not None
    assert node.params.zero_point.value is not None


def test_per_token_of_rank_three(recognize: Recognize) -> None:
    """One scale for all but the last dimension."""
    text = function(
        "%x: tensor<2x4x8xf32>, %s: tensor<2x4x1xf32>, %z: tensor<2x4x1xi64>",
        generic("%q", ["%x: tensor<2x4x8xf32>", "%s: tensor<2x4x1xf32>", "%z: tensor<2x4x1xi64>"],
                "tensor<2x4x8xi8>", operands_body(), ["d0, d1, d2", "d0, d1, 0", "d0, d1, 0"]),
    )  # fmt: skip
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale="run-time f32", zero_point="run-time i64", granularity="per-token",
        scale_at="d0, d1, 0", zero_at="d0, d1, 0",
    )  # fmt: skip


@pytest.mark.parametrize("run_time", [True, False])
def test_per_group_by_floordiv(recognize: Recognize, run_time: bool) -> None:
    """Groups along the last dimension as `d1 floordiv 4` in the map (Q3)."""
    constants = (
        "%s = arith.constant dense<[[0.5, 0.25], [1.0, 2.0]]> : tensor<2x2xf32>\n"
        "%z = arith.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>"
    )
    arguments = "%x: tensor<2x8xf32>" + (", %s: tensor<2x2xf32>, %z: tensor<2x2xi64>" if run_time else "")
    text = function(
        arguments,
        "" if run_time else constants,
        generic("%q", ["%x: tensor<2x8xf32>", "%s: tensor<2x2xf32>", "%z: tensor<2x2xi64>"], "tensor<2x8xi8>",
                operands_body(), ["d0, d1", "d0, d1 floordiv 4", "d0, d1 floordiv 4"]),
    )  # fmt: skip
    place = "d0, ((d1) floordiv 4)"
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale="run-time f32" if run_time else [[0.5, 0.25], [1.0, 2.0]],
        zero_point="run-time i64" if run_time else [[1, 2], [3, 4]],
        granularity="per-group(4)", scale_at=place, zero_at=place,
    )  # fmt: skip


def test_transposed_result(recognize: Recognize) -> None:
    """Parameters are over the result's dimensions, whatever the loops are called."""
    text = function(
        "%x: tensor<4x2xf32>, %s: tensor<2xf32>, %z: tensor<2xi64>",
        generic("%q", ["%x: tensor<4x2xf32>", "%s: tensor<2xf32>", "%z: tensor<2xi64>"], "tensor<2x4xi8>",
                operands_body(), ["d0, d1", "d1", "d1", "d1, d0"]),
    )  # fmt: skip
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale="run-time f32", zero_point="run-time i64", granularity="per-axis(0)", scale_at="d0", zero_at="d0"
    )


# -- captured scalars ------------------------------------------------------------------------------------------

CAPTURED = """
    %l = arith.constant {low} : f32
    %h = arith.constant {high} : f32
    %zf = arith.sitofp %z : i64 to f32
    %d = arith.divf %in, %s : f32
    %r = math.roundeven %d : f32
    %a = arith.addf %r, %zf : f32
    %m = arith.maximumf %a, %l : f32
    %n = arith.minimumf %m, %h : f32
    %q = arith.{cast} %n : f32 to i8
    yield %q
"""


def test_scalars_extracted_outside(recognize: Recognize) -> None:
    """ONNX DynamicQuantizeLinear: scale and zero point extracted in front of the operation (Q5)."""
    text = function(
        "%x: tensor<4x8xf32>, %st: tensor<f32>, %zt: tensor<i8>",
        "%s = tensor.extract %st[] : tensor<f32>",
        "%z8 = tensor.extract %zt[] : tensor<i8>",
        "%z = arith.extui %z8 : i8 to i64",
        generic("%q", X, "tensor<4x8xi8>", CAPTURED.format(low="0.0", high="255.0", cast="fptoui")),
    )
    node = only_quantize(recognize(text))
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point="run-time i64", storage="u8", low=0, high=255
    )


def test_scalar_arguments(recognize: Recognize) -> None:
    """Scale and zero point as scalar function arguments."""
    text = function(
        "%x: tensor<4x8xf32>, %s: f32, %z: i64",
        generic("%q", X, "tensor<4x8xi8>", CAPTURED.format(low="-128.0", high="127.0", cast="fptosi")),
    )
    node = only_quantize(recognize(text))
    assert describe(node.params) == Described(scale="run-time f32", zero_point="run-time i64")


def test_scalars_extracted_from_constants(recognize: Recognize) -> None:
    """A `tensor.extract` of a constant is a constant."""
    text = function(
        "%x: tensor<4x8xf32>",
        "%st = arith.constant dense<0.5> : tensor<f32>",
        "%zt = arith.constant dense<[7, 3]> : tensor<2xi64>",
        "%one = arith.constant 1 : index",
        "%s = tensor.extract %st[] : tensor<f32>",
        "%z = tensor.extract %zt[%one] : tensor<2xi64>",
        generic("%q", X, "tensor<4x8xi8>", CAPTURED.format(low="-128.0", high="127.0", cast="fptosi")),
    )
    assert describe(only_quantize(recognize(text)).params) == Described(scale=0.5, zero_point=3)


def test_unsigned_zero_point_extended_outside(recognize: Recognize) -> None:
    """A constant i8 zero point that is zero-extended is an unsigned number."""
    text = function(
        "%x: tensor<4x8xf32>",
        "%s = arith.constant 0.5 : f32",
        "%z8 = arith.constant -56 : i8",
        "%z = arith.extui %z8 : i8 to i64",
        generic("%q", X, "tensor<4x8xi8>", CAPTURED.format(low="0.0", high="255.0", cast="fptoui")),
    )
    assert describe(only_quantize(recognize(text)).params) == Described(
        scale=0.5, zero_point=200, storage="u8", low=0, high=255
    )


def test_scalars_as_operands(recognize: Recognize) -> None:
    """Scalars may be `ins` operands of the operation."""
    text = function(
        "%x: tensor<4x8xf32>, %s: f32, %z: i64",
        generic("%q", [*X, "%s: f32", "%z: i64"], "tensor<4x8xi8>", operands_body(), ["d0, d1", "", ""]),
    )
    assert describe(only_quantize(recognize(text)).params) == Described(scale="run-time f32", zero_point="run-time i64")


@pytest.mark.parametrize("inside", [True, False])
def test_reciprocal_of_a_run_time_scalar(recognize: Recognize, inside: bool) -> None:
    """`x * (1 / s)` with the scalar division in the body or in front of it."""
    inverse = "%one = arith.constant 1.0 : f32\n%inv = arith.divf %one, %s : f32\n"
    steps = CAPTURED.format(low="-128.0", high="127.0", cast="fptosi").strip()
    steps = (inverse if inside else "") + steps.replace("divf %in, %s", "mulf %in, %inv")
    text = function(
        "%x: tensor<4x8xf32>, %s: f32, %z: i64", "" if inside else inverse, generic("%q", X, "tensor<4x8xi8>", steps)
    )
    node = only_quantize(recognize(text))
    assert describe(node.params) == Described(scale="run-time f32", zero_point="run-time i64")
    assert node.reciprocal


def test_every_binding(recognize: Recognize, each_bindings: Bindings) -> None:
    """The same text in each binding gives the same parameters."""
    nodes = recognize(function(X_ARG, generic("%q", X, "tensor<4x8xi8>", body())), each_bindings)
    assert describe(only_quantize(nodes).params) == Described(scale=0.5, zero_point=3)
