"""Quantizes and dequantizes spelled as one operation a step: FORMS Q4, D4, D5, and fake-quantize, Q6."""

from __future__ import annotations

import pytest

from qfuse.matchers.nodes import Contradiction, Dequantize, Elementwise, FakeQuantize, Node, Quantize
from tests.conftest import Recognize
from tests.matchers.ir import Described, describe, f32, function, generic

ROUND = "%r = math.roundeven %in : f32\nyield %r"
CLAMP = """
    %l = arith.constant -128.0 : f32
    %h = arith.constant 127.0 : f32
    %c = arith.cmpf ult, %in, %l : f32
    %m = arith.select %c, %l, %in : f32
    %d = arith.cmpf ugt, %m, %h : f32
    %n = arith.select %d, %h, %m : f32
    yield %n
"""
CAST = "%q = arith.fptosi %in : f32 to i8\nyield %q"
MULTIPLY = "%m = arith.mulf %in, %in_1 : f32\nyield %m"
INVERSE = """
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %c = arith.cmpf one, %in, %zero : f32
    cf.assert %c, "unimplemented: tensor with zero element"
    %d = arith.divf %one, %in : f32
    yield %d
"""


def add_zero(zero: str) -> str:
    """The step that adds a zero point of type `zero`."""
    if zero == "f32":
        return "%a = arith.addf %in, %in_1 : f32\nyield %a"
    return f"%z = arith.sitofp %in_1 : {zero} to f32\n%a = arith.addf %in, %z : f32\nyield %a"


def last(nodes: list[Node]) -> Node:
    """The node of the last operation."""
    return nodes[-1]


def quantize_chain(data: str, parameter: str, place: str, zero: str, zero_first: bool = False) -> list[str]:
    """The steps of a decomposed quantize of `%x`; the scale is `%s`, the zero point `%z`."""
    wide, narrow = f"tensor<{data}xf32>", f"tensor<{parameter}xf32>"
    zeros = f"tensor<{parameter}x{zero}>"
    dims = ", ".join(f"d{i}" for i in range(data.count("x") + 1))
    maps = [dims, place]
    middle = [("%r", [], ROUND), ("%a", [f"%z: {zeros}"], add_zero(zero))]
    if zero_first:
        middle.reverse()
    steps = [
        generic("%i", [f"%s: {narrow}"], narrow, INVERSE),
        generic("%m", [f"%x: {wide}", f"%i: {narrow}"], wide, MULTIPLY, maps),
    ]
    value = "%m"
    for name, extra, body in middle:
        steps.append(generic(name, [f"{value}: {wide}", *extra], wide, body, maps if extra else ()))
        value = name
    steps.append(generic("%n", [f"{value}: {wide}"], wide, CLAMP))
    steps.append(generic("%q", [f"%n: {wide}"], f"tensor<{data}xi8>", CAST))
    return steps


# -- quantize --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", ["i64", "i32", "i8"])
@pytest.mark.parametrize("zero_first", [False, True])
@pytest.mark.parametrize(
    ("data", "parameter", "place", "granularity"),
    [
        ("4x8", "4x1", "d0, 0", "per-axis(0)"),
        ("2x4x8", "2x4x1", "d0, d1, 0", "per-token"),
        ("4x8", "1", "0", "per-tensor"),
        ("4x8", "8", "d1", "per-axis(1)"),
    ],
)
def test_run_time_quantize(
    recognize: Recognize, data: str, parameter: str, place: str, granularity: str, zero: str, zero_first: bool
) -> None:
    """Reciprocal, product, rounding, zero point, clamp and cast, each its own operation, in both orders."""
    steps = quantize_chain(data, parameter, place, zero, zero_first)
    arguments = f"%x: tensor<{data}xf32>, %s: tensor<{parameter}xf32>, %z: tensor<{parameter}x{zero}>"
    node = last(recognize(function(arguments, *steps)))
    assert isinstance(node, Quantize)
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point=f"run-time {zero}", granularity=granularity, scale_at=place, zero_at=place
    )
    assert node.reciprocal
    assert node.zero_point_first is zero_first
    assert node.input.op == "elem"
    assert str(node.input.payload[0].type) == f"tensor<{data}xf32>"


