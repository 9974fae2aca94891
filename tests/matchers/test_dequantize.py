"""Dequantizes in linalg, one operation each: FORMS D1 (per tensor), D2 (per axis), D3 (per group)."""

from __future__ import annotations

import numpy as np
import pytest

from qfuse._mlir import Bindings
from qfuse.indexing import identity
from qfuse.matchers.nodes import Dequantize, Node
from tests.conftest import Recognize
from tests.matchers.ir import Described, blob, describe, f16, f32, function, generic

Q = ["%q: tensor<4x8xi8>"]
Q_ARG = "%q: tensor<4x8xi8>"
F32 = "tensor<4x8xf32>"


def only_dequantize(nodes: list[Node]) -> Dequantize:
    """The one dequantize of a module."""
    found = [n for n in nodes if isinstance(n, Dequantize)]
    assert len(found) == 1, [type(n).__name__ for n in nodes]
    return found[0]


def read(recognize: Recognize, *operations: str, arguments: str = Q_ARG, resources: str = "") -> Described:
    """The parameters of the one dequantize of a function."""
    return describe(only_dequantize(recognize(function(arguments, *operations, resources=resources))).params)


# -- per tensor ------------------------------------------------------------------------------------------------

PER_TENSOR = """
    %s = arith.constant 0.5 : f32
    %z = arith.constant 3 : i64
    %w = arith.{extend} %in : {storage} to i64
    %d = arith.subi %w, %z : i64
    %f = arith.sitofp %d : i64 to f32
    %r = arith.mulf %f, %s : f32
    yield %r
"""


def test_per_tensor(recognize: Recognize) -> None:
    """Extension, zero point in i64, conversion, scale (D1)."""
    text = PER_TENSOR.format(extend="extsi", storage="i8")
    node = only_dequantize(recognize(function(Q_ARG, generic("%f", Q, F32, text))))
    assert describe(node.params) == Described(scale=0.5, zero_point=3)
    assert node.index == identity(2)
    assert node.storage_cast is None
    assert str(node.storage.type) == "tensor<4x8xi8>"


@pytest.mark.parametrize(
    ("storage", "extend", "named", "limits"),
    [
        ("i8", "extui", "u8", (0, 255)),
        ("i4", "extsi", "s4", (-8, 7)),
        ("i4", "extui", "u4", (0, 15)),
        ("i16", "extsi", "s16", (-32768, 32767)),
        ("i16", "extui", "u16", (0, 65535)),
        ("i32", "extsi", "s32", (-(2**31), 2**31 - 1)),
        ("i32", "extui", "u32", (0, 2**32 - 1)),
    ],
)
def test_storage_types(recognize: Recognize, storage: str, extend: str, named: str, limits: tuple[int, int]) -> None:
    """The extension says how the stored integers are read."""
    argument = f"%q: tensor<4x8x{storage}>"
    text = generic("%f", [argument], F32, PER_TENSOR.format(extend=extend, storage=storage))
    assert read(recognize, text, arguments=argument) == Described(
        scale=0.5, zero_point=3, storage=named, low=limits[0], high=limits[1]
    )


@pytest.mark.parametrize(
    ("storage", "convert", "named", "limits"),
    [
        ("i8", "sitofp", "s8", (-128, 127)),
        ("i8", "uitofp", "u8", (0, 255)),
        ("i4", "sitofp", "s4", (-8, 7)),
        ("i16", "uitofp", "u16", (0, 65535)),
        ("i32", "sitofp", "s32", (-(2**31), 2**31 - 1)),
    ],
)
def test_zero_point_folded(
    recognize: Recognize, storage: str, convert: str, named: str, limits: tuple[int, int]
) -> None:
    """Without a zero point the storage is converted at once, and the conversion says its sign."""
    text = f"""
        %s = arith.constant 0.5 : f32
        %f = arith.{convert} %in : {storage} to f32
        %r = arith.mulf %s, %f : f32
        yield %r
    """
    argument = f"%q: tensor<4x8x{storage}>"
    assert read(recognize, generic("%f", [argument], F32, text), arguments=argument) == Described(
        scale=0.5, storage=named, low=limits[0], high=limits[1]
    )


def test_zero_point_zero_kept(recognize: Recognize) -> None:
    """A subtraction of 0 is symmetric."""
    text = PER_TENSOR.format(extend="extsi", storage="i8").replace("constant 3 : i64", "constant 0 : i64")
    assert read(recognize, generic("%f", Q, F32, text)) == Described(scale=0.5)


