"""What one element of a tensor is computed from: scalar expressions over the bodies of elementwise operations.

A quantize may be written as one `linalg.generic` or as seven, with constants inside, captured or as operands. Read as
an expression over the elements of its input all these are the same. `ScalarReader.of(value)` gives the expression of
`value[d0, d1, ...]`; its leaves are elements of other tensors, and `expand` steps through the operation that produced
such a leaf, composing indices on the way (also through transposes and reshapes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import (
    Extents,
    Index,
    Linear,
    as_dim,
    compose,
    constant,
    dim,
    identity,
    permutation_of,
)
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.layout import source_index

#: Names of arith and math operations, without their dialect, that carry the same meaning under another name.
_CANONICAL = {
    "maximumf": "max", "maxnumf": "max", "minimumf": "min", "minnumf": "min",
    "addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "negf": "neg", "roundeven": "round",
}  # fmt: skip

_GREATER = {2, 3, 9, 10}  # arith.cmpf predicates ogt, oge, ugt, uge
_LESS = {4, 5, 11, 12}  # olt, ole, ult, ule
_PRODUCTS = {"mulf": np.multiply, "divf": np.divide, "addf": np.add, "subf": np.subtract}
_NUMPY = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.float32,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "i4": np.int8,
}  # fmt: skip


class Scalar:
    """A node of an expression.

    Attributes:
        op: `const` (payload: number), `elem` (payload: (tensor value, index)), `ssa` (payload: scalar value),
            `init` (payload: result number; the output's old value), `index` (payload: a `Linear`), or an operation's name without dialect.
        type: printed type.
        args: operands.
        payload: see `op`; the predicate for comparisons.
    """

    __slots__ = ("args", "op", "payload", "type")

    def __init__(self, op: str, type_: str, args: tuple[Scalar, ...] = (), payload: Any = None) -> None:
        """A node; see the class for its fields."""
        self.op = op
        self.type = type_
        self.args = args
        self.payload = payload

    def __repr__(self) -> str:
        if self.op == "const":
            return str(self.payload)
        if self.op == "elem":
            return f"elem{self.payload[1]}"
        return f"{self.op}({', '.join(map(repr, self.args))})"


class LinalgView:
    """A structured operation seen uniformly, named or generic: inputs, inits, maps, loops, body."""

    __slots__ = ("block", "extents", "inits", "inputs", "maps", "op", "parallel", "reduction")

    def __init__(self, bindings: Bindings, op: Operation, maps: Sequence[Any], parallel_only: bool) -> None:
        """See `ScalarReader.view`."""
        results = len(op.results)
        operands = list(op.operands)
        self.op = op
        self.inputs = operands[: len(operands) - results]
        self.inits = operands[len(operands) - results :]
        self.maps: list[Index] = [bindings.index_map(m) for m in maps]
        self.block = op.regions[0].blocks[0]
        rank = maps[0].n_dims if maps else 0
        self.extents = _loop_extents(bindings, operands, self.maps, rank)
        in_results: set[int] = set()
        for index in self.maps[len(self.inputs) :]:
            in_results |= {p for p in map(as_dim, index) if p is not None}
        self.reduction = () if parallel_only else tuple(d for d in range(rank) if d not in in_results)
        self.parallel = tuple(d for d in range(rank) if d not in self.reduction)


def _loop_extents(bindings: Bindings, operands: Sequence[Value], maps: Sequence[Index], rank: int) -> Extents:
    found: list[int | None] = [None] * rank
    for value, index in zip(operands, maps, strict=False):
        type_ = value.type
        if not index or not bindings.is_ranked_tensor(type_):
            continue
        for expr, extent in zip(index, bindings.extents(type_), strict=True):
            position = as_dim(expr)
            if position is not None and extent is not None:
                found[position] = extent
    return tuple(found)


class ScalarReader:
    """Builds and expands scalar expressions for one module; results are kept per value."""

    def __init__(self, bindings: Bindings, constants: ConstantReader) -> None:
        """A reader that shares `constants` with the other matchers."""
        self.bindings = bindings
        self.constants = constants
        self._views: dict[Operation, LinalgView | None] = {}
        self._templates: dict[Value, Scalar | None] = {}
        self._parallel_attributes: dict[Any, bool] = {}
        self._outer: dict[Value, Scalar] = {}

    # -- structured operations ---------------------------------------------------------------------------------

    def view(self, op: Operation) -> LinalgView | None:
        """`op` as a structured operation on ranked tensors, or None."""
        if op in self._views:
            return self._views[op]
        view = self._views[op] = self._view(op)
        return view

    def _view(self, op: Operation) -> LinalgView | None:
        if not op.name.startswith("linalg.") or len(op.regions) != 1 or not len(op.results):
            return None
        maps = self.bindings.indexing_maps(op)
        if not maps or len(op.regions[0].blocks) != 1:
            return None
        if any(not self.bindings.is_ranked_tensor(r.type) for r in op.results):
            return None
        parallel_only = False
        if op.name == "linalg.generic":
            iterators = op.attributes["iterator_types"]
            if iterators not in self._parallel_attributes:
                self._parallel_attributes[iterators] = "reduction" not in str(iterators)
            parallel_only = self._parallel_attributes[iterators]
        try:
            return LinalgView(self.bindings, op, maps, parallel_only)
        except ValueError:  # an affine expression outside the supported algebra
            return None

    # -- expressions -------------------------------------------------------------------------------------------

    def of(self, value: Value) -> Scalar | None:
        """The expression of one element of `value` over its own indices, or None.

        Only for results of elementwise operations (all loops parallel, each result element written once).
        """
        if value in self._templates:
            return self._templates[value]
        template = self._templates[value] = self._template(value)
        return template

    def _template(self, value: Value) -> Scalar | None:
        owner = getattr(value.owner, "operation", None)
        if owner is None:
            return None
        view = self.view(owner)
        if view is None or view.reduction:
            return None
        number = value.result_number
        written = permutation_of(view.maps[len(view.inputs) + number], len(view.parallel))
        if written is None or len(written) != len(view.parallel):
            return None
        yielded = self.body(view)
        if yielded is None:
            return None
        result = yielded[number]
        if written == tuple(range(len(written))):
            return result
        inverse: list[Linear] = [constant(0)] * len(written)
        for position, loop in enumerate(written):
            inverse[loop] = dim(position)
        return substitute_index(result, tuple(inverse), self.bindings.extents(value.type))

    def body(self, view: LinalgView) -> list[Scalar] | None:
        """What the body yields, one expression a result, over the loop indices."""
        known: dict[Value, Scalar] = {}
        arguments = list(view.block.arguments)
        count = len(view.inputs)
        operands = [*view.inputs, *view.inits]
        if len(arguments) != len(operands):
            return None
        for position, (argument, operand) in enumerate(zip(arguments, operands, strict=True)):
            type_ = self.bindings.type_name(argument.type)
            if position >= count:
                known[argument] = Scalar("init", type_, payload=position - count)
            elif self.bindings.is_ranked_tensor(operand.type):
                known[argument] = Scalar("elem", type_, payload=(operand, view.maps[position]))
            else:
                known[argument] = self.outer(operand)
        for op in view.block.operations:
            op = op.operation
            name = op.name
            if name == "linalg.yield":
                return [self._lookup(known, v) for v in op.operands]
            if name == "cf.assert":
                continue
            args = tuple(self._lookup(known, v) for v in op.operands)
            if len(op.results) != 1:
                return None
            result = op.results[0]
            known[result] = self._apply(op, name, self.bindings.type_name(result.type), args)
        return None

    def _lookup(self, known: dict[Value, Scalar], value: Value) -> Scalar:
        found = known.get(value)
        return self.outer(value) if found is None else found

    def outer(self, value: Value) -> Scalar:
        """A scalar defined outside a body: a constant, an element of a tensor, a cast of these, or opaque."""
        found = self._outer.get(value)
        if found is None:
            found = self._outer[value] = self._read_outer(value)
        return found

    def _read_outer(self, value: Value) -> Scalar:
        type_ = self.bindings.type_name(value.type)
        number = self.constants.scalar(value)
        if number is not None:
            return Scalar("const", type_, payload=_typed(number[0], type_))
        op = getattr(value.owner, "operation", None)
        if op is None:
            return Scalar("ssa", type_, payload=value)
        if op.name == "tensor.extract":
            positions = [self.constants.scalar(v) for v in list(op.operands)[1:]]
            tensor = op.operands[0]
            if all(p is not None for p in positions) and self.bindings.is_ranked_tensor(tensor.type):
                index = tuple(constant(p[0]) for p in positions if p is not None)
                if self.constants.read(tensor) is not None:
                    return Scalar("elem", type_, payload=(tensor, index))
        return Scalar("ssa", type_, payload=value)

    def _apply(self, op: Operation, full: str, type_: str, args: tuple[Scalar, ...]) -> Scalar:
        dialect, _, name = full.partition(".")
        if full == "linalg.index":
            return Scalar("index", type_, payload=dim(op.attributes["dim"].value))
        if full == "arith.constant":
            number = self.constants.scalar(op.results[0])
            return (
                Scalar("opaque", type_, payload=full)
                if number is None
                else Scalar("const", type_, payload=_typed(number[0], type_))
            )
        if dialect not in ("arith", "math"):
            return Scalar("opaque", type_, args, payload=full)
        if name in ("cmpf", "cmpi"):
            return Scalar(name, type_, args, payload=op.attributes["predicate"].value)
        if name == "select":
            clamped = _as_clamp(args)
            if clamped is not None:
                return Scalar(clamped[0], type_, clamped[1])
        return _fold(Scalar(_CANONICAL.get(name, name), type_, args))

    def expand(self, leaf: Scalar, extents: Extents) -> Scalar | None:
        """Steps through the operation that produced an `elem` leaf; `extents` are those of the leaf's own dims.

        Layout operations with one source give another `elem`; elementwise operations their expression. None when
        the leaf is an argument, a constant or anything else.
        """
        if leaf.op != "elem":
            return None
        value, index = leaf.payload
        owner = getattr(value.owner, "operation", None)
        if owner is None or owner.name == "arith.constant":
            return None
        moved = source_index(self.bindings, owner)
        if moved is not None:
            return Scalar("elem", leaf.type, payload=(owner.operands[0], compose(moved, index, extents)))
        template = self.of(value)
        return None if template is None else substitute_index(template, index, extents)

    # -- numbers -----------------------------------------------------------------------------------------------

    def evaluate(self, scalar: Scalar, extents: Sequence[int]) -> np.ndarray[Any, Any] | None:
        """The values of an expression of constants over a box, in the expression's own precision.

        Returns an array that broadcasts to `extents`, or None when a leaf is not constant or an operation is unknown.
        """
        if scalar.type == "bf16":
            return None
        if scalar.op == "const":
            return np.asarray(scalar.payload)
        if scalar.op == "elem":
            value, index = scalar.payload
            array = self.constants.read(value)
            if array is not None:
                return gather(array, index, extents)
            expanded = self.expand(scalar, tuple(extents))
            return None if expanded is None else self.evaluate(expanded, extents)
        values = [self.evaluate(a, extents) for a in scalar.args]
        if not values or any(v is None for v in values):
            return None
        return _compute(scalar, [v for v in values if v is not None])


def gather(array: np.ndarray[Any, Any], index: Index, extents: Sequence[int]) -> np.ndarray[Any, Any]:
    """`array[index(d)]` for all `d` in the box, as an array that broadcasts to it."""
    if not index:
        return array
    if index == identity(len(extents)):
        return array
    grid = np.ogrid[tuple(slice(0, n) for n in extents)]
    return array[tuple(_evaluate_linear(e, grid) for e in index)]


def _evaluate_linear(expr: Linear, grid: Sequence[np.ndarray[Any, Any]]) -> Any:
    total: Any = np.asarray(expr.const)
    for atom, coefficient in expr.terms:
        if atom.kind == "d":
            part = grid[atom.position]
        else:
            assert atom.arg is not None
            inner = _evaluate_linear(atom.arg, grid)
            part = inner // atom.divisor if atom.kind == "/" else inner % atom.divisor
        total = total + coefficient * part
    return total


def _compute(scalar: Scalar, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    target = _NUMPY.get(scalar.type)
    op = scalar.op
    if target is None:
        return None
    with np.errstate(all="ignore"):
        if op in ("add", "addi"):
            return (args[0] + args[1]).astype(target)
        if op in ("sub", "subi"):
            return (args[0] - args[1]).astype(target)
        if op in ("mul", "muli"):
            return (args[0] * args[1]).astype(target)
        if op == "div":
            return (args[0] / args[1]).astype(target)
        if op == "neg":
            return -args[0]
        if op == "round":
            return np.rint(args[0])
        if op == "max":
            return np.maximum(args[0], args[1])
        if op == "min":
            return np.minimum(args[0], args[1])
        if op in ("sitofp", "extf", "truncf", "extsi", "trunci"):
            return args[0].astype(target)
        if op in ("uitofp", "extui"):
            return _unsigned(args[0]).astype(target)
        if op in ("fptosi", "fptoui"):
            return args[0].astype(np.int64).astype(target)
    return None


def _unsigned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.view(array.dtype.name.replace("int", "uint")) if array.dtype.kind == "i" else array


def _typed(number: Any, type_: str) -> Any:
    numpy_type = _NUMPY.get(type_)
    return number if numpy_type is None else numpy_type(number)


def _as_clamp(args: tuple[Scalar, ...]) -> tuple[str, tuple[Scalar, Scalar]] | None:
    """`select(cmpf(a > b), a, b)` is a maximum, with the operands exchanged a minimum."""
    condition, yes, no = args
    if condition.op != "cmpf" or len(condition.args) != 2:
        return None
    left, right = condition.args
    straight = same(left, yes) and same(right, no)
    crossed = same(left, no) and same(right, yes)
    if not straight and not crossed:
        return None
    if condition.payload in _GREATER:
        return ("max" if straight else "min"), (yes, no)
    if condition.payload in _LESS:
        return ("min" if straight else "max"), (yes, no)
    return None


def same(a: Scalar, b: Scalar) -> bool:
    """Whether two expressions are the same leaf or constant, or the same node."""
    if a is b:
        return True
    if a.op != b.op or a.type != b.type:
        return False
    if a.op == "const":
        return bool(a.payload == b.payload)
    if a.op in ("elem", "ssa", "init"):
        return bool(a.payload == b.payload)
    return False


def _fold(scalar: Scalar) -> Scalar:
    """Casts and products of constants are constants."""
    if not scalar.args or any(a.op != "const" for a in scalar.args) or scalar.type == "bf16":
        return scalar
    value = _compute(scalar, [np.asarray(a.payload) for a in scalar.args])
    return scalar if value is None else Scalar("const", scalar.type, payload=value[()])


def substitute_index(scalar: Scalar, index: Index, extents: Extents) -> Scalar:
    """The expression at other indices: dimension `i` is replaced by `index[i]`."""
    if scalar.op == "elem":
        value, inner = scalar.payload
        return Scalar("elem", scalar.type, payload=(value, compose(inner, index, extents)))
    if scalar.op == "index":
        return Scalar("index", scalar.type, payload=compose((scalar.payload,), index, extents)[0])
    if not scalar.args:
        return scalar
    if index == identity(len(index)):
        return scalar
    return Scalar(
        scalar.op, scalar.type, tuple(substitute_index(a, index, extents) for a in scalar.args), scalar.payload
    )


def leaves(scalar: Scalar) -> list[Scalar]:
    """All `elem` leaves, left to right."""
    if scalar.op == "elem":
        return [scalar]
    return [leaf for a in scalar.args for leaf in leaves(a)]
