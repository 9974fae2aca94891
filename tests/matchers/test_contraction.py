"""Contractions and convolutions by what they compute, whatever the operation is called."""

from __future__ import annotations

from typing import TypeVar

import pytest

from qfuse._mlir import Bindings
from qfuse.indexing import to_affine
from qfuse.matchers.nodes import Contraction, Convolution, Elementwise, LayoutNode, Node, Opaque, Reduction
from tests.conftest import Recognize
from tests.matchers.ir import function, generic

N = TypeVar("N", bound=Node)


def only(nodes: list[Node], kind: type[N]) -> N:
    """The one node of exactly this type."""
    found = [n for n in nodes if type(n) is kind]
    assert len(found) == 1, [type(n).__name__ for n in nodes]
    return found[0]


def places(node: Contraction) -> tuple[str, str, str]:
    """How lhs, rhs and result are read, as text over the loops."""
    lhs, rhs, out = (", ".join(map(to_affine, i)) for i in (node.lhs_index, node.rhs_index, node.out_index))
    return lhs, rhs, out


NAMED = [
    ("matmul", "", ["4x8", "8x2"], "4x2", ("d0, d2", "d2, d1", "d0, d1"), (2,), (4, 2, 8)),
    (
        "matmul",
        ("indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>,"
        " affine_map<(d0, d1, d2) -> (d0, d1)>]"),
        ["8x4", "8x2"], "4x2", ("d2, d0", "d2, d1", "d0, d1"), (2,), (4, 2, 8),
    ),
    (
        "matmul",
        ("indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>,"
        " affine_map<(d0, d1, d2) -> (d0, d1)>]"),
        ["4x8", "2x8"], "4x2", ("d0, d2", "d1, d2", "d0, d1"), (2,), (4, 2, 8),
    ),
    (
        "matmul",
        ("indexing_maps = [affine_map<(d0, d1, d2) -> (d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>,"
        " affine_map<(d0, d1, d2) -> (d0, d1)>]"),
        ["8", "8x2"], "4x2", ("d2", "d2, d1", "d0, d1"), (2,), (4, 2, 8),
    ),
    ("batch_matmul", "", ["3x4x8", "3x8x2"], "3x4x2", ("d0, d1, d3", "d0, d3, d2", "d0, d1, d2"), (3,), (3, 4, 2, 8)),
    (
        "batch_matmul",
        ("indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>,"
        " affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>]"),
        ["3x4x8", "8x2"], "3x4x2", ("d0, d1, d3", "d3, d2", "d0, d1, d2"), (3,), (3, 4, 2, 8),
    ),
    ("batch_reduce_matmul", "", ["3x4x8", "3x8x2"], "4x2",
     ("d0, d1, d3", "d0, d3, d2", "d1, d2"), (0, 3), (3, 4, 2, 8)),
    ("matvec", "", ["4x8", "8"], "4", ("d0, d1", "d1", "d0"), (1,), (4, 8)),
    ("vecmat", "", ["8", "8x2"], "2", ("d1", "d1, d0", "d0"), (1,), (2, 8)),
    ("batch_matvec", "", ["3x4x8", "3x8"], "3x4", ("d0, d1, d2", "d0, d2", "d0, d1"), (2,), (3, 4, 8)),
    ("dot", "", ["8", "8"], "", ("d0", "d0", ""), (0,), (8,)),
    ("mmt4d", "", ["2x3x4x8", "5x3x6x8"], "2x5x4x6",
     ("d0, d2, d3, d5", "d1, d2, d4, d5", "d0, d1, d3, d4"), (2, 5), (2, 5, 3, 4, 6, 8)),
    (
        "contract",
        ("indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1)>, affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>,"
        " affine_map<(d0, d1, d2, d3) -> (d2, d0, d1)>]"),
        ["8x3x4", "3x2x8"], "2x3x4", ("d3, d0, d1", "d0, d2, d3", "d2, d0, d1"), (3,), (3, 4, 2, 8),
    ),
]  # fmt: skip


def tensor(shape: str, element: str) -> str:
    """A tensor type of a shape that may be empty."""
    return f"tensor<{shape}{'x' if shape else ''}{element}>"


def named(name: str, attributes: str, shapes: list[str], out: str, elements: tuple[str, str, str]) -> str:
    """A function with one named operation of `%a` and `%b` into `%c`."""
    a, b = (tensor(s, e) for s, e in zip(shapes, elements, strict=False))
    c = tensor(out, elements[2])
    return function(
        f"%a: {a}, %b: {b}, %c: {c}", f"%r = linalg.{name} {attributes} ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}"
    )


