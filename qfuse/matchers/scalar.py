"""What one element of a tensor is computed from: scalar expressions over the bodies of elementwise operations.

A quantize may be written as one `linalg.generic` or as seven, with constants inside, captured or as operands. Read as
an expression over the elements of its input all these are the same. `ScalarReader.of(value)` gives the expression of
`value[d0, d1, ...]`; its leaves are elements of other tensors, and `expand` steps through the operation that produced
such a leaf, composing indices on the way (also through transposes and reshapes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

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
#: Operations whose meaning depends on an attribute.
_WITH_ATTRIBUTE = {"arith.cmpf": "predicate", "arith.cmpi": "predicate", "linalg.index": "dim"}
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


_Body: TypeAlias = "list[Scalar] | None"


class Structure:
    """What operations of one structure have in common: maps, loops and body, with holes for what they are applied to.

    A model repeats a few bodies many times; each is read into expressions once.

    Attributes:
        maps: indexing maps, inputs first.
        rank: number of loops.
        parallel: loops that are not summed over.
        reduction: loops that are.
        yielded: an expression a result over the loops, or None when the body is not understood. Leaves are `hole`
            (payload: number of a captured value) and `elem` (payload: (number of the operand, index)).
        asserts: whether the body has side effects (an assertion).
        results: the expressions over the result's own dimensions, for elementwise operations.
        found: room for matchers to keep what they found, by their own keys.
    """

    __slots__ = ("asserts", "found", "maps", "parallel", "rank", "reduction", "results", "yielded")

    def __init__(self, maps: list[Index], rank: int, inputs: int, parallel_only: bool, body: _Body, pure: bool) -> None:
        """Built by `ScalarReader.view`."""
        self.maps = maps
        self.rank = rank
        self.yielded = body
        self.asserts = not pure
        self.found: dict[Any, Any] = {}
        in_results = {p for index in maps[inputs:] for p in map(as_dim, index) if p is not None}
        self.reduction = () if parallel_only else tuple(d for d in range(rank) if d not in in_results)
        self.parallel = tuple(d for d in range(rank) if d not in self.reduction)
        self.results = None if self.reduction or body is None else _over_results(body, maps[inputs:], rank)


class LinalgView:
    """A structured operation seen uniformly, named or generic.

    Attributes:
        op: the operation.
        structure: what it shares with others.
        inputs: operands that are read.
        inits: operands that are written into.
        captured: values from outside that the body uses, and constants inside it, in the order of the holes.
        outside: those of them that are defined outside.
    """

    __slots__ = ("_bindings", "_extents", "captured", "inits", "inputs", "op", "outside", "structure")

    def __init__(
        self,
        bindings: Bindings,
        op: Operation,
        operands: list[Value],
        structure: Structure,
        captured: list[Value],
        outside: list[Value],
    ) -> None:
        """Built by `ScalarReader.view`."""
        inputs = len(operands) - len(op.results)
        self._bindings = bindings
        self._extents: Extents | None = None
        self.op = op
        self.structure = structure
        self.inputs = operands[:inputs]
        self.inits = operands[inputs:]
        self.captured = captured
        self.outside = outside

    @property
    def extents(self) -> Extents:
        """Extents of the loops, None for dynamic."""
        if self._extents is None:
            operands = [*self.inputs, *self.inits]
            self._extents = _loop_extents(self._bindings, operands, self.structure.maps, self.structure.rank)
        return self._extents


def _loop_extents(bindings: Bindings, operands: Sequence[Value], maps: Sequence[Index], rank: int) -> Extents:
    found: list[int | None] = [None] * rank
    for value, index in zip(operands, maps, strict=False):
        if not index or not bindings.is_ranked_tensor(value.type):
            continue
        for expr, extent in zip(index, bindings.extents(value.type), strict=True):
            position = as_dim(expr)
            if position is not None and extent is not None:
                found[position] = extent
    return tuple(found)


def _over_results(body: list[Scalar], written: list[Index], rank: int) -> list[Scalar | None]:
    """Expressions over the dimensions of each result instead of over the loops."""
    found: list[Scalar | None] = []
    for expression, index in zip(body, written, strict=True):
        loops = permutation_of(index, rank)
        if loops is None or len(loops) != rank:
            found.append(None)
            continue
        if loops == tuple(range(rank)):
            found.append(expression)
            continue
        inverse: list[Linear] = [constant(0)] * rank
        for position, loop in enumerate(loops):
            inverse[loop] = dim(position)
        found.append(substitute_index(expression, tuple(inverse), ()))
    return found


class ScalarReader:
    """Builds and expands scalar expressions for one module; results are kept per value."""

    def __init__(self, bindings: Bindings, constants: ConstantReader) -> None:
        """A reader that shares `constants` with the other matchers."""
        self.bindings = bindings
        self.constants = constants
        self._views: dict[Operation, LinalgView | None] = {}
        self._structures: dict[Any, Structure] = {}
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
        name = op.name
        if not name.startswith("linalg.") or len(op.regions) != 1:
            return None
        results = list(op.results)
        if not results or not all(self.bindings.is_ranked_tensor(r.type) for r in results):
            return None
        blocks = op.regions[0].blocks
        if len(blocks) != 1:
            return None
        attributes = op.attributes
        if name == "linalg.generic":
            head: Any = (attributes["indexing_maps"], attributes["iterator_types"])
        else:
            head = (name, tuple(self.bindings.indexing_maps(op)))
            if not head[1]:
                return None
        operands = list(op.operands)
        rows, captured, outside, pure = self._rows(blocks[0])
        key = (head, len(operands), tuple(rows))
        structure = self._structures.get(key)
        if structure is None:
            try:
                structure = self._structures[key] = self._structure(op, name, len(operands) - len(results), rows, pure)
            except ValueError:  # an affine expression outside the supported algebra
                return None
        return LinalgView(self.bindings, op, operands, structure, captured, outside)

    def _rows(self, block: Any) -> tuple[list[Any], list[Value], list[Value], bool]:
        """A body as hashable rows, one an operation; what it captures, what of that is outside, and whether it is pure.

        Operands are numbers: block arguments and results counted from 0 up, captured values from -1 down.
        """
        type_name = self.bindings.type_name
        numbers: dict[Value, int] = {}
        captured: list[Value] = []
        outside: list[Value] = []
        rows: list[Any] = []
        for argument in block.arguments:
            numbers[argument] = len(numbers)
            rows.append(type_name(argument.type))
        count = len(numbers)
        pure = True
        for op in block.operations:
            op = op.operation
            name = op.name
            if name == "arith.constant":
                captured.append(op.results[0])
                numbers[captured[-1]] = -len(captured)
                continue
            operands: list[int] = []
            for value in op.operands:
                number = numbers.get(value)
                if number is None:
                    captured.append(value)
                    outside.append(value)
                    number = numbers[value] = -len(captured)
                operands.append(number)
            extra: Any = None
            if name in _WITH_ATTRIBUTE:
                extra = op.attributes[_WITH_ATTRIBUTE[name]].value
            elif name == "cf.assert":
                pure = False
            types = ""
            for result in op.results:
                numbers[result] = count
                count += 1
                types = type_name(result.type)
            rows.append((name, types, tuple(operands), extra, len(op.results)))
        rows.append(tuple(type_name(v.type) for v in captured))
        return rows, captured, outside, pure

    def _structure(self, op: Operation, name: str, inputs: int, rows: list[Any], pure: bool) -> Structure:
        maps = self.bindings.indexing_maps(op)
        indices = [self.bindings.index_map(m) for m in maps]
        parallel_only = name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"])
        rank = maps[0].n_dims if maps else 0
        return Structure(indices, rank, inputs, parallel_only, _read_rows(rows, indices, inputs), pure)

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
        view = None if owner is None else self.view(owner)
        if view is None or view.structure.results is None:
            return None
        result = view.structure.results[value.result_number]
        return None if result is None else self.applied(result, view)

    def body(self, view: LinalgView) -> list[Scalar] | None:
        """What the body yields, one expression a result, over the loop indices."""
        yielded = view.structure.yielded
        return None if yielded is None else [self.applied(y, view) for y in yielded]

    def applied(self, scalar: Scalar, view: LinalgView) -> Scalar:
        """An expression of a structure with its holes filled by what an operation is applied to."""
        if scalar.op == "hole":
            return self.outer(view.captured[scalar.payload])
        if scalar.op == "elem":
            number, index = scalar.payload
            value = view.inputs[number]
            if not self.bindings.is_ranked_tensor(value.type):
                return self.outer(value)
            return Scalar("elem", scalar.type, payload=(value, index))
        if not scalar.args:
            return scalar
        args = tuple(self.applied(a, view) for a in scalar.args)
        return _fold(Scalar(scalar.op, scalar.type, args, scalar.payload))

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


def _read_rows(rows: list[Any], maps: list[Index], inputs: int) -> list[Scalar] | None:
    """The expressions that a body yields, from its rows (see `ScalarReader._rows`)."""
    captured_types = rows[-1]
    known: list[Scalar] = []
    for row in rows[:-1]:
        if isinstance(row, str):
            position = len(known)
            if position < inputs:
                known.append(Scalar("elem", row, payload=(position, maps[position])))
            else:
                known.append(Scalar("init", row, payload=position - inputs))
            continue
        name, type_, operands, extra, results = row
        args = tuple(known[n] if n >= 0 else Scalar("hole", captured_types[-n - 1], payload=-n - 1) for n in operands)
        if name == "linalg.yield":
            return list(args)
        if results == 1:
            known.append(_node(name, type_, args, extra))
        elif results:
            return None
    return None


def _node(full: str, type_: str, args: tuple[Scalar, ...], extra: Any) -> Scalar:
    dialect, _, name = full.partition(".")
    if full == "linalg.index":
        return Scalar("index", type_, payload=dim(extra))
    if dialect not in ("arith", "math"):
        return Scalar("opaque", type_, args, payload=full)
    if name == "select":
        clamped = _as_clamp(args)
        if clamped is not None:
            return Scalar(clamped[0], type_, clamped[1])
    return Scalar(_CANONICAL.get(name, name), type_, args, extra)


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
    if a.op in ("elem", "ssa", "init", "hole"):
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
