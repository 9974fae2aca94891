"""A fused module computed by numpy, operation by operation: what the compiled one has to equal bit for bit.

Structured operations are run by their bodies, reductions one step after the other in the order of their loops. The
kernels are computed from their definition in kernels/acme.h, with 64-bit integers and no vector instruction.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import linalg

Array = np.ndarray[Any, Any]

_DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f32": np.float32, "f64": np.float64,
}  # fmt: skip


# -- kernels -------------------------------------------------------------------------------------------------------


def requantized(sums: Array, bias: Array, multiplier: Array, shift: Array, zero: Any, low: Any, high: Any) -> Array:
    """i32 sums to i8: multiplied in 64 bits, shifted with rounding half up, clamped."""
    exact = shift.astype(np.int64)
    product = (sums.astype(np.int64) + bias) * multiplier.astype(np.int64)
    return np.clip(((product + (np.int64(1) << (exact - 1))) >> exact) + int(zero), int(low), int(high)).astype(np.int8)


def qmatmul(lhs: Array, rhs: Array, bias: Array, multiplier: Array, shift: Array, *rest: Any) -> Array:
    """acme_qmatmul_s8."""
    zero, low, high, _ = rest
    return requantized(lhs.astype(np.int64) @ rhs.astype(np.int64).T, bias, multiplier, shift, zero, low, high)


def qconv(lhs: Array, rhs: Array, bias: Array, multiplier: Array, shift: Array, *rest: Any) -> Array:
    """acme_qconv_s8."""
    *numbers, out = rest
    lhs_zero, zero, low, high, *window = map(int, numbers)
    (stride_h, stride_w, dilation_h, dilation_w), pads = window[:4], window[4:]
    padded = np.pad(lhs, ((0, 0), pads[:2], pads[2:], (0, 0)), constant_values=lhs_zero).astype(np.int64)
    _, height, width, _ = out.shape
    sums = np.zeros(out.shape, np.int64)
    for i, j in itertools.product(range(rhs.shape[1]), range(rhs.shape[2])):
        rows = slice(i * dilation_h, i * dilation_h + (height - 1) * stride_h + 1, stride_h)
        columns = slice(j * dilation_w, j * dilation_w + (width - 1) * stride_w + 1, stride_w)
        sums += padded[:, rows, columns] @ rhs[:, i, j].astype(np.int64).T
    return requantized(sums, bias, multiplier, shift, zero, low, high)


KERNELS: Mapping[str, Callable[..., Array]] = {"acme_qmatmul_s8": qmatmul, "acme_qconv_s8": qconv}


# -- modules -------------------------------------------------------------------------------------------------------


def run(module: ir.Module, name: str, *arguments: Array) -> Array:
    """The result of function `name`."""
    (function,) = [f for f in module.body.operations if f.operation.attributes["sym_name"].value == name]
    block = function.operation.regions[0].blocks[0]
    known: dict[Any, Any] = dict(zip(block.arguments, arguments, strict=True))
    blobs = _blobs(module)
    for op in block.operations:
        op = op.operation
        operands = [known[v] for v in op.operands]
        if op.name == "func.return":
            return np.asarray(operands[0])
        if op.name == "func.call":
            value = KERNELS[ir.FlatSymbolRefAttr(op.attributes["callee"]).value](*operands)
        elif op.name.startswith("linalg."):
            value = _structured(op, operands, known)
        elif op.name.startswith("tensor."):
            value = _tensor(op, operands, known)
        else:
            value = _scalar(op, operands, blobs)
        known[op.results[0]] = value
    raise AssertionError("no return")


def _blobs(module: ir.Module) -> dict[str, bytes]:
    """Bytes of `dense_resource` constants, which have no accessor: they are printed. Four bytes of alignment go."""
    text = module.operation.get_asm()
    found = re.findall(r'([\w.$-]+): "0x([0-9A-Fa-f]*)"', text[text.rfind("dialect_resources") :])
    return {key: bytes.fromhex(blob)[4:] for key, blob in found}


def _dtype(type_: Any) -> Any:
    return _DTYPES[str(type_.element_type if isinstance(type_, ir.ShapedType) else type_)]


def _structured(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> Array:
    maps = [getattr(m, "value", m) for m in linalg.get_indexing_maps(op)]
    extents: dict[int, int] = {}
    for map_, operand in zip(maps, operands, strict=True):
        for expr, size in zip(map_.results, np.shape(operand), strict=True):
            if isinstance(expr, ir.AffineDimExpr):
                extents[expr.position] = size
    axes = [e.position if isinstance(e, ir.AffineDimExpr) else None for e in maps[-1].results]
    reduction = [d for d in range(maps[0].n_dims) if d not in axes]
    grids = {
        d: np.arange(extents[d]).reshape([-1 if i == j else 1 for j in range(len(axes))])
        for i, d in enumerate(axes)
        if d is not None
    }
    result = np.array(operands[-1])
    block = op.regions[0].blocks[0]
    for step in itertools.product(*(range(extents[d]) for d in reduction)):
        at = {**grids, **dict(zip(reduction, step, strict=True))}
        inputs = [
            operand[tuple(_index(e, at) for e in map_.results)] if np.ndim(operand) else operand
            for map_, operand in zip(maps[:-1], operands[:-1], strict=True)
        ]
        result = np.broadcast_to(_body(block, [*inputs, result], known), result.shape).astype(result.dtype)
    return result


def _index(expr: Any, at: Mapping[int, Any]) -> Any:
    if isinstance(expr, ir.AffineDimExpr):
        return at[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    left, right = _index(expr.lhs, at), _index(expr.rhs, at)
    return left + right if isinstance(expr, ir.AffineAddExpr) else left * right


def _body(block: Any, arguments: Sequence[Any], outer: Mapping[Any, Any]) -> Any:
    known = dict(zip(block.arguments, arguments, strict=True))
    for op in block.operations:
        op = op.operation
        operands = [known[v] if v in known else outer[v] for v in op.operands]
        if op.name == "linalg.yield":
            return operands[0]
        known[op.results[0]] = _scalar(op, operands, {})
    raise AssertionError("no yield")


def _tensor(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> Any:
    name = op.name.removeprefix("tensor.")
    if name == "empty":
        type_ = ir.RankedTensorType(op.results[0].type)
        sizes = iter(operands)
        return np.zeros([int(next(sizes)) if type_.is_dynamic_dim(i) else n for i, n in enumerate(type_.shape)],
                        _dtype(type_))  # fmt: skip
    if name == "cast":
        return operands[0]
    if name == "pad":
        low, high = (list(op.attributes[f"static_{end}"]) for end in ("low", "high"))
        yielded = list(op.regions[0].blocks[0].operations)[-1].operation.operands[0]
        return np.pad(operands[0], list(zip(low, high, strict=True)), constant_values=known[yielded])
    if name == "collapse_shape":
        shape = np.shape(operands[0])
        groups = [[int(i) for i in group] for group in op.attributes["reassociation"]]
        return operands[0].reshape([int(np.prod([shape[i] for i in g], dtype=np.int64)) for g in groups])
    if name == "expand_shape":
        return operands[0].reshape(list(op.attributes["static_output_shape"]))
    raise NotImplementedError(op.name)


_BINARY: Mapping[str, Callable[..., Any]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "maximumf": np.maximum,
    "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin, "addi": np.add, "subi": np.subtract,
    "muli": np.multiply, "shrsi": np.right_shift, "shli": np.left_shift, "maxsi": np.maximum, "minsi": np.minimum,
    "andi": np.bitwise_and, "xori": np.bitwise_xor,
}  # fmt: skip
_CASTS = ("extsi", "sitofp", "trunci", "extf", "truncf", "index_cast")
#: Predicates of cmpf and cmpi by number.
_FLOAT_COMPARISONS = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 9: np.greater,
                      10: np.greater_equal, 11: np.less, 12: np.less_equal}  # fmt: skip
_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def _scalar(op: Any, operands: list[Any], blobs: Mapping[str, bytes]) -> Any:
    name, type_ = op.name.rpartition(".")[2], op.results[0].type
    dtype = _dtype(type_)
    if name == "constant":
        return _constant(op.attributes["value"], type_, dtype, blobs)
    arrays = [np.asarray(o) for o in operands]
    if name in _BINARY:
        with np.errstate(over="ignore"):
            return _BINARY[name](*arrays).astype(dtype)
    if name in _CASTS:
        return arrays[0].astype(dtype)
    if name == "roundeven":
        return np.rint(arrays[0])
    if name == "fptosi":
        return np.trunc(arrays[0]).astype(np.int64).astype(dtype)
    if name == "select":
        return np.where(*arrays)
    if name == "cmpf":
        return _FLOAT_COMPARISONS[op.attributes["predicate"].value](*arrays)
    if name == "cmpi" and op.attributes["predicate"].value < len(_COMPARISONS):
        return _COMPARISONS[op.attributes["predicate"].value](*arrays)
    raise NotImplementedError(op.name)


def _constant(attribute: Any, type_: Any, dtype: Any, blobs: Mapping[str, bytes]) -> Array:
    if isinstance(attribute, ir.DenseElementsAttr):
        return np.array(attribute).astype(dtype)
    text = str(attribute)
    if not text.startswith("dense_resource<"):
        return np.asarray(attribute.value, dtype)
    blob = blobs[text[len("dense_resource<") : text.index(">")]]
    return np.frombuffer(blob, dtype).reshape(ir.RankedTensorType(type_).shape)