@pytest.mark.parametrize("elements", [("f32", "f32", "f32"), ("f16", "f16", "f32"), ("i8", "i8", "i32")])
@pytest.mark.parametrize(("name", "attributes", "shapes", "out", "maps", "reduction", "extents"), NAMED)
def test_named_contractions(
    recognize: Recognize, name: str, attributes: str, shapes: list[str], out: str, maps: tuple[str, str, str],
    reduction: tuple[int, ...], extents: tuple[int, ...], elements: tuple[str, str, str],
) -> None:  # fmt: skip
    """Every named operation in its spellings, in float, mixed precision and integers."""
    node = only(recognize(named(name, attributes, shapes, out, elements)), Contraction)
    assert places(node) == maps
    assert node.reduction == reduction
    assert node.extents == extents
    assert node.integer is (elements[0] == "i8")
    assert [node.lhs, node.rhs, node.init] == list(node.op.operands)
    assert node.through == ()


def test_every_binding(recognize: Recognize, each_bindings: Bindings) -> None:
    """A matmul in each binding."""
    text = named("matmul", "", ["4x8", "8x2"], "4x2", ("f32", "f32", "f32"))
    assert places(only(recognize(text, each_bindings), Contraction)) == ("d0, d2", "d2, d1", "d0, d1")


def test_dynamic_extents(recognize: Recognize) -> None:
    """Unknown extents are None; one operand that knows is enough."""
    node = only(recognize(named("matmul", "", ["?x?", "8x?"], "?x2", ("f32", "f32", "f32"))), Contraction)
    assert node.extents == (None, 2, 8)


@pytest.mark.parametrize("kind", ["quantized_matmul", "quantized_batch_matmul"])
def test_quantized_matmul(recognize: Recognize, kind: str) -> None:
    """The ONNX importer's integer matmuls, with their zero points, are contractions of integers."""
    batch = "3x" if "batch" in kind else ""
    a, b, c = f"tensor<{batch}4x8xi8>", f"tensor<{batch}8x2xi8>", f"tensor<{batch}4x2xi32>"
    text = function(
        f"%a: {a}, %b: {b}, %za: i32, %zb: i32, %c: {c}",
        f"%r = linalg.{kind} ins(%a, %b, %za, %zb : {a}, {b}, i32, i32) outs(%c : {c}) -> {c}",
    )
    node = only(recognize(text), Contraction)
    assert node.integer
    assert [node.lhs, node.rhs] == list(node.op.operands)[:2]


def test_matmul_of_extended_integers(recognize: Recognize) -> None:
    """MatMulInteger: a matmul of i32 tensors into i64."""
    assert only(recognize(named("matmul", "", ["4x8", "8x2"], "4x2", ("i32", "i32", "i64"))), Contraction).integer


# -- generics --------------------------------------------------------------------------------------------------

MULTIPLY_ADD = "%m = arith.mulf %in, %in_1 : f32\n%s = arith.addf %out, %m : f32\nyield %s"


def test_generic_in_any_order(recognize: Recognize) -> None:
    """The init may be the second summand; loops in any order; casts in between."""
    text = generic(
        "%r", ["%a: tensor<8x4xf16>", "%b: tensor<8x2xf32>"], "tensor<2x4xf32>",
        "%x = arith.extf %in : f16 to f32\n%m = arith.mulf %in_1, %x : f32\n%s = arith.addf %m, %out : f32\nyield %s",
        ["d0, d2", "d0, d1", "d1, d2"], out="%c", reduction=[0], loops=3,
    )  # fmt: skip
    arguments = "%a: tensor<8x4xf16>, %b: tensor<8x2xf32>, %c: tensor<2x4xf32>"
    node = only(recognize(function(arguments, text)), Contraction)
    assert places(node) == ("d0, d1", "d0, d2", "d1, d2")
    assert node.reduction == (0,)
    assert node.extents == (8, 2, 4)


def test_generic_over_groups(recognize: Recognize) -> None:
    """Two reduction loops, as in the legacy weight-only form."""
    text = generic(
        "%r", ["%a: tensor<4x3x8xf32>", "%b: tensor<2x3x8xf32>"], "tensor<4x2xf32>", MULTIPLY_ADD,
        ["d0, d2, d3", "d1, d2, d3", "d0, d1"], out="%c", reduction=[2, 3], loops=4,
    )  # fmt: skip
    arguments = "%a: tensor<4x3x8xf32>, %b: tensor<2x3x8xf32>, %c: tensor<4x2xf32>"
    node = only(recognize(function(arguments, text)), Contraction)
    assert node.reduction == (2, 3)


