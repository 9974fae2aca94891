"""Named quantize and dequantize operations: `quant.qcast / dcast / scast` and `iree_linalg_ext.*_affine`."""

from __future__ import annotations

import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.indexing import identity
from qfuse.matchers.nodes import Contradiction, Dequantize, Node, Opaque, Quantize
from tests.conftest import Parse, Recognize
from tests.matchers.ir import Described, describe, f32, function

# -- quant -----------------------------------------------------------------------------------------------------

F32 = "tensor<2x8xf32>"
TYPES = [
    ("i8:f32, 0.5:3", Described(scale=0.5, zero_point=3)),
    ("i8:f32, 0.02", Described(scale=f32(0.02))),
    ("u8:f32, 0.5:128", Described(scale=0.5, zero_point=128, storage="u8", low=0, high=255)),
    ("i8<-127:127>:f32, 0.5", Described(scale=0.5, low=-127)),
    ("i4:f32, 0.5:-8", Described(scale=0.5, zero_point=-8, storage="s4", low=-8, high=7)),
    ("u4:f32, 0.5:15", Described(scale=0.5, zero_point=15, storage="u4", low=0, high=15)),
    ("i16:f32, 0.5", Described(scale=0.5, storage="s16", low=-32768, high=32767)),
    ("i32:f32, 0.5", Described(scale=0.5, storage="s32", low=-(2**31), high=2**31 - 1)),
    (
        "i8:f32:0, {0.5:1, 0.25:-2}",
        Described(scale=[0.5, 0.25], zero_point=[1, -2], granularity="per-axis(0)", scale_at="d0", zero_at="d0"),
    ),
    ("i8:f32:0, {0.5, 0.25}", Described(scale=[0.5, 0.25], granularity="per-axis(0)", scale_at="d0")),
    (
        "u8:f32:{0:1, 1:4}, {{0.5:1, 0.25:2}, {1.0:3, 2.0:4}}",
        Described(
            scale=[[0.5, 0.25], [1.0, 2.0]], zero_point=[[1, 2], [3, 4]], storage="u8", low=0, high=255,
            granularity="per-group(4)", scale_at="d0, ((d1) floordiv 4)", zero_at="d0, ((d1) floordiv 4)",
        ),
    ),
    (
        "i8:f32:{1:4}, {{0.5, 0.25}}",
        Described(scale=[0.5, 0.25], granularity="per-group(4)", scale_at="((d1) floordiv 4)"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TYPES, ids=[t for t, _ in TYPES])
def test_quantized_types(recognize: Recognize, each_bindings: Bindings, text: str, expected: Described) -> None:
    """A qcast is a Quantize to the type's parameters, the dcast behind it a Dequantize of its result."""
    quantized = f"tensor<2x8x!quant.uniform<{text}>>"
    nodes = recognize(
        function(
            f"%x: {F32}",
            f"%q = quant.qcast %x : {F32} to {quantized}",
            f"%d = quant.dcast %q : {quantized} to {F32}",
        ),
        each_bindings,
    )
    quantize, dequantize = nodes
    assert isinstance(quantize, Quantize)
    assert isinstance(dequantize, Dequantize)
    assert describe(quantize.params) == describe(dequantize.params) == expected
    assert not quantize.reciprocal
    assert not quantize.zero_point_first
    assert quantize.input.payload == (quantize.op.operands[0], identity(2))
    assert dequantize.storage == quantize.result
    assert dequantize.storage_cast == f"tensor<2x8x{expected.storage.replace('s', 'i').replace('u', 'i')}>"


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
def test_expressed_types(recognize: Recognize, element: str) -> None:
    """The expressed type is the quantized type's."""
    quantized = f"tensor<4x!quant.uniform<i8:{element}, 0.5>>"
    node = recognize(function(f"%q: {quantized}", f"%d = quant.dcast %q : {quantized} to tensor<4x{element}>"))[0]
    assert isinstance(node, Dequantize)
    assert describe(node.params) == Described(scale=0.5, expressed=element)


def test_storage_cast_gives_the_integers(recognize: Recognize) -> None:
    """A dcast of a scast reads the integer tensor itself."""
    quantized = "tensor<4x?x!quant.uniform<i8:f32, 0.5>>"
    nodes = recognize(
        function(
            "%i: tensor<4x?xi8>",
            f"%q = quant.scast %i : tensor<4x?xi8> to {quantized}",
            f"%d = quant.dcast %q : {quantized} to tensor<4x?xf32>",
        )
    )
    node = nodes[-1]
    assert isinstance(node, Dequantize)
    assert node.storage_cast is None
    assert str(node.storage.type) == "tensor<4x?xi8>"
    assert node.params.extents == (4, None)


def test_dynamic_extents(recognize: Recognize) -> None:
    """A dynamic extent is kept in the type to cast to."""
    quantized = "tensor<?x8x!quant.uniform<u8:f32:1, {0.5,0.25,1.0,2.0,0.5,0.25,1.0,2.0}>>"
    node = recognize(function(f"%q: {quantized}", f"%d = quant.dcast %q : {quantized} to tensor<?x8xf32>"))[0]
    assert isinstance(node, Dequantize)
    assert node.storage_cast == "tensor<?x8xi8>"
    assert node.params.granularity == "per-axis(1)"


def test_quantize_between_casts_is_fused(parse: Parse, each_bindings: Bindings) -> None:
    """dcast -> matmul -> qcast: the integers take the place of the qcast through a scast; twice changes nothing."""
    a, w, o = (f"!quant.uniform<{t}>" for t in ("i8:f32, 0.5:3", "i8:f32:1, {0.5,0.25,1.0,2.0}", "u8:f32, 8.0:128"))
    module = parse(
        f"""
        func.func @main(%x: tensor<2x8x{a}>, %w: tensor<8x4x{w}>) -> tensor<2x4xi8> {{
          %xf = quant.dcast %x : tensor<2x8x{a}> to tensor<2x8xf32>
          %wf = quant.dcast %w : tensor<8x4x{w}> to tensor<8x4xf32>
          %zero = arith.constant 0.0 : f32
          %e = tensor.empty() : tensor<2x4xf32>
          %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
          %m = linalg.matmul ins(%xf, %wf : tensor<2x8xf32>, tensor<8x4xf32>)
            outs(%f : tensor<2x4xf32>) -> tensor<2x4xf32>
          %q = quant.qcast %m : tensor<2x4xf32> to tensor<2x4x{o}>
          %s = quant.scast %q : tensor<2x4x{o}> to tensor<2x4xi8>
          return %s : tensor<2x4xi8>
        }}""",
        each_bindings,
    )
    report = qfuse.fuse(module)
    assert report.to_json()["summary"]["integer_ops"] == 1
    each_bindings.verify(module.operation)
    fused = str(module)
    assert "qcast" not in fused
    assert "dcast" not in fused
    qfuse.fuse(module)
    assert str(module) == fused


# -- iree_linalg_ext -------------------------------------------------------------------------------------------


def maps(scale: str = "", zero: str | None = "") -> str:
    """The `indexing_maps` of an operation over two dimensions; no zero point when None."""
    places = ["d0, d1", scale, *([] if zero is None else [zero]), "d0, d1"]
    return "[" + ", ".join(f"affine_map<(d0, d1) -> ({p})>" for p in places) + "]"


def spelled(bindings: Bindings, kind: str, operands: str, types: str, to: str, attributes: str) -> str:
    """The operation in the binding's spelling: custom where IREE's dialect is registered, else generic."""
    *ins, out = [o.strip() for o in operands.split(",")]
    *in_types, out_type = [t.strip() for t in types.split(";")]
    if bindings.package == "iree.compiler":
        attributes = attributes.replace(" : i64", "")
        return (
            f"%r = iree_linalg_ext.{kind} <{attributes}> ins({', '.join(ins)} : {', '.join(in_types)}) "
            f"outs({out} : {out_type}) -> {to}"
        )
    values = ", ".join([*ins, out])
    return f'%r = "iree_linalg_ext.{kind}"({values}) {{{attributes}}} : ({", ".join([*in_types, out_type])}) -> {to}'


def only(nodes: list[Node]) -> Node:
    """The one node of a module."""
    assert len(nodes) == 1, nodes
    return nodes[0]


def test_quantize_affine_per_tensor(recognize: Recognize, each_bindings: Bindings) -> None:
    """Scalars as parameters, explicit bounds."""
    operation = spelled(
        each_bindings, "quantize_affine", "%x, %s, %z, %o", "tensor<2x8xf32>; f32; i64; tensor<2x8xi8>",
        "tensor<2x8xi8>", f"indexing_maps = {maps()}, quant_min = -8 : i64, quant_max = 7 : i64",
    )  # fmt: skip
    text = function(
        "%x: tensor<2x8xf32>, %o: tensor<2x8xi8>",
        "%s = arith.constant 0.5 : f32",
        "%z = arith.constant 3 : i64",
        operation,
    )
    node = only(recognize(text, each_bindings))
    assert isinstance(node, Quantize)
    assert describe(node.params) == Described(scale=0.5, zero_point=3, low=-8, high=7)
    assert node.input.op == "elem"


def test_quantize_affine_unsigned_run_time(recognize: Recognize, each_bindings: Bindings) -> None:
    """`storage_unsigned`, run-time scalars, the bounds of the type."""
    operation = spelled(
        each_bindings, "quantize_affine", "%x, %s, %z, %o", "tensor<2x8xf32>; f32; i32; tensor<2x8xi8>",
        "tensor<2x8xi8>",
        f"indexing_maps = {maps()}, quant_min = 0 : i64, quant_max = 255 : i64, storage_unsigned",
    )  # fmt: skip
    node = only(
        recognize(function("%x: tensor<2x8xf32>, %s: f32, %z: i32, %o: tensor<2x8xi8>", operation), each_bindings)
    )
    assert isinstance(node, Quantize)
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point="run-time i32", storage="u8", low=0, high=255
    )


@pytest.mark.parametrize(
    ("place", "shape", "granularity", "at"),
    [
        ("d0", "2", "per-axis(0)", "d0"),
        ("d1", "8", "per-axis(1)", "d1"),
        ("d0, d1 floordiv 4", "2x2", "per-group(4)", "d0, ((d1) floordiv 4)"),
    ],
)
def test_dequantize_affine_granularities(
    recognize: Recognize, each_bindings: Bindings, place: str, shape: str, granularity: str, at: str
) -> None:
    """Parameters read through the operation's maps (IREE's verifier wants them to be dimensions)."""
    if "floordiv" in place and each_bindings.package == "iree.compiler":
        return
    operation = spelled(
        each_bindings, "dequantize_affine", "%q, %s, %z, %o",
        f"tensor<2x8xi8>; tensor<{shape}xf32>; tensor<{shape}xi8>; tensor<2x8xf32>", "tensor<2x8xf32>",
        f"indexing_maps = {maps(place, place)}",
    )  # fmt: skip
    arguments = f"%q: tensor<2x8xi8>, %s: tensor<{shape}xf32>, %z: tensor<{shape}xi8>, %o: tensor<2x8xf32>"
    node = only(recognize(function(arguments, operation), each_bindings))
    assert isinstance(node, Dequantize)
    assert describe(node.params) == Described(
        scale="run-time f32", zero_point="run-time i8", granularity=granularity, scale_at=at, zero_at=at
    )
    assert node.storage == node.op.operands[0]


def test_dequantize_affine_without_zero_point(recognize: Recognize, each_bindings: Bindings) -> None:
    """The zero point and its map are left out; unsigned i4 storage; constant scales of one axis."""
    operation = spelled(
        each_bindings, "dequantize_affine", "%q, %s, %o", "tensor<2x8xi4>; tensor<2xf32>; tensor<2x8xf32>",
        "tensor<2x8xf32>", f"indexing_maps = {maps('d0', None)}, input_unsigned",
    )  # fmt: skip
    text = function(
        "%q: tensor<2x8xi4>, %o: tensor<2x8xf32>",
        "%s = arith.constant dense<[0.5, 0.25]> : tensor<2xf32>",
        operation,
    )
    node = only(recognize(text, each_bindings))
    assert isinstance(node, Dequantize)
    assert describe(node.params) == Described(
        scale=[0.5, 0.25], storage="u4", low=0, high=15, granularity="per-axis(0)", scale_at="d0"
    )


def test_dequantize_affine_unsigned_zero_points(recognize: Recognize, each_bindings: Bindings) -> None:
    """`zp_unsigned`: constant i8 zero points are read as unsigned numbers, run-time ones say so."""
    attributes = f"indexing_maps = {maps('d0', 'd0')}, input_unsigned, zp_unsigned"
    types = "tensor<2x8xi8>; tensor<2xf32>; tensor<2xi8>; tensor<2x8xf32>"
    operation = spelled(each_bindings, "dequantize_affine", "%q, %s, %z, %o", types, "tensor<2x8xf32>", attributes)
    arguments = "%q: tensor<2x8xi8>, %s: tensor<2xf32>, %o: tensor<2x8xf32>"
    node = only(recognize(function(f"{arguments}, %z: tensor<2xi8>", operation), each_bindings))
    assert isinstance(node, Dequantize)
    assert describe(node.params).zero_point == "run-time unsigned i8"
    constant = "%z = arith.constant dense<[3, -56]> : tensor<2xi8>"
    node = only(recognize(function(arguments, constant, operation), each_bindings))
    assert isinstance(node, Dequantize)
    assert describe(node.params).zero_point == [3, 200]


@pytest.mark.parametrize(
    ("scale", "zero", "bounds", "reason"),
    [
        ("0.0", "0", (-128, 127), "a scale is zero"),
        ("-1.0", "0", (-128, 127), "a scale is negative"),
        ("1.0", "200", (-128, 127), "the zero point 200 is outside the storage range [-128, 127]"),
        ("1.0", "0", (0, 255), "the clamp [0, 255] does not fit storage s8"),
        ("1.0", "0", (5, -5), "the clamp [5, -5] does not fit storage s8"),
    ],
)
def test_refuse_affine_that_contradicts_itself(
    recognize: Recognize, torch_bindings: Bindings, scale: str, zero: str, bounds: tuple[int, int], reason: str
) -> None:
    """What is impossible in linalg is impossible here."""
    operation = spelled(
        torch_bindings, "quantize_affine", "%x, %s, %z, %o", "tensor<2x8xf32>; f32; i64; tensor<2x8xi8>",
        "tensor<2x8xi8>",
        f"indexing_maps = {maps()}, quant_min = {bounds[0]} : i64, quant_max = {bounds[1]} : i64",
    )  # fmt: skip
    text = function(
        "%x: tensor<2x8xf32>, %o: tensor<2x8xi8>",
        f"%s = arith.constant {scale} : f32",
        f"%z = arith.constant {zero} : i64",
        operation,
    )
    node = only(recognize(text))
    assert isinstance(node, Contradiction)
    assert node.reason == reason


ID = "affine_map<(d0, d1) -> (d0, d1)>"


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        'indexing_maps = "none"',
        f"indexing_maps = [{ID}]",
        f"indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> ()>, {ID}]",
        f"indexing_maps = [{ID}, affine_map<(d0, d1) -> (d0)>, {ID}]",
        f"indexing_maps = [affine_map<(d0, d1) -> (d0 ceildiv 2, d1)>, affine_map<(d0, d1) -> ()>, {ID}]",
    ],
)
def test_malformed_affine_is_left_alone(recognize: Recognize, attributes: str) -> None:
    """An unregistered operation is not verified: what does not fit is some operation or other."""
    text = function(
        "%q: tensor<8x8xi8>, %s: f32, %o: tensor<8x8xf32>",
        f'%r = "iree_linalg_ext.dequantize_affine"(%q, %s, %o) {{{attributes}}} '
        ": (tensor<8x8xi8>, f32, tensor<8x8xf32>) -> tensor<8x8xf32>",
    )
    assert isinstance(only(recognize(text)), Opaque)
