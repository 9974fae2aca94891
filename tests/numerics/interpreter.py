"""Interprets functions of linalg on tensors with numpy: a second opinion beside IREE, without compiling.

Every structured operation is run by its body, in the order of its loops: parallel loops at once, reduction loops one
step after the other. Poison is an error: a float that does not fit the integer it is cast to raises.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import linalg

Array = np.ndarray[Any, Any]

_DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


class PoisonError(Exception):
    """A cast whose result is not defined."""


def interpret(module: ir.Module, name: str, arguments: Sequence[Any]) -> tuple[Array, ...]:
    """The results of function `name`."""
    function = next(
        o
        for o in module.body.operations
        if o.operation.name == "func.func" and o.operation.attributes["sym_name"].value == name
    )
    block = function.operation.regions[0].blocks[0]
    known: dict[Any, Any] = {}
    for argument, value in zip(block.arguments, arguments, strict=True):
        known[argument] = np.asarray(value, _dtype(argument.type))
    for op in block.operations:
        op = op.operation
        operands = [known[v] for v in op.operands]
        if op.name == "func.return":
            return tuple(np.asarray(v) for v in operands)
        for result, value in zip(op.results, _run(op, operands, known), strict=True):
            known[result] = value
    raise AssertionError("no return")


def _dtype(type_: Any) -> Any:
    if isinstance(type_, ir.ShapedType):
        type_ = type_.element_type
    return _DTYPES[str(type_)]


def _run(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> tuple[Any, ...]:
    if op.name.startswith("linalg."):
        return (_structured(op, operands, known),)
    if op.name.startswith("tensor."):
        return (_tensor(op, operands, known),)
    if op.name == "util.optimization_barrier":
        return tuple(operands)
    return (_scalar(op, operands),)


# -- structured operations -------------------------------------------------------------------------------------------


def _structured(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> Array:
    maps = [m.value for m in linalg.get_indexing_maps(op)] if op.name != "linalg.generic" else [
        m.value for m in op.attributes["indexing_maps"]
    ]  # fmt: skip
    rank = maps[0].n_dims
    extents: list[int | None] = [None] * rank
    for map_, operand in zip(maps, operands, strict=True):
        for expr, size in zip(map_.results, np.shape(operand), strict=True):
            if isinstance(expr, ir.AffineDimExpr):
                assert extents[expr.position] in (None, size), "extents disagree"
                extents[expr.position] = size
    assert None not in extents
    sizes = [n or 0 for n in extents]
    out_map = maps[-1]
    parallel = [ir.AffineDimExpr(e).position for e in out_map.results]
    reduction = [d for d in range(rank) if d not in parallel]
    result = np.array(operands[-1])
    grids: dict[int, Any] = {
        d: np.arange(sizes[d]).reshape([-1 if i == j else 1 for j in range(len(parallel))])
        for i, d in enumerate(parallel)
    }
    block = op.regions[0].blocks[0]
    shape = tuple(sizes[d] for d in parallel)
    for step in itertools.product(*(range(sizes[d]) for d in reduction)):
        at = {**grids, **dict(zip(reduction, step, strict=True))}
        inputs = [
            operand[tuple(_index(e, at) for e in map_.results)] if np.ndim(operand) else operand
            for map_, operand in zip(maps[:-1], operands[:-1], strict=True)
        ]
        values = _body(block, [*inputs, result], known, at)
        result = np.broadcast_to(values, shape).astype(result.dtype)
    return result


def _index(expr: Any, at: Mapping[int, Any]) -> Any:
    if isinstance(expr, ir.AffineDimExpr):
        return at[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    left, right = _index(expr.lhs, at), _index(expr.rhs, at)
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right
    if isinstance(expr, ir.AffineFloorDivExpr):
        return left // right
    assert isinstance(expr, ir.AffineModExpr)
    return left % right


def _body(block: Any, arguments: Sequence[Any], outer: Mapping[Any, Any], at: Mapping[int, Any]) -> Any:
    known = dict(zip(block.arguments, arguments, strict=True))
    for op in block.operations:
        op = op.operation
        operands = [known[v] if v in known else outer[v] for v in op.operands]
        if op.name == "linalg.yield":
            return operands[0]
        if op.name == "linalg.index":
            known[op.results[0]] = np.asarray(at[op.attributes["dim"].value])
            continue
        known[op.results[0]] = _scalar(op, operands)
    raise AssertionError("no yield")


# -- tensor operations -----------------------------------------------------------------------------------------------


def _tensor(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> Any:
    name = op.name.removeprefix("tensor.")
    source = operands[0] if operands else None
    if name == "empty":
        sizes = iter(operands)
        type_ = ir.RankedTensorType(op.results[0].type)
        shape = [int(next(sizes)) if type_.is_dynamic_dim(i) else n for i, n in enumerate(type_.shape)]
        return np.zeros(shape, _dtype(type_))
    if name == "dim":
        return np.asarray(np.shape(source)[int(operands[1])], np.int64)
    if name == "cast":
        return source
    if name == "extract":
        return source[tuple(int(i) for i in operands[1:])]
    if name == "concat":
        return np.concatenate(operands, op.attributes["dim"].value)
    if name == "pad":
        low, high = (list(op.attributes[f"static_{end}"]) for end in ("low", "high"))
        yielded = list(op.regions[0].blocks[0].operations)[-1].operation.operands[0]
        return np.pad(source, list(zip(low, high, strict=True)), constant_values=known[yielded])
    if name == "extract_slice":
        return _slice(op, operands)
    groups = [[int(i) for i in group] for group in op.attributes["reassociation"]]
    if name == "collapse_shape":
        shape = np.shape(source)
        return source.reshape([int(np.prod([shape[i] for i in g], dtype=np.int64)) for g in groups])
    assert name == "expand_shape", name
    sizes = iter(operands[1:])
    static = list(op.attributes["static_output_shape"])
    return source.reshape([int(next(sizes)) if n < 0 else n for n in static])


def _slice(op: Any, operands: list[Any]) -> Array:
    rest = iter(operands[1:])
    parts = []
    for kind in ("offsets", "sizes", "strides"):
        parts.append([int(next(rest)) if n == -(2**63) else n for n in op.attributes[f"static_{kind}"]])
    cut = operands[0][tuple(slice(o, o + (n - 1) * t + 1, t) for o, n, t in zip(*parts, strict=True))]
    type_ = ir.RankedTensorType(op.results[0].type)
    return cut if cut.ndim == type_.rank else cut.reshape([n for n in cut.shape if n != 1])


# -- scalar operations, on arrays of scalars ---------------------------------------------------------------------------


_FLOAT: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.negf": np.negative, "math.absf": np.abs, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "math.roundeven": np.rint,
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.xori": np.bitwise_xor,
}  # fmt: skip

# Predicates of cmpf by number: ordered ones, then unordered; inputs are never NaN here.
_COMPARE = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 6: np.not_equal,
            8: np.equal, 9: np.greater,
            10: np.greater_equal, 11: np.less, 12: np.less_equal, 13: np.not_equal}  # fmt: skip


def _scalar(op: Any, operands: list[Any]) -> Any:
    type_ = op.results[0].type
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            return np.array(attribute).astype(_dtype(type_))
        return np.asarray(attribute.value, _dtype(type_))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _computed(op, operands, _dtype(type_))


def _computed(op: Any, operands: list[Any], dtype: Any) -> Any:
    arrays = [np.asarray(o) for o in operands]
    if op.name in _FLOAT:
        return _FLOAT[op.name](*arrays).astype(dtype)
    if op.name in ("arith.extui", "arith.uitofp"):
        return arrays[0].view(arrays[0].dtype.name.replace("int", "uint")).astype(dtype)
    if op.name in ("arith.extsi", "arith.sitofp", "arith.trunci", "arith.extf", "arith.truncf", "arith.index_cast"):
        return arrays[0].astype(dtype)
    if op.name in ("arith.fptosi", "arith.fptoui"):
        return _to_integer(arrays[0], dtype, op.name == "arith.fptosi")
    if op.name == "arith.bitcast":
        return np.array(arrays[0]).view(dtype)
    if op.name == "arith.select":
        return np.where(arrays[0], arrays[1], arrays[2])
    if op.name == "arith.cmpf":
        return _COMPARE[op.attributes["predicate"].value](arrays[0], arrays[1])
    raise NotImplementedError(op.name)


def _to_integer(array: Array, dtype: Any, signed: bool) -> Array:
    limits = np.iinfo(dtype if signed else np.dtype(dtype).name.replace("int", "uint"))
    whole = np.trunc(array)
    if not ((whole >= limits.min) & (whole <= limits.max)).all():
        raise PoisonError(f"{array.min()} .. {array.max()} does not fit {'s' if signed else 'u'}{limits.bits}")
    return whole.astype(np.int64).astype(dtype)