def test_integer_generic_with_zero_points(recognize: Recognize) -> None:
    """Zero points subtracted in the body of an integer contraction."""
    text = generic(
        "%r", ["%a: tensor<4x8xi8>", "%b: tensor<8x2xi8>"], "tensor<4x2xi32>",
        """
        %z = arith.constant 3 : i32
        %x = arith.extsi %in : i8 to i32
        %xz = arith.subi %x, %z : i32
        %y = arith.extui %in_1 : i8 to i32
        %m = arith.muli %xz, %y : i32
        %s = arith.addi %out, %m : i32
        yield %s""",
        ["d0, d2", "d2, d1", "d0, d1"], out="%c", reduction=[2], loops=3,
    )  # fmt: skip
    arguments = "%a: tensor<4x8xi8>, %b: tensor<8x2xi8>, %c: tensor<4x2xi32>"
    assert only(recognize(function(arguments, text)), Contraction).integer


# -- products of their own -------------------------------------------------------------------------------------

PRODUCT = "%m = arith.mulf %in, %in_1 : f32\nyield %m"
SUM = "%s = arith.addf %out, %in : f32\nyield %s"


def test_multiply_then_reduce(recognize: Recognize) -> None:
    """torch's matrix times vector: a product operation and a sum of it."""
    text = function(
        "%a: tensor<4x8xf32>, %b: tensor<8xf32>, %c: tensor<4xf32>",
        generic("%p", ["%a: tensor<4x8xf32>", "%b: tensor<8xf32>"], "tensor<4x8xf32>", PRODUCT, ["d0, d1", "d1"]),
        generic(
            "%r", ["%p: tensor<4x8xf32>"], "tensor<4xf32>", SUM, ["d0, d1", "d0"], out="%c", reduction=[1], loops=2
        ),
    )
    nodes = recognize(text)
    node = only(nodes, Contraction)
    assert places(node) == ("d0, d1", "d1", "d0")
    assert [op.name for op in node.through] == ["linalg.generic"]
    assert [node.lhs, node.rhs] == list(nodes[0].op.operands)[:2]


def test_multiply_reshape_reduce(recognize: Recognize) -> None:
    """A reshape between the product and the sum is read through."""
    text = function(
        "%a: tensor<2x4xf32>, %b: tensor<2x4xf32>, %c: tensor<f32>",
        generic("%p", ["%a: tensor<2x4xf32>", "%b: tensor<2x4xf32>"], "tensor<2x4xf32>", PRODUCT),
        "%v = tensor.collapse_shape %p [[0, 1]] : tensor<2x4xf32> into tensor<8xf32>",
        generic("%r", ["%v: tensor<8xf32>"], "tensor<f32>", SUM, ["d0", ""], out="%c", reduction=[0], loops=1),
    )
    node = only(recognize(text), Contraction)
    assert places(node) == ("((d0) floordiv 4), ((d0) mod 4)", "((d0) floordiv 4), ((d0) mod 4)", "")
    assert [op.name for op in node.through] == ["tensor.collapse_shape", "linalg.generic"]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("kind", "operation"), [("sum", "addf"), ("max", "maximumf"), ("min", "minimumf")])
def test_reductions(recognize: Recognize, kind: str, operation: str, keep: bool) -> None:
    """Sums, maxima and minima of a tensor itself; a reduced dimension may stay with extent 1."""
    to = "tensor<4x1xf32>" if keep else "tensor<4xf32>"
    text = generic(
        "%r", ["%a: tensor<4x8xf32>"], to, f"%s = arith.{operation} %in, %out : f32\nyield %s",
        ["d0, d1", "d0, 0" if keep else "d0"], out="%c", reduction=[1], loops=2,
    )  # fmt: skip
    node = only(recognize(function(f"%a: tensor<4x8xf32>, %c: {to}", text)), Reduction)
    assert node.kind == kind
    assert [node.operand, node.init] == list(node.op.operands)
    assert [to_affine(e) for e in node.index] == ["d0", "d1"]
    assert [to_affine(e) for e in node.out_index] == (["d0", "d2"] if keep else ["d0"])
    assert node.extents == ((4, 8, 1) if keep else (4, 8))
    assert node.reduction == (1,)