def test_scale_one_is_folded_away(recognize: Recognize) -> None:
    """No multiplication: the scale is 1; without a zero point too the body is one conversion."""
    text = PER_TENSOR.format(extend="extsi", storage="i8").replace("%r = arith.mulf %f, %s : f32", "")
    assert read(recognize, generic("%f", Q, F32, text.replace("yield %r", "yield %f"))) == Described(
        scale=1.0, zero_point=3
    )
    bare = "%f = arith.sitofp %in : i8 to f32\nyield %f"
    assert read(recognize, generic("%f", Q, F32, bare)) == Described(scale=1.0)


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_f64_constant_that_is_truncated(recognize: Recognize, place: str) -> None:
    """A scale that is an f64 constant (also a product of two scales), truncated in the body or in front of it."""
    cast = "%s = arith.truncf %c : f64 to f32\n"
    text = PER_TENSOR.format(extend="extsi", storage="i8").replace("%s = arith.constant 0.5 : f32", "")
    outside = "%c = arith.constant 2.000000e-02 : f64\n" + (cast if place == "outside" else "")
    body = (cast if place == "inside" else "") + text.strip()
    assert read(recognize, outside, generic("%f", Q, F32, body)) == Described(scale=f32(0.02), zero_point=3)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_narrow_results(recognize: Recognize, element: str) -> None:
    """Computed in f32 and truncated at the end: the scale is that of f32."""
    text = PER_TENSOR.format(extend="extsi", storage="i8").replace("constant 0.5", "constant 2.000000e-02")
    text = text.replace("yield %r", f"%t = arith.truncf %r : f32 to {element}\nyield %t")
    assert read(recognize, generic("%f", Q, f"tensor<4x8x{element}>", text)) == Described(
        scale=f32(0.02), zero_point=3, expressed=element
    )


@pytest.mark.parametrize(("element", "rounded"), [("f16", f16(0.02)), ("bf16", 0.02001953125), ("f64", 0.02)])
def test_computed_in_another_type(recognize: Recognize, element: str, rounded: float) -> None:
    """Computed in the narrow or wide type itself: the scale is the number which that type holds."""
    text = PER_TENSOR.format(extend="extsi", storage="i8").replace("f32", element)
    text = text.replace("constant 0.5", "constant 2.000000e-02")
    assert read(recognize, generic("%f", Q, f"tensor<4x8x{element}>", text)) == Described(
        scale=rounded, zero_point=3, expressed=element
    )


def test_subtraction_in_float(recognize: Recognize) -> None:
    """The zero point may be subtracted behind the conversion."""
    text = """
        %s = arith.constant 0.5 : f32
        %z = arith.constant 3.0 : f32
        %f = arith.uitofp %in : i8 to f32
        %d = arith.subf %f, %z : f32
        %r = arith.mulf %d, %s : f32
        yield %r
    """
    assert read(recognize, generic("%f", Q, F32, text)) == Described(
        scale=0.5, zero_point=3, storage="u8", low=0, high=255
    )


def test_rank_zero(recognize: Recognize) -> None:
    """A tensor without dimensions."""
    argument = "%q: tensor<i8>"
    text = generic("%f", [argument], "tensor<f32>", PER_TENSOR.format(extend="extsi", storage="i8"))
    assert read(recognize, text, arguments=argument) == Described(scale=0.5, zero_point=3)


def test_dynamic_extents(recognize: Recognize) -> None:
    """Extents do not matter to a dequantize per tensor."""
    argument = "%q: tensor<?x8xi8>"
    text = PER_TENSOR.format(extend="extsi", storage="i8")
    node = only_dequantize(
        recognize(
            function(f"{argument}, %o: tensor<?x8xf32>", generic("%f", [argument], "tensor<?x8xf32>", text, out="%o"))
        )
    )
    assert describe(node.params) == Described(scale=0.5, zero_point=3)
    assert node.params.extents == (None, 8)


def test_captured_run_time_scalars(recognize: Recognize) -> None:
    """Scale and zero point extracted from tensors in front of the operation."""
    text = PER_TENSOR.format(extend="extui", storage="i8")
    text = text.replace("%s = arith.constant 0.5 : f32", "").replace("%z = arith.constant 3 : i64", "").strip()
    found = read(
        recognize,
        "%s = tensor.extract %st[] : tensor<f32>",
        "%z8 = tensor.extract %zt[] : tensor<i8>",
        "%z = arith.extui %z8 : i8 to i64",
        generic("%f", Q, F32, text),
        arguments="%q: tensor<4x8xi8>, %st: tensor<f32>, %zt: tensor<i8>",
    )
    assert found == Described(scale="run-time f32", zero_point="run-time i64", storage="u8", low=0, high=255)