@pytest.mark.parametrize(("zero", "values"), [("i32", "[1, -2, 0, 3]"), ("f32", "[1.0, -2.0, 0.0, 3.0]")])
def test_constant_parameters(recognize: Recognize, zero: str, values: str) -> None:
    """1/s of constants is not folded upstream; zero points may be whole f32 numbers."""
    constants = (
        "%s = arith.constant dense<[[0.5], [0.1], [1.0], [2.0]]> : tensor<4x1xf32>\n"
        f"%zv = arith.constant dense<{values}> : tensor<4x{zero}>\n"
        f"%z = tensor.expand_shape %zv [[0, 1]] output_shape [4, 1] : tensor<4x{zero}> into tensor<4x1x{zero}>"
    )
    node = last(recognize(function("%x: tensor<4x8xf32>", constants, *quantize_chain("4x8", "4x1", "d0, 0", zero))))
    assert isinstance(node, Quantize)
    assert describe(node.params) == Described(
        scale=[0.5, f32(0.1), 1.0, 2.0], zero_point=[1, -2, 0, 3], granularity="per-axis(0)",
        scale_at="d0", zero_at="d0",
    )  # fmt: skip
    assert node.reciprocal


def test_per_group_by_expand_shape(recognize: Recognize) -> None:
    """Groups by a reshape in front of the arithmetic and one behind it."""
    text = function(
        "%y: tensor<2x8xf32>",
        "%sv = arith.constant dense<[[0.5, 0.25], [1.0, 2.0]]> : tensor<2x2xf32>",
        "%zv = arith.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>",
        "%x = tensor.expand_shape %y [[0], [1, 2]] output_shape [2, 2, 4] : tensor<2x8xf32> into tensor<2x2x4xf32>",
        "%s = tensor.expand_shape %sv [[0], [1, 2]] output_shape [2, 2, 1] : tensor<2x2xf32> into tensor<2x2x1xf32>",
        "%z = tensor.expand_shape %zv [[0], [1, 2]] output_shape [2, 2, 1] : tensor<2x2xi32> into tensor<2x2x1xi32>",
        *quantize_chain("2x2x4", "2x2x1", "d0, d1, 0", "i32")[:-1],
        "%b = tensor.collapse_shape %n [[0], [1, 2]] : tensor<2x2x4xf32> into tensor<2x8xf32>",
        generic("%q", ["%b: tensor<2x8xf32>"], "tensor<2x8xi8>", CAST),
    )
    node = last(recognize(text))
    assert isinstance(node, Quantize)
    place = "d0, ((d1) floordiv 4)"
    assert describe(node.params) == Described(
        scale=[[0.5, 0.25], [1.0, 2.0]], zero_point=[[1, 2], [3, 4]], granularity="per-group(4)",
        scale_at=place, zero_at=place,
    )  # fmt: skip


def test_zero_point_computed_by_rounding_is_whole(recognize: Recognize) -> None:
    """A run-time f32 zero point counts when its producer makes whole numbers (choose_qparams)."""
    whole = generic("%z", ["%y: tensor<4x1xf32>"], "tensor<4x1xf32>", ROUND)
    text = function(
        "%x: tensor<4x8xf32>, %s: tensor<4x1xf32>, %y: tensor<4x1xf32>",
        whole,
        *quantize_chain("4x8", "4x1", "d0, 0", "f32"),
    )
    node = last(recognize(text))
    assert isinstance(node, Quantize)
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point="run-time f32", granularity="per-axis(0)", scale_at="d0, 0", zero_at="d0, 0"
    )


def test_zero_point_of_unknown_float_is_no_quantize(recognize: Recognize) -> None:
    """A run-time f32 zero point that may be fractional is none."""
    arguments = "%x: tensor<4x8xf32>, %s: tensor<4x1xf32>, %z: tensor<4x1xf32>"
    node = last(recognize(function(arguments, *quantize_chain("4x8", "4x1", "d0, 0", "f32"))))
    assert isinstance(node, Elementwise)


def test_layout_between_the_steps(recognize: Recognize) -> None:
    """Transposes between the steps are followed: the parameters are over the result."""
    steps = quantize_chain("4x8", "4x1", "d0, 0", "i64")
    text = function(
        "%x: tensor<4x8xf32>, %s: tensor<4x1xf32>, %z: tensor<4x1xi64>, %o: tensor<8x4xf32>",
        *steps[:-1],
        "%t = linalg.transpose ins(%n : tensor<4x8xf32>) outs(%o : tensor<8x4xf32>) permutation = [1, 0]",
        generic("%q", ["%t: tensor<8x4xf32>"], "tensor<8x4xi8>", CAST),
    )
    node = last(recognize(text))
    assert isinstance(node, Quantize)
    assert node.params.granularity == "per-axis(1)"