def test_scaled_sum_is_no_contraction(recognize: Recognize) -> None:
    """One factor that is the same for all that is summed does not make a contraction."""
    text = generic(
        "%r", ["%a: tensor<4x8xf32>", "%s: tensor<f32>"], "tensor<4xf32>", MULTIPLY_ADD, ["d0, d1", "", "d0"],
        out="%c", reduction=[1], loops=2,
    )  # fmt: skip
    arguments = "%a: tensor<4x8xf32>, %s: tensor<f32>, %c: tensor<4xf32>"
    assert only(recognize(function(arguments, text)), Opaque).kind == "reduction"


def test_difference_is_no_contraction(recognize: Recognize) -> None:
    """init - a * b is something else."""
    text = generic(
        "%r", ["%a: tensor<4x8xf32>", "%b: tensor<8x2xf32>"], "tensor<4x2xf32>",
        MULTIPLY_ADD.replace("addf", "subf"), ["d0, d2", "d2, d1", "d0, d1"], out="%c", reduction=[2], loops=3,
    )  # fmt: skip
    arguments = "%a: tensor<4x8xf32>, %b: tensor<8x2xf32>, %c: tensor<4x2xf32>"
    assert only(recognize(function(arguments, text)), Opaque).kind == "reduction"


@pytest.mark.parametrize("values_are_read", [False, True])
def test_two_results_are_no_contraction(recognize: Recognize, values_are_read: bool) -> None:
    """The minimum with its index: where that alone is read, a reduction to it."""
    text = """
        %r:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>,
          affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<4x8xf32>) outs(%c, %i : tensor<4xf32>, tensor<4xi64>) {
        ^bb0(%in: f32, %out: f32, %at: i64):
          %n = linalg.index 1 : index
          %j = arith.index_cast %n : index to i64
          %m = arith.minimumf %in, %out : f32
          %l = arith.cmpf olt, %in, %out : f32
          %k = arith.select %l, %j, %at : i64
          linalg.yield %m, %k : f32, i64
        } -> (tensor<4xf32>, tensor<4xi64>)
        %u = tensor.extract_slice %r#1[0] [2] [1] : tensor<4xi64> to tensor<2xi64>
    """
    arguments = "%a: tensor<4x8xf32>, %c: tensor<4xf32>, %i: tensor<4xi64>"
    if values_are_read:
        text += "%w = tensor.extract_slice %r#0[0] [2] [1] : tensor<4xf32> to tensor<2xf32>\n"
        assert only(recognize(function(arguments, text)), Opaque).kind == "a reduction with several results"
        return
    node = only(recognize(function(arguments, text)), Reduction)
    assert (node.kind, node.reduction, node.position) == ("argmin", (1,), node.op.results[1])
    assert node.replaced == node.position


def test_broadcast_copy_in_front(recognize: Recognize) -> None:
    """A weight broadcast over the batch by a copy is a layout; the batch_matmul reads its result."""
    text = function(
        "%a: tensor<3x4x8xf32>, %w: tensor<8x2xf32>, %c: tensor<3x4x2xf32>",
        generic("%b", ["%w: tensor<8x2xf32>"], "tensor<3x8x2xf32>", "yield %in", ["d1, d2"]),
        "%r = linalg.batch_matmul ins(%a, %b : tensor<3x4x8xf32>, tensor<3x8x2xf32>)"
        " outs(%c : tensor<3x4x2xf32>) -> tensor<3x4x2xf32>",
    )
    nodes = recognize(text)
    copy = only(nodes, LayoutNode)
    assert [to_affine(e) for e in copy.layout.index or ()] == ["d1", "d2"]
    assert only(nodes, Contraction).rhs == copy.result


# -- windows ---------------------------------------------------------------------------------------------------

CONVOLUTIONS = [
    ("conv_1d_ncw_fcw", ["1x3x8", "4x3x3"], "1x4x6"),
    ("conv_2d_nchw_fchw", ["1x3x8x8", "4x3x3x3"], "1x4x6x6"),
    ("conv_2d_nhwc_hwcf", ["1x8x8x3", "3x3x3x4"], "1x6x6x4"),
    ("conv_2d_ngchw_gfchw", ["1x2x3x8x8", "2x4x3x3x3"], "1x2x4x6x6"),
    ("depthwise_conv_2d_nchw_chw", ["1x3x8x8", "3x3x3"], "1x3x6x6"),
    ("conv_3d_ncdhw_fcdhw", ["1x3x4x4x4", "2x3x3x3x3"], "1x2x2x2x2"),
    ("conv_2d_nchw_fchw", ["1x3x8x8", "4x3x1x1"], "1x4x8x8"),
]