def test_storage_read_through_a_map(recognize: Recognize) -> None:
    """A dequantize that also transposes keeps the index of the storage; parameters are over the result."""
    text = generic(
        "%f", ["%q: tensor<8x4xi8>", "%s: tensor<8xf32>"], F32,
        "%f = arith.sitofp %in : i8 to f32\n%r = arith.mulf %f, %in_1 : f32\nyield %r",
        ["d1, d0", "d1"],
    )  # fmt: skip
    node = only_dequantize(recognize(function("%q: tensor<8x4xi8>, %s: tensor<8xf32>", text)))
    assert node.index == tuple(reversed(identity(2)))
    assert describe(node.params) == Described(scale="run-time f32", granularity="per-axis(1)", scale_at="d1")


def test_result_written_into_is_not_read(recognize: Recognize) -> None:
    """The `outs` operand may be the storage's own producer or anything else: it is not read."""
    text = PER_TENSOR.format(extend="extsi", storage="i8")
    found = read(recognize, generic("%f", Q, F32, text, out="%o"), arguments=f"{Q_ARG}, %o: {F32}")
    assert found == Described(scale=0.5, zero_point=3)


def test_storage_read_from_the_output(recognize: Recognize) -> None:
    """An elementwise operation may read its `outs` operand; the scale is then one more operand."""
    text = generic(
        "%f", Q, F32, "%f = arith.sitofp %in : i8 to f32\n%r = arith.mulf %f, %out : f32\nyield %r",
        ["d0, d1", "d0, d1"], out="%o",
    )  # fmt: skip
    constant = f"%o = arith.constant dense<0.25> : {F32}"
    assert read(recognize, constant, text) == Described(scale=0.25)


# -- per axis and per group ------------------------------------------------------------------------------------

OPERANDS = """
    %w = arith.{extend} %in : i8 to {wide}
    {zero}
    %d = arith.subi %w, {z} : {wide}
    %f = arith.sitofp %d : {wide} to f32
    %r = arith.mulf %f, %in_1 : f32
    yield %r
"""


def operands(zero: str, wide: str, extend: str = "extsi", zero_extend: str = "extsi") -> str:
    """The body of a dequantize with operands, whose zero points are of type `zero`."""
    same = zero == wide
    cast = "" if same else f"%zw = arith.{zero_extend} %in_2 : {zero} to {wide}"
    return OPERANDS.format(extend=extend, wide=wide, zero=cast, z="%in_2" if same else "%zw")


@pytest.mark.parametrize(("zero", "wide"), [("i64", "i64"), ("i32", "i32"), ("i32", "i64"), ("i8", "i16")])
def test_per_axis_zero_point_widths(recognize: Recognize, zero: str, wide: str) -> None:
    """The subtraction is in the wider of both types, or in one twice as wide (D2)."""
    found = read(
        recognize,
        "%s = arith.constant dense<[0.5, 0.25, 1.0, 2.0]> : tensor<4xf32>",
        f"%z = arith.constant dense<[1, 2, 3, -4]> : tensor<4x{zero}>",
        generic("%f", [*Q, "%s: tensor<4xf32>", f"%z: tensor<4x{zero}>"], F32,
                operands(zero, wide), ["d0, d1", "d0", "d0"]),
    )  # fmt: skip
    assert found == Described(
        scale=[0.5, 0.25, 1.0, 2.0], zero_point=[1, 2, 3, -4], granularity="per-axis(0)", scale_at="d0", zero_at="d0"
    )


def test_unsigned_zero_points_zero_extended(recognize: Recognize) -> None:
    """u8 storage with i8 zero points that are zero-extended: 200 is stored as -56."""
    found = read(
        recognize,
        "%s = arith.constant dense<[0.5, 0.25, 1.0, 2.0]> : tensor<4xf32>",
        "%z = arith.constant dense<[1, 2, 3, -56]> : tensor<4xi8>",
        generic("%f", [*Q, "%s: tensor<4xf32>", "%z: tensor<4xi8>"], F32,
                operands("i8", "i16", "extui", "extui"), ["d0, d1", "d0", "d0"]),
    )  # fmt: skip
    assert found == Described(
        scale=[0.5, 0.25, 1.0, 2.0], zero_point=[1, 2, 3, 200], storage="u8", low=0, high=255,
        granularity="per-axis(0)", scale_at="d0", zero_at="d0",
    )  # fmt: skip


