"""Quantizes and dequantizes as one operation: of IREE, of the quant dialect, of any name; or as plain arithmetic.

The operation of any name carries everything as attributes, see `docs/named-affine-operations.md`:

    %q = "acme.quantize"(%x) {qfuse.affine = "quantize", storage = "s8", quant_min = -128, quant_max = 127,
                              scales = dense<...> : tensor<64x1xf32>, zero_points = dense<...> : tensor<64x1xi32>,
                              block_sizes = array<i64: 1, 0>}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse._builder import Body, Builder
from qfuse._mlir import Attribute, Value
from qfuse.emit.base import BuildContext
from qfuse.graph import Array
from qfuse.indexing import Extents, Index, affine_map, gather, identity
from qfuse.qparams import Param, QuantParams, block_size

#: How an operation carries its parameters.
SCHEMAS = ("iree", "quant", "attributes")


@dataclass(frozen=True)
class AffineNames:
    """What quantizes and dequantizes are called.

    Attributes:
        schema: `iree`, `quant` or `attributes`.
        quantize: name of the operation.
        dequantize: the same.
    """

    schema: str
    quantize: str
    dequantize: str


IREE = AffineNames("iree", "iree_linalg_ext.quantize_affine", "iree_linalg_ext.dequantize_affine")
QUANT = AffineNames("quant", "quant.qcast", "quant.dcast")


@dataclass(eq=False)
class PlannedAffine:
    """A quantize or dequantize that is to be spelled anew.

    Attributes:
        quantize: whether it is a quantize.
        params: over the result's dimensions.
        source: a float tensor, or None where it is `stored`.
    """

    quantize: bool
    params: QuantParams


def raised(planned: PlannedAffine, source: Value, names: AffineNames, context: BuildContext) -> Value:
    """The named operation on `source`."""
    builder, params = context.builder, planned.params
    name = names.quantize if planned.quantize else names.dequantize
    stored = builder.tensor(params.extents, params.storage.mlir)
    result = stored if planned.quantize else builder.tensor(params.extents, params.expressed)
    if names.schema == "iree":
        return _iree(planned, source, name, result, context)
    if names.schema == "quant":
        quantized = builder.tensor(params.extents, quantized_type(params))
        if planned.quantize:
            cast = builder.create(name, [quantized], [source]).results[0]
            return builder.create("quant.scast", [stored], [cast]).results[0]
        cast = builder.create("quant.scast", [quantized], [source]).results[0]
        return builder.create(name, [result], [cast]).results[0]
    return builder.create(name, [result], [source], _attributes(planned, builder)).results[0]


def _iree(planned: PlannedAffine, source: Value, name: str, result: Any, context: BuildContext) -> Value:
    builder, params = context.builder, planned.params
    rank = len(params.extents)
    same = affine_map(rank, identity(rank))
    operands, maps = [source], [same]
    for param, dtype in ((params.scale, np.float32), (params.zero_point, np.int32)):
        operands.append(_operand(builder, param, dtype))
        maps.append(affine_map(rank, param.index))
    init = builder.empty(source, params.extents, params.storage.mlir if planned.quantize else params.expressed)
    attributes = {"indexing_maps": builder.attribute("[" + ", ".join([*maps, same]) + "]")}
    if planned.quantize:
        attributes["quant_min"] = builder.attribute(f"{params.quant_min} : i64")
        attributes["quant_max"] = builder.attribute(f"{params.quant_max} : i64")
    if not params.storage.signed:
        attributes["storage_unsigned" if planned.quantize else "input_unsigned"] = builder.attribute("unit")
    return builder.create(name, [result], [*operands, init], attributes).results[0]


def _operand(builder: Builder, param: Param, dtype: Any) -> Value:
    """A parameter as a scalar or a tensor of its own dimensions."""
    if param.data is None:
        return param.value
    if param.index:
        return builder.dense_constant(np.ascontiguousarray(param.data.astype(dtype)))
    number = param.data.reshape(-1)[0].item()
    element = "f32" if dtype is np.float32 else "i32"
    attribute = builder.number(number, element)
    return builder.create("arith.constant", [attribute.type], (), {"value": attribute}).results[0]


def _attributes(planned: PlannedAffine, builder: Builder) -> dict[str, Attribute]:
    params = planned.params
    scales, zeros, blocks = on_blocks(params)
    sizes = ", ".join(str(n) for n in blocks)
    return {
        "qfuse.affine": builder.attribute(f'"{"quantize" if planned.quantize else "dequantize"}"'),
        "storage": builder.attribute(f'"{params.storage}"'),
        "quant_min": builder.attribute(f"{params.quant_min} : i64"),
        "quant_max": builder.attribute(f"{params.quant_max} : i64"),
        "scales": builder.elements(scales),
        "zero_points": builder.elements(zeros),
        "block_sizes": builder.attribute(f"array<i64: {sizes}>" if blocks else "array<i64>"),
    }


def on_blocks(params: QuantParams) -> tuple[Array, Array, tuple[int, ...]]:
    """Constant scales and zero points, a dimension for each of the data's, and the block sizes (0 for a whole extent).

    `block_size` of the parameters must be known, and so must the extents of dimensions in blocks.
    """
    found = block_size((params.scale.index, params.zero_point.index), params.extents) or ()
    blocks = tuple(g or 0 for g in found)
    full = [n or 0 if g else 1 for n, g in zip(params.extents, blocks, strict=True)]
    arrays: list[Array] = []
    for param in (params.scale, params.zero_point):
        assert param.data is not None, "only constant parameters have blocks"
        whole = np.broadcast_to(_spread(param.data, param.index, full), full)
        arrays.append(np.ascontiguousarray(whole[tuple(slice(None, None, g or 1) for g in blocks)]))
    return arrays[0].astype(np.float32), arrays[1].astype(np.int32), blocks


def _spread(data: Array, index: Index, extents: Sequence[int]) -> Array:
    return gather(data, index, extents)


def quantized_type(params: QuantParams) -> str:
    """The printed element type of the quant dialect for constant parameters."""
    storage = params.storage
    low, high = params.quant_min, params.quant_max
    bounds = "" if (low, high) == (storage.min, storage.max) else f"<{low}:{high}>"
    head = f"{'i' if storage.signed else 'u'}{storage.bits}{bounds}:{params.expressed}"
    scales, zeros, blocks = on_blocks(params)
    divided = [i for i, g in enumerate(blocks) if g]
    numbers = [_number(s, z) for s, z in zip(scales.reshape(-1).tolist(), zeros.reshape(-1).tolist(), strict=True)]
    if not divided:
        return f"!quant.uniform<{head}, {numbers[0]}>"
    if len(divided) == 1 and blocks[divided[0]] == 1:
        return f"!quant.uniform<{head}:{divided[0]}, {{{', '.join(numbers)}}}>"
    axes = ", ".join(f"{i}:{blocks[i]}" for i in divided)
    return f"!quant.uniform<{head}:{{{axes}}}, {_nested(numbers, scales.shape)}>"


def _number(scale: float, zero: int) -> str:
    text = repr(scale)
    if "." not in text:  # 1e-05: MLIR's floats have a point
        mantissa, _, exponent = text.partition("e")
        text = f"{mantissa}.0e{exponent}" if exponent else f"{mantissa}.0"
    return f"{text}:{zero}" if zero else text


def _nested(numbers: Sequence[str], shape: Sequence[int]) -> str:
    if not shape:
        return numbers[0]
    size = len(numbers) // shape[0]
    parts = [_nested(numbers[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]
    return "{" + ", ".join(parts) + "}"


# -- plain arithmetic ------------------------------------------------------------------------------------------


def lowered(planned: PlannedAffine, source: Value, context: BuildContext) -> Value:
    """The arithmetic in one `linalg.generic`, as importers spell it."""
    builder, params = context.builder, planned.params
    rank = len(params.extents)
    same = affine_map(rank, identity(rank))
    element = params.storage.mlir if planned.quantize else params.expressed
    sizes = [builder.dim(source, i) for i, n in enumerate(params.extents) if n is None]
    init = builder.empty(None, params.extents, element, sizes)
    values, maps = [source], [same]
    places: dict[str, int] = {}
    for name, param, dtype in (("scale", params.scale, np.float32), ("zero", params.zero_point, np.int32)):
        if param.scalar is not None or not builder.bindings.is_ranked_tensor(_type_of(param, builder)):
            continue
        places[name] = len(values)
        values.append(_operand(builder, param, dtype))
        maps.append(affine_map(rank, param.index))

    def load(inner: Body, args: Sequence[Value], name: str, want: str) -> Value:
        param = params.scale if name == "scale" else params.zero_point
        if param.scalar is not None:
            return inner.number(param.scalar, want)
        value = args[places[name]] if name in places else param.value
        own = param.element if param.data is None else "i32" if name == "zero" else "f32"
        return context.emitter.convert(inner, value, own, want, param.signed)

    def quantize(inner: Body, args: Sequence[Value]) -> Value:
        x = inner.op("arith.divf", "f32", args[0], load(inner, args, "scale", "f32"))
        x = inner.op("math.roundeven", "f32", x)
        if not params.symmetric:
            x = inner.op("arith.addf", "f32", x, load(inner, args, "zero", "f32"))
        x = inner.op("arith.maximumf", "f32", x, inner.number(params.quant_min, "f32"))
        x = inner.op("arith.minimumf", "f32", x, inner.number(params.quant_max, "f32"))
        return inner.op("arith.fptosi" if params.storage.signed else "arith.fptoui", params.storage.mlir, x)

    def dequantize(inner: Body, args: Sequence[Value]) -> Value:
        wide = "i32" if params.storage.bits < 32 else "i64"
        x = context.emitter.extend(inner, args[0], params.storage.bits, params.storage.signed, wide)
        if not params.symmetric:
            x = inner.op("arith.subi", wide, x, load(inner, args, "zero", wide))
        x = inner.op("arith.sitofp", "f32", x)
        return inner.op("arith.mulf", "f32", x, load(inner, args, "scale", "f32"))

    body = quantize if planned.quantize else dequantize
    return builder.generic(values, init, [*maps, same], "p" * rank, body)


def _type_of(param: Param, builder: Builder) -> Any:
    """The type of what holds a parameter."""
    if param.data is None:
        return param.value.type
    return builder.tensor(param.data.shape, "f32")


def extents_known(extents: Extents, blocks: Sequence[int | None]) -> bool:
    """Whether dimensions in blocks have known extents."""
    return all(n is not None for n, g in zip(extents, blocks, strict=True) if g is not None)


__all__ = ["IREE", "QUANT", "SCHEMAS", "AffineNames", "PlannedAffine", "lowered", "quantized_type", "raised"]