@pytest.mark.parametrize("elements", [("f32", "f32", "f32"), ("i8", "i8", "i32")])
@pytest.mark.parametrize(("name", "shapes", "out"), CONVOLUTIONS)
def test_convolutions(
    recognize: Recognize, name: str, shapes: list[str], out: str, elements: tuple[str, str, str]
) -> None:
    """A product that slides is a convolution, the sliding operand first."""
    node = only(recognize(named(name, "", shapes, out, elements)), Convolution)
    assert [node.lhs, node.rhs] == list(node.op.operands)[:2]
    assert node.integer is (elements[0] == "i8")


def test_strides_and_dilations(recognize: Recognize) -> None:
    """They are in the index of the sliding operand."""
    attributes = "{strides = dense<2> : tensor<2xi64>, dilations = dense<3> : tensor<2xi64>}"
    node = only(
        recognize(named("conv_2d_nchw_fchw", attributes, ["1x3x19x19", "4x3x3x3"], "1x4x7x7", ("f32", "f32", "f32"))),
        Convolution,
    )
    assert places(node)[0] == "d0, d4, d2 * 2 + d5 * 3, d3 * 2 + d6 * 3"


def test_quantized_convolution(recognize: Recognize) -> None:
    """The ONNX importer's integer convolution."""
    a, b, c = "tensor<1x3x8x8xi8>", "tensor<4x3x3x3xi8>", "tensor<1x4x6x6xi32>"
    text = function(
        f"%a: {a}, %b: {b}, %za: i32, %zb: i32, %c: {c}",
        f"%r = linalg.conv_2d_nchw_fchw_q ins(%a, %b, %za, %zb : {a}, {b}, i32, i32) outs(%c : {c}) -> {c}",
    )
    assert only(recognize(text), Convolution).integer


def test_sliding_operand_comes_first(recognize: Recognize) -> None:
    """A generic that multiplies the weight by the window has the window as its lhs all the same."""
    text = generic(
        "%r", ["%w: tensor<3xf32>", "%x: tensor<8xf32>"], "tensor<6xf32>", MULTIPLY_ADD,
        ["d1", "d0 + d1", "d0"], out="%c", reduction=[1], loops=2,
    )  # fmt: skip
    node = only(recognize(function("%w: tensor<3xf32>, %x: tensor<8xf32>, %c: tensor<6xf32>", text)), Convolution)
    assert places(node) == ("d0 + d1", "d1", "d0")


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_pooling(recognize: Recognize, kind: str) -> None:
    """A window without a product is a pooling, also when what is pooled was a product before."""
    a, w, c = "tensor<1x3x8x8xf32>", "tensor<2x2xf32>", "tensor<1x3x7x7xf32>"
    if kind == "min":
        a, c, layout = "tensor<1x8x8x3xf32>", "tensor<1x7x7x3xf32>", "nhwc"
    else:
        layout = "nchw"
    pool = f"%r = linalg.pooling_{layout}_{kind} ins(%p, %w : {a}, {w}) outs(%c : {c}) -> {c}"
    product = generic("%p", [f"%a: {a}", f"%b: {a}"], a, PRODUCT)
    nodes = recognize(function(f"%a: {a}, %b: {a}, %w: {w}, %c: {c}", product, pool))
    node = only(nodes, Reduction)
    assert node.kind == kind
    assert node.operand == only(nodes, Elementwise).result
    assert {"d2 + d4", "d1 + d4"} & {to_affine(e) for e in node.index}


def test_long_and_wide_bodies_are_read_once(recognize: Recognize) -> None:
    """A reduction over a body that is no product stays opaque."""
    text = generic(
        "%r", ["%a: tensor<4x8xf32>", "%b: tensor<4x8xf32>"], "tensor<4xf32>",
        "%d = arith.subf %in, %in_1 : f32\n%m = arith.mulf %d, %d : f32\n%s = arith.addf %out, %m : f32\nyield %s",
        ["d0, d1", "d0, d1", "d0"], out="%c", reduction=[1], loops=2,
    )  # fmt: skip
    arguments = "%a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %c: tensor<4xf32>"
    assert only(recognize(function(arguments, text)), Opaque).kind == "reduction"