def test_unsigned_four_bit_zero_points(recognize: Recognize) -> None:
    """u4 zero points are read modulo 16, not modulo 256."""
    text = operands("i4", "i16", "extui", "extui").replace("%in : i8", "%in : i4")
    found = read(
        recognize,
        "%s = arith.constant dense<0.5> : tensor<4xf32>",
        "%z = arith.constant dense<[1, 2, 3, -1]> : tensor<4xi4>",
        generic("%f", ["%q: tensor<4x8xi4>", "%s: tensor<4xf32>", "%z: tensor<4xi4>"], F32, text,
                ["d0, d1", "d0", "d0"]),
        arguments="%q: tensor<4x8xi4>",
    )  # fmt: skip
    assert found == Described(
        scale=0.5, zero_point=[1, 2, 3, 15], storage="u4", low=0, high=15, granularity="per-axis(0)", zero_at="d0"
    )


@pytest.mark.parametrize("dense", ["dense<0>", "dense_resource<zero>"])
def test_per_axis_zero_points_that_are_all_zero(recognize: Recognize, dense: str) -> None:
    """Every symmetric weight has an operand of zeros: its data says that it is symmetric."""
    found = read(
        recognize,
        "%s = arith.constant dense<[0.5, 0.25, 1.0, 2.0]> : tensor<4xf32>",
        f"%z = arith.constant {dense} : tensor<4xi64>",
        generic("%f", [*Q, "%s: tensor<4xf32>", "%z: tensor<4xi64>"], F32,
                operands("i64", "i64"), ["d0, d1", "d0", "d0"]),
        resources=f'zero: "{blob(np.zeros(4, np.int64), 8)}"',
    )  # fmt: skip
    assert found == Described(scale=[0.5, 0.25, 1.0, 2.0], granularity="per-axis(0)", scale_at="d0")


def test_per_axis_without_zero_point(recognize: Recognize) -> None:
    """No zero point operand at all."""
    found = read(
        recognize,
        "%s = arith.constant dense<[0.5, 0.25, 1.0, 2.0]> : tensor<4xf32>",
        generic("%f", [*Q, "%s: tensor<4xf32>"], F32,
                "%f = arith.sitofp %in : i8 to f32\n%r = arith.mulf %f, %in_1 : f32\nyield %r", ["d0, d1", "d0"]),
    )  # fmt: skip
    assert found == Described(scale=[0.5, 0.25, 1.0, 2.0], granularity="per-axis(0)", scale_at="d0")


def test_per_axis_f64_scales(recognize: Recognize) -> None:
    """f64 scales: converted and multiplied in f64, truncated at the end."""
    text = """
        %w = arith.extsi %in : i8 to i64
        %d = arith.subi %w, %in_2 : i64
        %f = arith.sitofp %d : i64 to f64
        %r = arith.mulf %f, %in_1 : f64
        %t = arith.truncf %r : f64 to f32
        yield %t
    """
    found = read(
        recognize,
        "%s = arith.constant dense<[0.1, 0.2, 0.3, 0.4]> : tensor<4xf64>",
        "%z = arith.constant dense<1> : tensor<4xi64>",
        generic("%f", [*Q, "%s: tensor<4xf64>", "%z: tensor<4xi64>"], F32, text, ["d0, d1", "d0", "d0"]),
    )
    assert found == Described(scale=[0.1, 0.2, 0.3, 0.4], zero_point=1, granularity="per-axis(0)", scale_at="d0")


