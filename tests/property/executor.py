"""Runs functions of linalg on tensors with numpy, and puts observed integers in place of results on the way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import linalg

from qfuse._mlir import Bindings
from tests.property import kernels

Array = np.ndarray[Any, Any]

_DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f32": np.float32, "f64": np.float64,
}  # fmt: skip


class PoisonError(Exception):
    """A cast, shift or read whose result is not defined."""


def execute(module: Any, arguments: Sequence[Any], observed: Sequence[Array] | None = None) -> tuple[Array, ...]:
    """The results of the only function of a module.

    Args:
        module: holds one function.
        arguments: of it.
        observed: by position of the result: what operations read in place of it.
    """
    functions = [o.operation for o in module.body.operations if o.operation.name == "func.func"]
    (function,) = [f for f in functions if len(f.regions[0].blocks)]
    block = function.regions[0].blocks[0]
    operations = [o.operation for o in block.operations]
    returned = list(operations[-1].operands)
    known: dict[Any, Any] = {a: np.asarray(v, _dtype(a.type)) for a, v in zip(block.arguments, arguments, strict=True)}
    computed: dict[Any, Array] = {}
    for op in operations[:-1]:
        values = _run(op, [known[v] for v in op.operands], known)
        for result, value in zip(op.results, values, strict=True):
            known[result] = value
            for position, other in enumerate(returned if observed is not None else ()):
                if other == result:
                    computed[result] = np.asarray(value)
                    known[result] = observed[position]  # type: ignore[index]
    return tuple(np.asarray(computed.get(v, known[v])) for v in returned)


def _dtype(type_: Any) -> Any:
    if isinstance(type_, ir.ShapedType):
        type_ = type_.element_type
    return _DTYPES[str(type_)]


def _run(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> tuple[Any, ...]:
    if op.name.startswith("linalg."):
        return _structured(op, operands, known)
    if op.name == "tensor.extract":
        return (_extracted(operands[0], operands[1:]),)
    if op.name.startswith("tensor."):
        return (_tensor(op, operands, known),)
    if op.name == "util.optimization_barrier":
        return tuple(operands)
    if op.name == "func.call":
        return (kernels.run(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, operands),)
    return (_scalar(op, operands),)


# -- structured operations -------------------------------------------------------------------------------------------


def _structured(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> tuple[Array, ...]:
    count = len(op.results)
    maps = [m.value for m in (linalg.get_indexing_maps(op) or op.attributes["indexing_maps"])]
    sizes = _extents(maps, operands)
    written = [e.position if isinstance(e, ir.AffineDimExpr) else None for e in maps[-1].results]  # None is 0
    parallel = [d for d in written if d is not None]
    reduction = [d for d in range(len(sizes)) if d not in parallel]
    results = [np.array(o) for o in operands[-count:]]
    grids: dict[int, Any] = {
        d: np.arange(sizes[d]).reshape([-1 if d == other else 1 for other in written]) for d in parallel
    }
    block = op.regions[0].blocks[0]
    shape = tuple(1 if d is None else sizes[d] for d in written)
    readers = [[_reader(e) for e in m.results] for m in maps[:-count]]
    for step in itertools.product(*(range(sizes[d]) for d in reduction)):
        at = {**grids, **dict(zip(reduction, step, strict=True))}
        inputs = [
            operand[tuple(read(at) for read in reads)] if np.ndim(operand) else operand
            for reads, operand in zip(readers, operands[:-count], strict=True)
        ]
        values = _body(block, [*inputs, *results], known, at)
        results = [np.broadcast_to(v, shape).astype(r.dtype) for v, r in zip(values, results, strict=True)]
    return tuple(results)


def _extents(maps: Sequence[Any], operands: Sequence[Any]) -> list[int]:
    found: list[int] = [-1] * maps[0].n_dims
    for map_, operand in zip(maps, operands, strict=True):
        for expr, size in zip(map_.results, np.shape(operand), strict=True):
            if isinstance(expr, ir.AffineDimExpr):
                assert found[expr.position] in (-1, size), "extents disagree"
                found[expr.position] = size
    assert -1 not in found
    return found


def _reader(expr: Any) -> Callable[[Mapping[int, Any]], Any]:
    if isinstance(expr, ir.AffineDimExpr):
        position = expr.position
        return lambda at: at[position]
    if isinstance(expr, ir.AffineConstantExpr):
        value = expr.value
        return lambda _: value
    left, right = _reader(expr.lhs), _reader(expr.rhs)
    kinds: list[tuple[Any, Callable[[Any, Any], Any]]] = [
        (ir.AffineAddExpr, np.add), (ir.AffineMulExpr, np.multiply), (ir.AffineFloorDivExpr, np.floor_divide),
        (ir.AffineModExpr, np.mod),
    ]  # fmt: skip
    operation = next(f for kind, f in kinds if isinstance(expr, kind))
    return lambda at: operation(left(at), right(at))


def _body(block: Any, arguments: Sequence[Any], outer: Mapping[Any, Any], at: Mapping[int, Any]) -> Any:
    known = dict(zip(block.arguments, arguments, strict=True))
    for op in block.operations:
        op = op.operation
        operands = [known[v] if v in known else outer[v] for v in op.operands]
        if op.name == "linalg.yield":
            return operands
        if op.name == "linalg.index":
            known[op.results[0]] = np.asarray(at[op.attributes["dim"].value])
        elif op.name == "tensor.extract":
            known[op.results[0]] = _extracted(operands[0], operands[1:])
        else:
            known[op.results[0]] = _scalar(op, operands)
    raise AssertionError("no yield")


def _extracted(source: Array, places: Sequence[Any]) -> Array:
    for place, size in zip(places, source.shape, strict=True):
        if (np.asarray(place) < 0).any() or (np.asarray(place) >= size).any():
            raise PoisonError(f"reads at {np.min(place)} .. {np.max(place)} of {size} elements")
    return np.asarray(source[tuple(np.asarray(p) for p in places)])


# -- tensor operations -----------------------------------------------------------------------------------------------


def _tensor(op: Any, operands: list[Any], known: Mapping[Any, Any]) -> Any:
    name = op.name.removeprefix("tensor.")
    type_ = ir.RankedTensorType(op.results[0].type) if name != "dim" else None
    if name == "empty":
        return np.zeros(type_.shape, _dtype(type_))  # type: ignore[union-attr]
    if name == "cast":
        return operands[0]
    if name == "concat":
        return np.concatenate(operands, op.attributes["dim"].value)
    if name == "pad":
        low, high = (list(op.attributes[f"static_{end}"]) for end in ("low", "high"))
        inside = [o.operation for o in op.regions[0].blocks[0].operations]
        own = {o.results[0]: _scalar(o, []) for o in inside[:-1]}
        yielded = inside[-1].operands[0]
        value = own[yielded] if yielded in own else known[yielded]
        return np.pad(operands[0], list(zip(low, high, strict=True)), constant_values=value)
    if name == "extract_slice":
        parts = [list(op.attributes[f"static_{kind}"]) for kind in ("offsets", "sizes", "strides")]
        cut = operands[0][tuple(slice(o, o + (n - 1) * t + 1, t) for o, n, t in zip(*parts, strict=True))]
        return cut.reshape(type_.shape)  # type: ignore[union-attr]
    if name == "insert_slice":
        parts = [list(op.attributes[f"static_{kind}"]) for kind in ("offsets", "sizes", "strides")]
        written = np.array(operands[1])
        place = tuple(slice(o, o + (n - 1) * t + 1, t) for o, n, t in zip(*parts, strict=True))
        written[place] = operands[0].reshape(parts[1])
        return written
    if name in ("collapse_shape", "expand_shape"):
        assert math.prod(type_.shape) == operands[0].size  # type: ignore[union-attr]
        return operands[0].reshape(type_.shape)  # type: ignore[union-attr]
    raise NotImplementedError(op.name)


# -- scalar operations, on arrays of scalars ---------------------------------------------------------------------------


def _divided(a: Array, b: Array) -> Array:
    if not b.all():
        raise PoisonError("division by zero")
    return np.trunc(a / b)  # of integers that f64 holds


_SIMPLE: dict[str, Callable[..., Any]] = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.negf": np.negative, "math.absf": np.abs, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "math.roundeven": np.rint, "arith.andi": np.bitwise_and,
    "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.xori": np.bitwise_xor,
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.select": np.where, "arith.ori": np.bitwise_or,
    "math.absi": np.abs, "math.floor": np.floor, "arith.divsi": _divided,
    "math.exp": lambda x: np.exp(x.astype(np.float64)), "math.erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip

_FLOAT_PREDICATES: dict[int, tuple[Callable[..., Any], bool]] = {
    1: (np.equal, False), 2: (np.greater, False), 3: (np.greater_equal, False), 4: (np.less, False),
    5: (np.less_equal, False), 6: (np.not_equal, False), 8: (np.equal, True), 9: (np.greater, True),
    10: (np.greater_equal, True), 11: (np.less, True), 12: (np.less_equal, True), 13: (np.not_equal, True),
}  # fmt: skip
_INTEGER_PREDICATES = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def _scalar(op: Any, operands: list[Any]) -> Any:
    type_ = op.results[0].type
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        if isinstance(type_, ir.ShapedType):
            return Bindings.of(op).dense(attribute).astype(_dtype(type_))
        return np.asarray(attribute.value, _dtype(type_))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _computed(op, [np.asarray(o) for o in operands], _dtype(type_))


def _computed(op: Any, arrays: list[Array], dtype: Any) -> Any:
    name = op.name.partition(".")[2]
    if op.name in _SIMPLE:
        return _SIMPLE[op.name](*arrays).astype(dtype)
    if name in ("maxui", "minui"):
        unsigned = dtype().dtype.name.replace("int", "uint")
        return (np.maximum if name == "maxui" else np.minimum)(*(a.view(unsigned) for a in arrays)).view(dtype)
    if name in ("extui", "uitofp", "index_castui"):
        return arrays[0].view(arrays[0].dtype.name.replace("int", "uint")).astype(dtype)
    if name in ("extsi", "sitofp", "trunci", "extf", "truncf", "index_cast"):
        return arrays[0].astype(dtype)
    if name in ("fptosi", "fptoui"):
        return _to_integer(arrays[0], dtype, name == "fptosi")
    if name == "bitcast":
        return np.array(arrays[0]).view(dtype)
    if name in ("shli", "shrsi", "shrui"):
        return _shifted(name, *arrays).astype(dtype)
    predicate = op.attributes["predicate"].value
    if name == "cmpi":
        return _INTEGER_PREDICATES[predicate](*arrays)
    if name == "cmpf":
        compare, if_unordered = _FLOAT_PREDICATES[predicate]
        return np.where(np.isnan(arrays[0]) | np.isnan(arrays[1]), if_unordered, compare(*arrays))
    raise NotImplementedError(op.name)


def _shifted(name: str, x: Array, by: Array) -> Array:
    if ((by < 0) | (by >= 8 * x.dtype.itemsize)).any():
        raise PoisonError(f"shift by {by.min()} .. {by.max()}")
    if name == "shli":
        return np.left_shift(x, by)
    return np.right_shift(x if name == "shrsi" else x.view(x.dtype.name.replace("int", "uint")), by)


def _to_integer(array: Array, dtype: Any, signed: bool) -> Array:
    limits = np.iinfo(dtype if signed else np.dtype(dtype).name.replace("int", "uint"))
    whole = np.trunc(array)
    if not ((whole >= limits.min) & (whole <= limits.max)).all():
        raise PoisonError(f"{array.min()} .. {array.max()} does not fit {'s' if signed else 'u'}{limits.bits}")
    return whole.astype(np.int64).astype(dtype)
