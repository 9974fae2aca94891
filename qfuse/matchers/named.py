"""Named quantize and dequantize operations: `iree_linalg_ext.*_affine` and `quant.qcast / dcast`.

`iree_linalg_ext` is registered in IREE's bindings only; elsewhere it arrives in generic form.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Index, constant, dim, floordiv, identity
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.evaluate import convert
from qfuse.matchers.nodes import Dequantize, Node, Quantize
from qfuse.matchers.params import EXPRESSED_TYPES, check_scale, check_zero_point
from qfuse.matchers.roles import ContradictionError
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import ZERO, Param, QuantParams, StorageType

_QUANTIZED = re.compile(
    r"!quant\.uniform<(?P<sign>[iu])(?P<bits>\d+)(?:<(?P<min>-?\d+):(?P<max>-?\d+)>)?:(?P<expressed>\w+)"
    r"(?::(?P<axis>\d+|\{[^}]*\}))?,\s*(?P<params>.*)>$"
)


def match_named(bindings: Bindings, constants: ConstantReader, op: Operation) -> Node | None:
    """A named quantize or dequantize as a node, or None.

    Raises:
        ContradictionError: scale or zero point make no sense.
    """
    if op.name == "quant.dcast":
        return _dcast(bindings, op)
    if op.name == "quant.qcast":
        return _qcast(bindings, op)
    if op.name.startswith("iree_linalg_ext.") and op.name.endswith("quantize_affine"):
        return _affine(bindings, constants, op)
    if MARK in op.attributes:
        return _marked(bindings, op)
    return None


#: The attribute that says of an operation of any name that it is a `quantize` or a `dequantize`.
MARK = "qfuse.affine"


def is_named_affine(op: Operation) -> bool:
    """Whether an operation is a quantize or dequantize by its name or mark, not by its arithmetic."""
    name = op.name
    return (
        name in ("quant.qcast", "quant.dcast")
        or (name.startswith("iree_linalg_ext.") and name.endswith("quantize_affine"))
        or MARK in op.attributes
    )


# -- any name --------------------------------------------------------------------------------------------------


def _marked(bindings: Bindings, op: Operation) -> Node | None:
    """An operation that carries its parameters as attributes; None when it lacks one."""
    attributes = op.attributes
    needed = ("storage", "quant_min", "quant_max", "scales", "zero_points", "block_sizes")
    if len(op.operands) != 1 or len(op.results) != 1 or any(name not in attributes for name in needed):
        return None
    quantize = getattr(attributes[MARK], "value", None) == "quantize"
    source, result = op.operands[0], op.results[0]
    storage = _STORAGE.fullmatch(str(getattr(attributes["storage"], "value", "")))
    scales, zeros = (bindings.dense(attributes[name]) for name in ("scales", "zero_points"))
    blocks = bindings.integers(attributes["block_sizes"])
    extents = bindings.extents(result.type)
    if storage is None or scales is None or zeros is None or len(blocks) != len(extents):
        return None
    if scales.shape != zeros.shape or scales.ndim != len(blocks) or scales.dtype != np.float32:
        return None
    for extent, block, count in zip(extents, blocks, scales.shape, strict=True):
        if (not block and count != 1) or (block and (extent is None or extent != block * count)):
            raise ContradictionError("the scales are not one for each block")
    expressed = bindings.element_name((source if quantize else result).type)
    kept = StorageType(int(storage["bits"]), storage["sign"] == "s")
    if bindings.element_name((result if quantize else source).type) != kept.mlir or expressed not in EXPRESSED_TYPES:
        return None
    index: Index = tuple(floordiv(dim(i), g, extents) if g else constant(0) for i, g in enumerate(blocks))
    scale = Param(index, scales).simplified(extents)
    zero = Param(index, zeros.astype(np.int64), element="i64").simplified(extents) if zeros.any() else ZERO
    check_scale(scale)
    check_zero_point(zero, kept.min, kept.max, kept.bits)
    low, high = (int(attributes[name].value) for name in ("quant_min", "quant_max"))
    if not kept.min <= low <= high <= kept.max:
        raise ContradictionError(f"the clamp [{low}, {high}] does not fit storage {kept}")
    params = QuantParams(kept, low, high, scale, zero, expressed, extents)
    if not quantize:
        return Dequantize(op, result, source, identity(len(extents)), params)
    element = Scalar("elem", expressed, payload=(source, identity(len(extents))))
    return Quantize(op, result, element, params, False, False)


_STORAGE = re.compile(r"(?P<sign>[su])(?P<bits>[1-9][0-9]?)")


# -- iree_linalg_ext -------------------------------------------------------------------------------------------


def _affine(bindings: Bindings, constants: ConstantReader, op: Operation) -> Node | None:
    operands = list(op.operands)
    attributes = {str(getattr(a, "name", a)): op.attributes[str(getattr(a, "name", a))] for a in op.attributes}
    maps = _affine_maps(bindings, attributes.get("indexing_maps"))
    if len(operands) not in (3, 4) or len(op.results) != 1 or maps is None or len(maps) != len(operands):
        return None
    result = op.results[0]
    extents = bindings.extents(result.type)
    rank = len(extents)
    if maps[0] != identity(rank) or maps[-1] != identity(rank):
        return None
    if any(_rank(bindings, v) != len(index) for v, index in zip(operands, maps, strict=True)):
        return None
    scale = _operand(bindings, constants, operands[1], maps[1], extents)
    zero_signed = "zp_unsigned" not in attributes
    zero = ZERO if len(operands) == 3 else _operand(bindings, constants, operands[2], maps[2], extents, zero_signed)
    quantize = op.name.endswith(".quantize_affine")
    stored = result if quantize else operands[0]
    expressed = bindings.element_name((operands[0] if quantize else result).type)
    width = bindings.element_name(stored.type)
    if not width[1:].isdigit() or width[0] != "i" or not 2 <= int(width[1:]) <= 32:
        return None
    if expressed not in EXPRESSED_TYPES:
        return None
    if not scale.element.startswith(("f", "bf")) or not _is_whole(zero):
        raise ContradictionError("the scale is not a float or the zero point is not an integer")
    signed = ("storage_unsigned" if quantize else "input_unsigned") not in attributes
    storage = StorageType(int(width[1:]), signed)
    check_scale(scale)
    check_zero_point(zero, storage.min, storage.max, storage.bits)
    if not quantize:
        params = QuantParams(storage, storage.min, storage.max, scale, zero, expressed, extents)
        return Dequantize(op, result, operands[0], identity(rank), params)
    low = getattr(attributes.get("quant_min"), "value", storage.min)
    high = getattr(attributes.get("quant_max"), "value", storage.max)
    if not isinstance(low, int) or not isinstance(high, int) or not storage.min <= low <= high <= storage.max:
        raise ContradictionError(f"the clamp [{low}, {high}] does not fit storage {storage}")
    params = QuantParams(storage, low, high, scale, zero, expressed, extents)
    source = Scalar("elem", expressed, payload=(operands[0], identity(rank)))
    return Quantize(op, result, source, params, False, False)


def _affine_maps(bindings: Bindings, attribute: Any) -> list[Index] | None:
    try:
        return [bindings.index_map(m.value) for m in attribute]
    except (TypeError, ValueError, AttributeError):
        return None  # not an array of affine maps that qfuse understands


def _rank(bindings: Bindings, value: Value) -> int:
    info = bindings.tensor_info(value.type)
    return 0 if info is None else len(info[0])


def _is_whole(zero: Param) -> bool:
    if zero.data is not None:
        return bool(np.all(np.rint(zero.data) == zero.data))
    return zero.element.startswith("i")


def _operand(
    bindings: Bindings, constants: ConstantReader, value: Value, index: Index, extents: Extents, signed: bool = True
) -> Param:
    number = constants.scalar(value)
    if number is not None:
        data = np.asarray(number[0])
        return Param((), data if signed else _unsigned(data, number[1]), element=number[1])
    if not bindings.is_ranked_tensor(value.type):
        return Param((), value=value, element=bindings.type_name(value.type), signed=signed)
    element = bindings.element_name(value.type)
    read = constants.read(value)
    if read is None:
        return Param(index, None, value, element, signed)
    return Param(index, read if signed else _unsigned(read, element), element=element).simplified(extents)


def _unsigned(data: np.ndarray[Any, Any], element: str) -> np.ndarray[Any, Any]:
    """Signed integers of printed type `element` read as unsigned."""
    found = convert(data, "extui", element, "i64") if element[1:].isdigit() else None
    return data if found is None else found


# -- quant -----------------------------------------------------------------------------------------------------


def _qcast(bindings: Bindings, op: Operation) -> Node | None:
    """A quantize whose result is of a quantized type: its integers are `quant.scast` of that result.

    The dialect leaves the rounding open; it is half to even here, as everywhere.
    """
    source, result = op.operands[0], op.results[0]
    if not bindings.is_ranked_tensor(source.type):
        return None
    extents = bindings.extents(result.type)
    params = parse_quantized(bindings.element_name(result.type), extents)
    if params is None:
        return None
    element = Scalar("elem", params.expressed, payload=(source, identity(len(extents))))
    return Quantize(op, result, element, params, reciprocal=False, zero_point_first=False)


def _dcast(bindings: Bindings, op: Operation) -> Node | None:
    source = op.operands[0]
    if not bindings.is_ranked_tensor(source.type) or not bindings.is_ranked_tensor(op.results[0].type):
        return None
    extents = bindings.extents(source.type)
    params = parse_quantized(bindings.element_name(source.type), extents)
    if params is None:
        return None
    producer = getattr(source.owner, "operation", None)
    rank = len(extents)
    if producer is not None and producer.name == "quant.scast":
        return Dequantize(op, op.results[0], producer.operands[0], identity(rank), params)
    shape = "".join("?x" if n is None else f"{n}x" for n in extents)
    return Dequantize(op, op.results[0], source, identity(rank), params, f"tensor<{shape}{params.storage.mlir}>")


def parse_quantized(text: str, extents: tuple[int | None, ...]) -> QuantParams | None:
    """QuantParams of a printed `!quant.uniform` type for data of shape `extents`, or None.

    Raises:
        ContradictionError: scale or zero point make no sense.
    """
    found = _QUANTIZED.match(text)
    if found is None or not 2 <= int(found["bits"]) <= 32:
        return None
    storage = StorageType(int(found["bits"]), found["sign"] == "i")
    low = storage.min if found["min"] is None else int(found["min"])
    high = storage.max if found["max"] is None else int(found["max"])
    numbers = _numbers(found["params"])
    scales = np.array([float(s) for s, _ in numbers], np.float64)
    zeros = np.array([int(z or 0) for _, z in numbers], np.int64)
    axis = found["axis"]
    index: Index = ()
    shape: tuple[int, ...] = ()
    if axis is not None and axis.isdigit():
        index, shape = (dim(int(axis)),), (len(numbers),)
    elif axis is not None:
        blocks = {int(a): int(b) for a, b in (pair.split(":") for pair in axis.strip("{}").split(","))}
        if any(n is None for n in extents):
            return None
        index = tuple(floordiv(dim(i), blocks.get(i, n or 1), extents) for i, n in enumerate(extents))
        shape = tuple((n or 1) // blocks.get(i, n or 1) for i, n in enumerate(extents))
    if int(np.prod(shape)) != len(numbers):
        raise ContradictionError(f"the quantized type has {len(numbers)} scales for {int(np.prod(shape))} blocks")
    scale = Param(index, scales.astype(np.float32).reshape(shape)).simplified(extents)
    zero = Param(index, zeros.reshape(shape), element="i64").simplified(extents) if zeros.any() else ZERO
    check_scale(scale)
    check_zero_point(zero, storage.min, storage.max, storage.bits)
    return QuantParams(storage, low, high, scale, zero, found["expressed"], extents)


def _numbers(text: str) -> list[tuple[str, str | None]]:
    pairs: list[tuple[str, str | None]] = []
    for token in re.sub(r"[{}\s]", " ", text).replace(",", " ").split():
        scale, _, zero = token.partition(":")
        pairs.append((scale, zero or None))
    return pairs


def quantized_type_of(bindings: Bindings, value: Value) -> Any:
    """The printed element type of a tensor when it is a quantized type, else None."""
    if not bindings.is_ranked_tensor(value.type):
        return None
    name = bindings.element_name(value.type)
    return name if name.startswith("!quant.") else None