# -- dequantize ------------------------------------------------------------------------------------------------


def test_decomposed_dequantize(recognize: Recognize) -> None:
    """Subtraction in i64 in one operation, conversion and scale in another (D5)."""
    text = function(
        "%q: tensor<4x8xi8>, %s: tensor<4x1xf32>, %z: tensor<4x1xi64>",
        generic("%d", ["%q: tensor<4x8xi8>", "%z: tensor<4x1xi64>"], "tensor<4x8xi64>",
                "%w = arith.extsi %in : i8 to i64\n%v = arith.subi %w, %in_1 : i64\nyield %v", ["d0, d1", "d0, 0"]),
        generic("%f", ["%d: tensor<4x8xi64>", "%s: tensor<4x1xf32>"], "tensor<4x8xf32>",
                "%w = arith.sitofp %in : i64 to f32\n%v = arith.mulf %w, %in_1 : f32\nyield %v", ["d0, d1", "d0, 0"]),
    )  # fmt: skip
    node = last(recognize(text))
    assert isinstance(node, Dequantize)
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point="run-time i64", granularity="per-axis(0)", scale_at="d0, 0", zero_at="d0, 0"
    )
    assert str(node.storage.type) == "tensor<4x8xi8>"


TORCHAO_DEQUANTIZE = (
    generic("%f", ["%q: tensor<2x2x4xi8>"], "tensor<2x2x4xf32>", "%w = arith.sitofp %in : i8 to f32\nyield %w"),
    generic("%g", ["%z: tensor<2x2x1xi8>"], "tensor<2x2x1xf32>", "%w = arith.sitofp %in : i8 to f32\nyield %w"),
    generic("%d", ["%f: tensor<2x2x4xf32>", "%g: tensor<2x2x1xf32>"], "tensor<2x2x4xf32>",
            "%w = arith.subf %in, %in_1 : f32\nyield %w", ["d0, d1, d2", "d0, d1, 0"]),
    generic("%m", ["%d: tensor<2x2x4xf32>", "%s: tensor<2x2x1xf32>"], "tensor<2x2x4xf32>",
            MULTIPLY, ["d0, d1, d2", "d0, d1, 0"]),
)  # fmt: skip


@pytest.mark.parametrize("symmetric", [True, False])
def test_torchao_dequantize_per_group(recognize: Recognize, symmetric: bool) -> None:
    """Subtraction in float behind an expand_shape; a tensor of zero points is there even when symmetric (D4)."""
    zeros = "dense<0>" if symmetric else "dense<[[[1], [2]], [[3], [4]]]>"
    text = function(
        "%k: tensor<2x8xi8>",
        f"%z = arith.constant {zeros} : tensor<2x2x1xi8>",
        "%s = arith.constant dense<[[[0.5], [0.25]], [[1.0], [2.0]]]> : tensor<2x2x1xf32>",
        "%q = tensor.expand_shape %k [[0], [1, 2]] output_shape [2, 2, 4] : tensor<2x8xi8> into tensor<2x2x4xi8>",
        *TORCHAO_DEQUANTIZE,
        "%b = tensor.collapse_shape %m [[0], [1, 2]] : tensor<2x2x4xf32> into tensor<2x8xf32>",
        generic("%t", ["%b: tensor<2x8xf32>"], "tensor<2x8xf16>", "%w = arith.truncf %in : f32 to f16\nyield %w"),
    )
    nodes = recognize(text)
    scaled = next(n for n in nodes if isinstance(n, Dequantize) and n.params.scale.index)
    zero = 0 if symmetric else [[1, 2], [3, 4]]
    assert describe(scaled.params) == Described(
        scale=[[0.5, 0.25], [1.0, 2.0]], zero_point=zero, granularity="per-token", scale_at="d0, d1",
        zero_at="" if symmetric else "d0, d1",
    )  # fmt: skip
    cast = last(nodes)
    assert isinstance(cast, Dequantize)
    place = "d0, ((d1) floordiv 4)"
    assert describe(cast.params) == Described(
        scale=[[0.5, 0.25], [1.0, 2.0]], zero_point=zero, granularity="per-group(4)", scale_at=place,
        zero_at="" if symmetric else place, expressed="f16",
    )  # fmt: skip
    assert str(cast.storage.type) == "tensor<2x8xi8>"