@pytest.mark.parametrize("run_time", [True, False])
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_per_group_by_floordiv(recognize: Recognize, run_time: bool, element: str) -> None:
    """Groups along the last dimension as `d1 floordiv 4` in the map, in f32 or f16 (D3)."""
    types = f"tensor<4x2x{element}>", "tensor<4x2xi64>"
    constants = (
        f"%s = arith.constant dense<[[0.5, 0.25], [1.0, 2.0], [4.0, 8.0], [16.0, 32.0]]> : {types[0]}\n"
        f"%z = arith.constant dense<[[1, 2], [3, 4], [5, 6], [7, 8]]> : {types[1]}"
    )
    found = read(
        recognize,
        "" if run_time else constants,
        generic("%f", [*Q, f"%s: {types[0]}", f"%z: {types[1]}"], f"tensor<4x8x{element}>",
                operands("i64", "i64").replace("f32", element), ["d0, d1", *["d0, d1 floordiv 4"] * 2]),
        arguments=Q_ARG + (f", %s: {types[0]}, %z: {types[1]}" if run_time else ""),
    )  # fmt: skip
    place = "d0, ((d1) floordiv 4)"
    assert found == Described(
        scale=f"run-time {element}" if run_time else [[0.5, 0.25], [1.0, 2.0], [4.0, 8.0], [16.0, 32.0]],
        zero_point="run-time i64" if run_time else [[1, 2], [3, 4], [5, 6], [7, 8]],
        granularity="per-group(4)", scale_at=place, zero_at=place, expressed=element,
    )  # fmt: skip


def test_group_of_the_whole_extent_is_an_axis(recognize: Recognize) -> None:
    """One group a row is a scale a row."""
    found = read(
        recognize,
        "%s = arith.constant dense<[[0.5], [0.25], [1.0], [2.0]]> : tensor<4x1xf32>",
        generic("%f", [*Q, "%s: tensor<4x1xf32>"], F32,
                "%f = arith.sitofp %in : i8 to f32\n%r = arith.mulf %f, %in_1 : f32\nyield %r",
                ["d0, d1", "d0, d1 floordiv 8"]),
    )  # fmt: skip
    assert found == Described(scale=[0.5, 0.25, 1.0, 2.0], granularity="per-axis(0)", scale_at="d0")


@pytest.mark.parametrize(
    ("place", "shape", "granularity", "at"),
    [
        ("d2", "8", "per-axis(2)", "d2"),
        ("d0, d1, 0", "2x4x1", "per-token", "d0, d1, 0"),
        ("d0, 0, d2", "2x1x8", "per-block(1,*,1)", "d0, 0, d2"),
        ("d0, d1, d2 floordiv 2", "2x4x4", "per-group(2)", "d0, d1, ((d2) floordiv 2)"),
        ("d0, d1 floordiv 2, d2 floordiv 2", "2x2x4", "per-block(1,2,2)", "d0, ((d1) floordiv 2), ((d2) floordiv 2)"),
        ("0", "1", "per-tensor", "0"),
    ],
)
def test_run_time_granularities(recognize: Recognize, place: str, shape: str, granularity: str, at: str) -> None:
    """Run-time scales of rank 3 data in every granularity."""
    found = read(
        recognize,
        generic("%f", ["%q: tensor<2x4x8xi8>", f"%s: tensor<{shape}xf32>"], "tensor<2x4x8xf32>",
                "%f = arith.uitofp %in : i8 to f32\n%r = arith.mulf %f, %in_1 : f32\nyield %r", ["d0, d1, d2", place]),
        arguments=f"%q: tensor<2x4x8xi8>, %s: tensor<{shape}xf32>",
    )  # fmt: skip
    assert found == Described(scale="run-time f32", storage="u8", low=0, high=255, granularity=granularity, scale_at=at)


def test_bias_of_i32(recognize: Recognize) -> None:
    """An i32 bias with a scale a channel: rank one, one value an element, constant."""
    found = read(
        recognize,
        "%s = arith.constant dense<[0.5, 0.25]> : tensor<2xf32>",
        "%z = arith.constant dense<0> : tensor<2xi32>",
        generic("%f", ["%q: tensor<2xi32>", "%s: tensor<2xf32>", "%z: tensor<2xi32>"], "tensor<2xf32>", """
            %w = arith.extsi %in : i32 to i64
            %x = arith.extsi %in_2 : i32 to i64
            %d = arith.subi %w, %x : i64
            %f = arith.sitofp %d : i64 to f32
            %r = arith.mulf %f, %in_1 : f32
            yield %r"""),
        arguments="%q: tensor<2xi32>",
    )  # fmt: skip
    assert found == Described(
        scale=[0.5, 0.25], storage="s32", low=-(2**31), high=2**31 - 1, granularity="per-axis(0)", scale_at="d0"
    )


def test_every_binding(recognize: Recognize, each_bindings: Bindings) -> None:
    """The same text in each binding gives the same parameters."""
    nodes = recognize(
        function(Q_ARG, generic("%f", Q, F32, PER_TENSOR.format(extend="extsi", storage="i8"))), each_bindings
    )
    assert describe(only_dequantize(nodes).params) == Described(scale=0.5, zero_point=3)
