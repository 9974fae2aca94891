"""What one element of a tensor is computed from: scalar expressions over the bodies of elementwise operations.

A quantize may be written as one `linalg.generic` or as seven, with constants inside, captured or as operands. Read as
an expression over the elements of its input all these are the same. `ScalarReader.of(value)` gives the expression of
`value[d0, d1, ...]`; its leaves are elements of other tensors, and `expand` steps through the operation that produced
such a leaf, composing indices on the way (also through transposes and reshapes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, compose, gather, identity, positions
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.evaluate import compute, compute_function, fold, typed
from qfuse.matchers.layout import source_index
from qfuse.matchers.linalg_view import LinalgViews
from qfuse.matchers.scalar import Scalar, operation, simplified, substitute_index
from qfuse.matchers.structure import View
from qfuse.matchers.tosa_view import TosaViews

#: How many operations a constant may be behind.
_DEPTH = 64
#: Arithmetic on constants of more elements is not done here.
_COMPUTED_ELEMENTS = 1 << 22
#: Scalar operations whose meaning depends on an attribute.
_WITH_ATTRIBUTE = ("arith.cmpf", "arith.cmpi", "linalg.index")

#: TOSA operations with an axis that constants are computed by.
_TOSA_WHOLES: Mapping[str, Callable[[list[np.ndarray[Any, Any]], int], np.ndarray[Any, Any]]] = {
    "tosa.concat": np.concatenate,
    "tosa.reduce_sum": lambda parts, axis: parts[0].sum(axis, dtype=parts[0].dtype, keepdims=True),
}


class ScalarReader:
    """Builds and expands scalar expressions for one module; results are kept per value."""

    def __init__(self, bindings: Bindings, constants: ConstantReader) -> None:
        """A reader that shares `constants` with the other matchers."""
        self.bindings = bindings
        self.constants = constants
        constants.compute = self._computed
        self._views: dict[Value, View | None] = {}  # by first result: hashing an operation is structural
        self._linalg = LinalgViews(bindings)
        self._tosa = TosaViews(bindings, constants)
        self._templates: dict[Value, Scalar | None] = {}
        self._outer: dict[Value, Scalar] = {}
        self._wholes: dict[Value, np.ndarray[Any, Any] | None] = {}

    # -- structured operations ---------------------------------------------------------------------------------

    def view(self, op: Operation) -> View | None:
        """`op` as a structured operation on ranked tensors, or None."""
        results = list(op.results)
        if not results:
            return None
        if results[0] in self._views:
            return self._views[results[0]]
        view = self._tosa.view(op) if op.name.startswith("tosa.") else self._linalg.view(op)
        self._views[results[0]] = view
        return view

    def captured_tensors(self, op: Operation) -> list[Value]:
        """Tensors that a body reads elements of (`tensor.extract`) and that are no operands."""
        view = self.view(op) if op.name.startswith("linalg.") and len(op.regions) else None
        return [] if view is None else [v for v in view.outside if self.bindings.is_ranked_tensor(v.type)]

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

    def body(self, view: View) -> list[Scalar] | None:
        """What the body yields, one expression a result, over the loop indices."""
        yielded = view.structure.yielded
        return None if yielded is None else [self.applied(y, view) for y in yielded]

    def applied(self, scalar: Scalar, view: View) -> Scalar:
        """An expression of a structure with its holes filled by what an operation is applied to."""
        if scalar.op == "hole":
            return self.outer(view.captured[scalar.payload])
        return self._applied(scalar, view, {})

    def _applied(self, scalar: Scalar, view: View, known: dict[int, Scalar]) -> Scalar:
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
            found = self._chosen(args, view.extents) if scalar.op == "select" else None
            found = fold(simplified(scalar.op, scalar.type, args, scalar.payload)) if found is None else found
            known[id(scalar)] = found
        return found

    def _chosen(self, args: tuple[Scalar, ...], extents: Extents) -> Scalar | None:
        """A select by a comparison that is an operation of its own, where both are a maximum or minimum; else None."""
        condition = self.expand(args[0], extents) if args[0].op == "elem" else None
        if condition is None:
            return None
        found = simplified("select", args[1].type, (condition, *args[1:]), None)
        return None if found.op == "select" else found

    def outer(self, value: Value) -> Scalar:
        """A scalar defined outside a body: a constant, an element of a tensor, a cast of these, or opaque."""
        found = self._outer.get(value)
        if found is None:
            found = self._outer[value] = self._read_outer(value)
        return found

    def _read_outer(self, value: Value) -> Scalar:
        number = self.constants.scalar(value)
        if number is not None:
            return Scalar("const", number[1], payload=typed(*number))
        type_ = self.bindings.type_name(value.type)
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
        return typed(array[place].item(), self.bindings.type_name(op.results[0].type))

    def _outer_operation(self, value: Value) -> Scalar | None:
        """The arithmetic that gives a scalar outside of any body, one step, or None."""
        op = getattr(value.owner, "operation", None)
        if op is None or not op.name.startswith(("arith.", "math.")) or len(op.results) != 1:
            return None
        if op.name == "arith.constant" or op.name in _WITH_ATTRIBUTE:
            return None
        args = tuple(self.outer(v) for v in op.operands)
        return fold(operation(op.name, self.bindings.type_name(value.type), args, None))

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
        if owner is None or owner.name in ("arith.constant", "tosa.const"):
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

    def _whole(self, value: Value) -> np.ndarray[Any, Any] | None:
        """Values of what TOSA computes indices with and no expression of one element says; None of anything else."""
        op = getattr(value.owner, "operation", None)
        if op is None or op.name not in _TOSA_WHOLES:
            return None
        if value not in self._wholes:
            parts = [self.constants.value(v) for v in op.operands]
            known = [p for p in parts if p is not None]
            axis: int = op.attributes["axis"].value
            self._wholes[value] = None if len(known) < len(parts) else _TOSA_WHOLES[op.name](known, axis)
        return self._wholes[value]

    def evaluate(self, scalar: Scalar, extents: Sequence[int]) -> np.ndarray[Any, Any] | None:
        """The values of an expression of constants over a box, in the expression's own precision.

        Returns an array that broadcasts to `extents`, or None when a leaf is not constant or an operation is unknown.
        """
        return self._evaluate(scalar, extents, {}, 0)

    def evaluate_over(self, scalar: Scalar, extents: Extents) -> np.ndarray[Any, Any] | None:
        """As `evaluate`, as an array with a dimension an extent; None where one is dynamic, too."""
        sizes = [n for n in extents if n is not None]
        array = self.evaluate(scalar, sizes) if len(sizes) == len(extents) else None
        return None if array is None else array.reshape((1,) * (len(sizes) - array.ndim) + array.shape)

    def _evaluate(self, scalar: Scalar, extents: Sequence[int], known: dict[int, Any], depth: int) -> Any:
        if scalar.op == "const":
            return np.asarray(scalar.payload)
        if scalar.op == "index":
            return np.asarray(positions(scalar.payload, extents), np.int64)
        if scalar.op == "array":
            held, index = scalar.payload
            return gather(held, index, extents)
        if id(scalar) in known:
            return known[id(scalar)][1]
        found: Any = None
        if scalar.op == "elem":
            value, index = scalar.payload
            array = self.constants.read(value)
            array = self._whole(value) if array is None else array
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
                found = compute(scalar, values)
                if found is None:
                    found = compute_function(scalar, values)
        known[id(scalar)] = (scalar, found)  # keeps the node, so that its id stays its own
        return found