def test_legacy_weight_only(recognize: Recognize) -> None:
    """expand_shape, then one body that extends, subtracts in float and scales (FORMS 10)."""
    text = function(
        "%q: tensor<2x2x4xi8>, %s: tensor<2x2x1xf32>",
        "%z = arith.constant dense<[[[1.0], [2.0]], [[3.0], [4.0]]]> : tensor<2x2x1xf32>",
        generic("%f", ["%q: tensor<2x2x4xi8>", "%s: tensor<2x2x1xf32>", "%z: tensor<2x2x1xf32>"], "tensor<2x2x4xf32>",
                """
                %w = arith.extui %in : i8 to i32
                %c = arith.uitofp %w : i32 to f32
                %d = arith.subf %c, %in_2 : f32
                %m = arith.mulf %d, %in_1 : f32
                yield %m""", ["d0, d1, d2", "d0, d1, 0", "d0, d1, 0"]),
    )  # fmt: skip
    node = last(recognize(text))
    assert isinstance(node, Dequantize)
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point=[[1, 2], [3, 4]], storage="u8", low=0, high=255, granularity="per-token",
        scale_at="d0, d1, 0", zero_at="d0, d1",
    )  # fmt: skip


def test_weight_only_without_dequantize(recognize: Recognize) -> None:
    """torchao's int8 weight-only: a bare conversion is a dequantize of scale 1 (D6)."""
    text = generic("%f", ["%q: tensor<8x4xi8>"], "tensor<8x4xbf16>", "%w = arith.sitofp %in : i8 to bf16\nyield %w")
    node = last(recognize(function("%q: tensor<8x4xi8>", text)))
    assert isinstance(node, Dequantize)
    assert describe(node.params) == Described(scale=1.0, expressed="bf16")


def test_accumulators_scaled_twice_are_no_dequantize(recognize: Recognize) -> None:
    """The second scale of integer accumulators multiplies a dequantized value (D7)."""
    convert = "%w = arith.sitofp %in : i32 to f32\nyield %w"
    nodes = recognize(
        function(
            "%a: tensor<4x8xi32>, %s: tensor<4x1xf32>, %t: tensor<8xf32>",
            generic("%f", ["%a: tensor<4x8xi32>"], "tensor<4x8xf32>", convert),
            generic("%m", [f"%f: {WIDE}", "%s: tensor<4x1xf32>"], WIDE, MULTIPLY, ["d0, d1", "d0, 0"]),
            generic("%n", [f"%m: {WIDE}", "%t: tensor<8xf32>"], WIDE, MULTIPLY, ["d0, d1", "d1"]),
        )
    )  # fmt: skip
    assert [type(n) for n in nodes] == [Elementwise, Dequantize, Elementwise]


# -- fake-quantize ---------------------------------------------------------------------------------------------

SUBTRACT = "%d = arith.subf %in, %in_1 : f32\nyield %d"
WIDE = "tensor<4x8xf32>"


def fake_chain(scale: str = "%s", zero: str = "%z") -> tuple[str, ...]:
    """A fake-quantize of `%x` with scale `%s` and zero point `%z`; then `scale` and `zero` to get back."""
    bound = """
        %l = arith.sitofp %in_1 : i64 to f32
        %h = arith.sitofp %in_2 : i64 to f32
        %m = arith.maximumf %in, %l : f32
        %n = arith.minimumf %m, %h : f32
        yield %n
    """
    row = ["d0, d1", "d1"]
    return (
        "%lo = arith.constant dense<-8> : tensor<i64>",
        "%hi = arith.constant dense<7> : tensor<i64>",
        generic("%i", ["%s: tensor<8xf32>"], "tensor<8xf32>", INVERSE),
        generic("%m", [f"%x: {WIDE}", "%i: tensor<8xf32>"], WIDE, MULTIPLY, row),
        generic("%r", [f"%m: {WIDE}"], WIDE, ROUND),
        generic("%a", [f"%r: {WIDE}", "%z: tensor<8xf32>"], WIDE, add_zero("f32"), row),
        generic("%n", [f"%a: {WIDE}", "%lo: tensor<i64>", "%hi: tensor<i64>"], WIDE, bound, ["d0, d1", "", ""]),
        generic("%b", [f"%n: {WIDE}", f"{zero}: tensor<8xf32>"], WIDE, SUBTRACT, row),
        generic("%f", [f"%b: {WIDE}", f"{scale}: tensor<8xf32>"], WIDE, MULTIPLY, row),
    )


