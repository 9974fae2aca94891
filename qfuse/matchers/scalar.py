"""What one element of a tensor is computed from: scalar expressions over the bodies of elementwise operations.

A quantize may be written as one `linalg.generic` or as seven, with constants inside, captured or as operands. Read as
an expression over the elements of its input all these are the same. `ScalarReader.of(value)` gives the expression of
`value[d0, d1, ...]`; its leaves are elements of other tensors, and `expand` steps through the operation that produced
such a leaf, composing indices on the way (also through transposes and reshapes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from qfuse._mlir import Bindings, Operation, Value, nearest_bf16
from qfuse.indexing import (
    Extents,
    Index,
    Linear,
    as_dim,
    compose,
    constant,
    dim,
    gather,
    identity,
    permutation_of,
)
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.functions import apply
from qfuse.matchers.layout import source_index

#: Names of arith and math operations, without their dialect, that are called otherwise here. `round` is half to even.
_CANONICAL = {
    "maximumf": "max", "maxnumf": "max", "minimumf": "min", "minnumf": "min",
    "addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "negf": "neg",
    "roundeven": "round", "round": "round_away",
}  # fmt: skip

_CONVERSIONS = ("extf", "truncf", "sitofp", "uitofp", "extsi", "extui", "trunci", "index_cast", "fptosi", "fptoui")
#: How many operations a constant may be behind.
_DEPTH = 64
_GREATER = {2, 3, 9, 10}  # arith.cmpf predicates ogt, oge, ugt, uge
_LESS = {4, 5, 11, 12}  # olt, ole, ult, ule
#: Named operations whose bodies follow from their name and element types.
_FIXED_BODY = frozenset(f"linalg.{name}" for name in ("fill", "transpose", "broadcast", "matmul", "batch_matmul"))
#: One-result operations whose result has the type of their first operand, and those whose meaning depends on an
#: attribute.
_SAME_TYPE = frozenset(
    f"arith.{name}"
    for name in (
        "addf", "subf", "mulf", "divf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf",
        "addi", "subi", "muli", "maxsi", "minsi",
    )
) | {"math.roundeven"}  # fmt: skip
#: Attributes that the maps of operations with a fixed body depend on.
_SHAPING = ("indexing_maps", "permutation", "dimensions")
_WITH_ATTRIBUTE = {"arith.cmpf": "predicate", "arith.cmpi": "predicate", "linalg.index": "dim"}
_NUMPY = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.float32,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "i4": np.int8, "index": np.int64,
}  # fmt: skip


#: Arithmetic on constants of more elements is not done here.
_COMPUTED_ELEMENTS = 1 << 22


class Scalar:
    """A node of an expression.

    Attributes:
        op: `const` (payload: number), `elem` (payload: (tensor value, index)), `ssa` (payload: scalar value),
            `init` (payload: result number; the output's old value), `index` (payload: a `Linear`), or an operation's
            name without dialect.
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
        self.asserts = not pure
        self.found: dict[Any, Any] = {}
        in_results = {p for index in maps[inputs:] for p in map(as_dim, index) if p is not None}
        self.reduction = () if parallel_only else tuple(d for d in range(rank) if d not in in_results)
        self.parallel = tuple(d for d in range(rank) if d not in self.reduction)
        if body is not None and not self.reduction:
            body = [_read_inits(expression, maps, inputs, {}) for expression in body]
        self.yielded = body
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


def _read_inits(scalar: Scalar, maps: list[Index], inputs: int, known: dict[int, Scalar]) -> Scalar:
    """An elementwise operation that reads what it writes into reads one more operand."""
    found = known.get(id(scalar))
    if found is not None:
        return found
    if scalar.op == "init":
        number = inputs + scalar.payload
        found = Scalar("elem", scalar.type, payload=(number, maps[number]))
    elif scalar.args:
        args = tuple(_read_inits(a, maps, inputs, known) for a in scalar.args)
        found = scalar if args == scalar.args else Scalar(scalar.op, scalar.type, args, scalar.payload)
    else:
        found = scalar
    known[id(scalar)] = found
    return found


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
        constants.compute = self._computed
        self._views: dict[Value, LinalgView | None] = {}  # by first result: hashing an operation is structural
        self._structures: dict[Any, Structure] = {}
        self._templates: dict[Value, Scalar | None] = {}
        self._parallel_attributes: dict[Any, bool] = {}
        self._outer: dict[Value, Scalar] = {}

    # -- structured operations ---------------------------------------------------------------------------------

    def view(self, op: Operation) -> LinalgView | None:
        """`op` as a structured operation on ranked tensors, or None."""
        results = list(op.results)
        if not results:
            return None
        if results[0] in self._views:
            return self._views[results[0]]
        view = self._views[results[0]] = self._view(op, results)
        return view

    def _view(self, op: Operation, results: list[Value]) -> LinalgView | None:
        name = op.name
        if not name.startswith("linalg.") or len(op.regions) != 1:
            return None
        for result in results:
            if not self.bindings.is_ranked_tensor(result.type):
                return None
        blocks = op.regions[0].blocks
        if len(blocks) != 1:
            return None
        attributes = op.attributes
        operands = list(op.operands)
        fixed = name in _FIXED_BODY and "cast" not in attributes
        key: Any = None
        if fixed:
            # What the body and the maps of these follow from.
            named = tuple(attributes[n] for n in _SHAPING if n in attributes)
            key = (name, named, tuple([v.type for v in operands]))
            structure = self._structures.get(key)
            if structure is not None:
                return LinalgView(self.bindings, op, operands, structure, [], [])
        rows, captured, outside, pure = self._rows(blocks[0])
        if name == "linalg.generic":
            key = (attributes["indexing_maps"], attributes["iterator_types"], len(operands), tuple(rows))
        elif not fixed:
            key = (name, tuple(self.bindings.indexing_maps(op)), len(operands), tuple(rows))
            if not key[1]:
                return None
        structure = self._structures.get(key)
        if structure is None:
            try:
                structure = self._structures[key] = self._structure(op, name, len(operands) - len(results), rows, pure)
            except ValueError:  # an affine expression outside the supported algebra
                return None
        return LinalgView(self.bindings, op, operands, structure, captured, outside)

    def _rows(self, block: Any) -> tuple[list[Any], list[Value], list[Value], bool]:
        """A body as hashable rows; what it captures, what of that is outside, and whether it is pure.

        The first row has the types of the arguments, the last those of what is captured, the others an operation each.

        Operands are numbers: block arguments and results counted from 0 up, captured values from -1 down. Types are
        MLIR's own, which hash fast.
        """
        numbers: dict[Value, int] = {}
        captured: list[Value] = []
        outside: list[Value] = []
        arguments: list[Any] = []
        for argument in block.arguments:
            numbers[argument] = len(arguments)
            arguments.append(argument.type)
        rows: list[Any] = [tuple(arguments)]
        count = len(arguments)
        pure = True
        for op in block.operations:
            name = op.operation.name
            if name == "arith.constant":
                captured.append(op.operation.results[0])
                numbers[captured[-1]] = -len(captured)
                continue
            operands: list[int] = []
            for value in op.operation.operands:
                number = numbers.get(value)
                if number is None:
                    captured.append(value)
                    outside.append(value)
                    number = numbers[value] = -len(captured)
                operands.append(number)
            if name in _SAME_TYPE:
                numbers[op.operation.results[0]] = count
                count += 1
                rows.append((name, None, tuple(operands), None))
                continue
            extra: Any = None
            if name in _WITH_ATTRIBUTE:
                extra = op.operation.attributes[_WITH_ATTRIBUTE[name]].value
            elif name == "cf.assert":
                pure = False
            types: list[Any] = []
            for result in op.operation.results:
                numbers[result] = count
                count += 1
                types.append(result.type)
            rows.append((name, tuple(types), tuple(operands), extra))
        rows.append(tuple([v.type for v in captured]))
        return rows, captured, outside, pure

    def _structure(self, op: Operation, name: str, inputs: int, rows: list[Any], pure: bool) -> Structure:
        maps = self.bindings.indexing_maps(op)
        indices = [self.bindings.index_map(m) for m in maps]
        parallel_only = name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"])
        rank = maps[0].n_dims if maps else 0
        body = _read_rows(rows, indices, inputs, self.bindings.type_name)
        return Structure(indices, rank, inputs, parallel_only, body, pure)

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
        number: int = value.result_number
        result = view.structure.results[number]
        return None if result is None else self.applied(result, view)

    def body(self, view: LinalgView) -> list[Scalar] | None:
        """What the body yields, one expression a result, over the loop indices."""
        yielded = view.structure.yielded
        return None if yielded is None else [self.applied(y, view) for y in yielded]

    def applied(self, scalar: Scalar, view: LinalgView) -> Scalar:
        """An expression of a structure with its holes filled by what an operation is applied to."""
        if scalar.op == "hole":
            return self.outer(view.captured[scalar.payload])
        return self._applied(scalar, view, {})

    def _applied(self, scalar: Scalar, view: LinalgView, known: dict[int, Scalar]) -> Scalar:
        if scalar.op == "hole":
            return self.outer(view.captured[scalar.payload])
        if scalar.op == "elem":
            number, index = scalar.payload
            count = len(view.inputs)
            value = view.inputs[number] if number < count else view.inits[number - count]
            if not self.bindings.is_ranked_tensor(value.type):
                return self.outer(value)
            return Scalar("elem", scalar.type, payload=(value, index))
        if not scalar.args:
            return scalar
        found = known.get(id(scalar))
        if found is None:
            args = tuple([self._applied(a, view, known) for a in scalar.args])
            found = known[id(scalar)] = _fold(_simplified(scalar.op, scalar.type, args, scalar.payload))
        return found

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
            number = self._extracted(op)
            return Scalar("ssa", type_, payload=value) if number is None else Scalar("const", type_, payload=number)
        computed = self._outer_operation(value)
        return computed if computed is not None and computed.op == "const" else Scalar("ssa", type_, payload=value)

    def _extracted(self, op: Operation) -> Any:
        """The number that a `tensor.extract` of a constant gives, or None."""
        positions = [self.constants.scalar(v) for v in list(op.operands)[1:]]
        if any(p is None for p in positions) or not self.bindings.is_ranked_tensor(op.operands[0].type):
            return None
        array = self.constants.read(op.operands[0])
        place = tuple(int(p[0]) for p in positions if p is not None)
        if array is None or any(not 0 <= i < n for i, n in zip(place, array.shape, strict=True)):
            return None
        return _typed(array[place].item(), self.bindings.type_name(op.results[0].type))

    def _outer_operation(self, value: Value) -> Scalar | None:
        """The arithmetic that gives a scalar outside of any body, one step, or None."""
        op = getattr(value.owner, "operation", None)
        if op is None or not op.name.startswith(("arith.", "math.")) or len(op.results) != 1:
            return None
        if op.name == "arith.constant" or op.name in _WITH_ATTRIBUTE:
            return None
        args = tuple(self.outer(v) for v in op.operands)
        return _fold(_node(op.name, self.bindings.type_name(value.type), args, None))

    def expand(self, leaf: Scalar, extents: Extents) -> Scalar | None:
        """Steps through the operation that produced an `elem` leaf; `extents` are those of the leaf's own dims.

        Layout operations with one source give another `elem`; elementwise operations their expression; scalar
        arithmetic outside a body (an `ssa` leaf) one operation of it. None when the leaf is an argument, a constant or
        anything else.
        """
        if leaf.op == "ssa":
            return self._outer_operation(leaf.payload)
        if leaf.op != "elem":
            return None
        value, index = leaf.payload
        owner = getattr(value.owner, "operation", None)
        if owner is None or owner.name == "arith.constant":
            return None
        moved = source_index(self.bindings, owner)
        if moved is not None:
            return Scalar("elem", leaf.type, payload=(owner.operands[0], compose(moved, index, extents)))
        if owner.name == "linalg.fill":
            number = owner.operands[0]
            if self.bindings.type_name(number.type) == self.bindings.element_name(value.type):
                return self.outer(number)
        template = self.of(value)
        return None if template is None else substitute_index(template, index, extents)

    # -- numbers -----------------------------------------------------------------------------------------------

    def _computed(self, value: Value) -> np.ndarray[Any, Any] | None:
        """Values of arithmetic on constants, in their own precision, or None."""
        info = self.bindings.tensor_info(value.type)
        if info is None or None in info[0]:
            return None
        sizes = [n or 0 for n in info[0]]
        if int(np.prod(sizes, dtype=np.int64)) > _COMPUTED_ELEMENTS:
            return None
        computed = self.evaluate(Scalar("elem", info[1], payload=(value, identity(len(sizes)))), sizes)
        return None if computed is None else np.broadcast_to(computed, sizes)

    def evaluate(self, scalar: Scalar, extents: Sequence[int]) -> np.ndarray[Any, Any] | None:
        """The values of an expression of constants over a box, in the expression's own precision.

        Returns an array that broadcasts to `extents`, or None when a leaf is not constant or an operation is unknown.
        """
        return self._evaluate(scalar, extents, {}, 0)

    def _evaluate(self, scalar: Scalar, extents: Sequence[int], known: dict[int, Any], depth: int) -> Any:
        if scalar.op == "const":
            return np.asarray(scalar.payload)
        if id(scalar) in known:
            return known[id(scalar)][1]
        found: Any = None
        if scalar.op == "elem":
            value, index = scalar.payload
            array = self.constants.read(value)
            if array is not None:
                found = gather(array, index, extents)
            elif depth < _DEPTH:
                expanded = self.expand(scalar, tuple(extents))
                found = None if expanded is None else self._evaluate(expanded, extents, known, depth + 1)
        elif scalar.args:
            values: list[Any] = []
            for arg in scalar.args:
                values.append(self._evaluate(arg, extents, known, depth))
                if values[-1] is None:
                    break
            else:
                found = _compute(scalar, values)
                if found is None:
                    found = _apply(scalar, values)
        known[id(scalar)] = (scalar, found)  # keeps the node, so that its id stays its own
        return found


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add, "addi": np.add, "sub": np.subtract, "subi": np.subtract, "mul": np.multiply, "muli": np.multiply,
    "div": np.divide, "neg": np.negative, "round": np.rint, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def _compute(scalar: Scalar, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    target = _NUMPY.get(scalar.type)
    if target is None:
        return None
    if scalar.op in _CONVERSIONS:
        return convert(args[0], scalar.op, scalar.args[0].type, scalar.type)
    compute = _ARITHMETIC.get(scalar.op)
    if compute is None:
        return None
    with np.errstate(all="ignore"):
        return _held(np.asarray(compute(*args)).astype(target), scalar.type)


def _apply(scalar: Scalar, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """Functions and comparisons, which constants are not folded by while reading."""
    target = np.bool_ if scalar.type == "i1" else _NUMPY.get(scalar.type)
    if target is None:
        return None
    with np.errstate(all="ignore"):
        value = apply(scalar.op, scalar.payload, args)
        return None if value is None else _held(value.astype(target), scalar.type)


def convert(array: np.ndarray[Any, Any], cast: str, source: str, target: str) -> np.ndarray[Any, Any] | None:
    """What a cast operation makes of an array; printed types say what it holds. None for types that are not known."""
    to = _NUMPY.get(target)
    if to is None:
        return None
    if cast in ("uitofp", "extui") and array.dtype.kind == "i":
        bits = int(source[1:])
        array = array.astype(np.int64) & ((1 << bits) - 1) if bits < 64 else array.view(np.uint64)
    if cast in ("fptosi", "fptoui"):
        with np.errstate(all="ignore"):
            array = array.astype(np.int64)
    with np.errstate(all="ignore"):
        return _held(array.astype(to), target)


def _held(array: np.ndarray[Any, Any], type_: str) -> np.ndarray[Any, Any]:
    """Values of numpy's next wider type brought to what `type_` holds."""
    if type_ == "bf16":
        return nearest_bf16(array)
    if type_ == "i4":
        return ((array + 8) & 15) - 8
    return array


def _typed(number: Any, type_: str) -> Any:
    numpy_type = _NUMPY.get(type_)
    return number if numpy_type is None else numpy_type(number)


def _read_rows(rows: list[Any], maps: list[Index], inputs: int, type_name: Callable[[Any], str]) -> list[Scalar] | None:
    """The expressions that a body yields, from its rows (see `ScalarReader._rows`)."""
    captured_types = [type_name(t) for t in rows[-1]]
    known: list[Scalar] = []
    for position, type_ in enumerate(rows[0]):
        if position < inputs:
            known.append(Scalar("elem", type_name(type_), payload=(position, maps[position])))
        else:
            known.append(Scalar("init", type_name(type_), payload=position - inputs))
    for row in rows[1:-1]:
        name, types, operands, extra = row
        args: tuple[Scalar, ...] = tuple(
            known[n] if n >= 0 else Scalar("hole", captured_types[-n - 1], payload=-n - 1) for n in operands
        )
        if name == "linalg.yield":
            return list(args)
        if types is None:
            known.append(_node(name, args[0].type, args, extra))
        elif len(types) == 1:
            known.append(_node(name, type_name(types[0]), args, extra))
        elif types:
            return None
    return None


def _simplified(op: str, type_: str, args: tuple[Scalar, ...], payload: Any) -> Scalar:
    """An operation; a select that is a maximum or minimum becomes one."""
    clamped = _as_clamp(args) if op == "select" else None
    return Scalar(op, type_, args, payload) if clamped is None else Scalar(clamped[0], type_, clamped[1])


def _node(full: str, type_: str, args: tuple[Scalar, ...], extra: Any) -> Scalar:
    dialect, _, name = full.partition(".")
    if full == "linalg.index":
        return Scalar("index", type_, payload=dim(extra))
    if dialect not in ("arith", "math"):
        return Scalar("opaque", type_, args, payload=full)
    return _simplified(_CANONICAL.get(name, name), type_, args, extra)


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
    if not scalar.args:
        return scalar
    for arg in scalar.args:
        if arg.op != "const":
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