PARAMETERS = (
    "%s = arith.constant dense<[0.5, 0.25, 0.125, 1.0, 2.0, 4.0, 8.0, 16.0]> : tensor<8xf32>",
    "%z = arith.constant dense<[1.0, 2.0, 0.0, -1.0, 1.0, 1.0, 1.0, 1.0]> : tensor<8xf32>",
    "%other = arith.constant dense<3.0> : tensor<8xf32>",
)


def test_fake_quantize(recognize: Recognize) -> None:
    """Never leaves float; the bounds are rank-0 integers; the storage is the smallest that holds them (Q6)."""
    node = last(recognize(function(f"%x: {WIDE}", *PARAMETERS, *fake_chain())))
    assert isinstance(node, FakeQuantize)
    assert describe(node.params) == Described(
        scale=[0.5, 0.25, 0.125, 1.0, 2.0, 4.0, 8.0, 16.0], zero_point=[1, 2, 0, -1, 1, 1, 1, 1],
        storage="s4", low=-8, high=7, granularity="per-axis(1)", scale_at="d1", zero_at="d1",
    )  # fmt: skip
    assert str(node.input.payload[0].type) == WIDE


@pytest.mark.parametrize(("scale", "zero"), [("%other", "%z"), ("%s", "%other")])
def test_fake_quantize_must_come_back_with_its_own_parameters(recognize: Recognize, scale: str, zero: str) -> None:
    """Another scale or zero point on the way back is another computation."""
    node = last(recognize(function(f"%x: {WIDE}", *PARAMETERS, *fake_chain(scale, zero))))
    assert isinstance(node, Elementwise)


def test_fake_quantize_in_one_body(recognize: Recognize) -> None:
    """A symmetric fake-quantize in one body: no zero point anywhere."""
    body = """
        %s = arith.constant 0.5 : f32
        %l = arith.constant -128.0 : f32
        %h = arith.constant 127.0 : f32
        %d = arith.divf %in, %s : f32
        %r = math.roundeven %d : f32
        %m = arith.maximumf %r, %l : f32
        %n = arith.minimumf %m, %h : f32
        %f = arith.mulf %n, %s : f32
        yield %f
    """
    node = last(recognize(function(f"%x: {WIDE}", generic("%f", [f"%x: {WIDE}"], WIDE, body))))
    assert isinstance(node, FakeQuantize)
    assert describe(node.params) == Described(scale=0.5)


def test_infinite_bounds_are_no_fake_quantize(recognize: Recognize) -> None:
    """A clamp that ends nowhere has no storage type."""
    body = """
        %s = arith.constant 0.5 : f32
        %l = arith.constant 0xFF800000 : f32
        %h = arith.constant 0x7F800000 : f32
        %d = arith.divf %in, %s : f32
        %r = math.roundeven %d : f32
        %m = arith.maximumf %r, %l : f32
        %n = arith.minimumf %m, %h : f32
        %f = arith.mulf %n, %s : f32
        yield %f
    """
    node = last(recognize(function(f"%x: {WIDE}", generic("%f", [f"%x: {WIDE}"], WIDE, body))))
    assert isinstance(node, Elementwise | Contradiction)


def test_long_chains_end(recognize: Recognize) -> None:
    """A thousand products in a row, and sixty squares in one body, take neither deep recursion nor long."""
    steps = [
        generic(f"%m{i}", [f"%m{i - 1}: {WIDE}" if i else f"%x: {WIDE}", f"%y: {WIDE}"], WIDE, MULTIPLY)
        for i in range(1200)
    ]
    squares = "\n".join(
        f"%t{i} = arith.mulf %{f't{i - 1}' if i else 'in'}, %{f't{i - 1}' if i else 'in'} : f32" for i in range(60)
    )
    steps.append(generic("%sq", [f"%m1199: {WIDE}"], WIDE, squares + "\nyield %t59"))
    nodes = recognize(function(f"%x: {WIDE}, %y: {WIDE}", *steps))
    assert {type(n) for n in nodes} == {Elementwise}
