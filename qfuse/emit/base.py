"""`BuildContext`: makes planned integer tensors and accumulators real, each once and at its place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from qfuse._builder import Builder
from qfuse._mlir import Bindings, Extents, Operation, Type, Value
from qfuse.cost.options import Options
from qfuse.graph import Decision, Existing, Folded, Made, Moved, QValue, StoredForm
from qfuse.indexing import Index, as_dim, identity, is_identity, is_plain
from qfuse.matchers.constants import ConstantReader
from qfuse.regrouping import regrouped

#: Operations, by the start of their names, whose result has the shape of their last operand.
_SHAPED_AS_LAST = ("linalg.fill", "linalg.generic", "linalg.broadcast", "arith.", "math.")


class BuildContext:
    """What a fusion's `build` works with.

    Attributes:
        builder: creates operations at the current insertion point.
        emitter: spells integer operations for the target.
        options: of this run.
        constants: values of constants in the IR.
        replaced: integer tensors that will take the place of ones in the IR.
    """

    def __init__(
        self,
        bindings: Bindings,
        builder: Builder,
        emitter_class: Any,
        options: Options,
        constants: ConstantReader,
    ) -> None:
        """A context with nothing built."""
        self.bindings = bindings
        self.constants = constants
        self.builder = builder
        self.options = options
        self.emitter = emitter_class(builder, options)
        self.replaced: dict[Value, Value] = {}
        self._tensors: dict[QValue, Value] = {}
        self._built: dict[Decision, Any] = {}
        self._points: list[Operation] = []

    def at(self, op: Operation) -> _Placed:
        """Inserts before `op` inside a `with`."""
        return _Placed(self, op)

    def build(self, decision: Decision) -> Any:
        """What a decision's fusion builds, before the decision's own operation; built once."""
        if decision not in self._built:
            with self.at(decision.node.op):
                self._built[decision] = decision.fusion.build(decision, self)
        return self._built[decision]

    def q(self, q: QValue) -> Value:
        """The SSA value of an integer tensor."""
        if isinstance(q, Existing) and q.cast is None:
            return self.replaced.get(q.value, q.value)
        found = self._tensors.get(q)
        if found is None:
            found = self._tensors[q] = self._make(q)
        return found

    def _make(self, q: QValue) -> Value:
        if isinstance(q, Existing):
            with self.at(_after(q.value)):
                type_ = self.builder.type(q.cast or "")
                return self.builder.create("quant.scast", [type_], [q.value]).results[0]
        if isinstance(q, Folded):
            return self.emitter.constant(q.array)
        if isinstance(q, Made):
            return self.build(q.decision)
        assert isinstance(q, Moved)
        with self.at(q.layout.op):
            inputs = [
                self.read(inner, index, self.bindings.extents(source.type))
                for (inner, index), source in zip(q.inputs, q.layout.sources, strict=True)
            ]
            return self.emitter.move(q.layout, inputs, q.storage.mlir, q.fill)

    def read(self, q: QValue, index: Index, extents: Extents) -> Value:
        """The integer tensor read at `index` as a tensor of `extents`: itself, a cast of it, or a copy."""
        value = self.q(q)
        own = self.bindings.extents(value.type)
        if len(own) != len(extents) or not is_identity(index, own):
            return self.emitter.copy(value, index, extents)
        element = self.bindings.element_name(value.type)
        return self.cast(value, self.builder.tensor(extents, element))

    def regrouped(self, value: Value, index: Index, extents: Extents) -> tuple[Value, Index]:
        """A tensor, read at `index` over dimensions of `extents`, as one that is read at a list of dimensions."""
        found = None if is_plain(index) else regrouped(index, self.bindings.extents(value.type), extents)
        return (value, index) if found is None else (self.emitter.regroup(value, found), found.index)

    def cast(self, value: Value, type_: Type) -> Value:
        """`value` as a tensor type that differs in which extents are known or is of a quantized type, or itself."""
        if value.type != type_ and self.bindings.element_name(type_).startswith("!quant."):
            element = self.bindings.element_name(value.type)
            integers = self.cast(value, self.builder.tensor(self.bindings.extents(type_), element))
            return self.builder.create("quant.scast", [type_], [integers]).results[0]
        if value.type == type_ or self.bindings.element_name(value.type) != self.bindings.element_name(type_):
            return value
        return self.builder.create("tensor.cast", [type_], [value]).results[0]

    def stored(self, form: StoredForm) -> Value:
        """The integers of a form, in the value's own shape, before the current operation."""
        return self.read(form.q, form.index, form.params.extents)

    def sizes(self, value: Value, extents: Extents | None = None) -> list[Value]:
        """SSA values of the dynamic extents of a tensor, taken from its `tensor.empty` where there is one.

        With `extents` of those that are dynamic there, whatever the tensor's own type knows.
        """
        own = self.bindings.extents(value.type)
        if extents is not None and extents != own:
            return self._sizes_where(value, own, extents)
        op = getattr(value.owner, "operation", None)
        while op is not None and len(op.operands) and op.name.startswith(_SHAPED_AS_LAST):
            value = list(op.operands)[-1]
            op = getattr(value.owner, "operation", None)
        if op is not None and op.name == "tensor.empty":
            return list(op.operands)
        extents = self.bindings.extents(value.type)
        return [self.builder.dim(value, i) for i, n in enumerate(extents) if n is None]

    def _sizes_where(self, value: Value, own: Extents, extents: Extents) -> list[Value]:
        dynamic = iter(self.sizes(value))
        found: list[Value] = []
        for known, wanted in zip(own, extents, strict=True):
            size = next(dynamic) if known is None else None
            if wanted is None:
                found.append(self.builder.constant(f"{known} : index") if size is None else size)
        return found

    def empty_of(self, value: Value) -> Value:
        """A tensor of `value`'s type to write into: the `tensor.empty` it is computed into, or a new one."""
        base = value
        op = getattr(base.owner, "operation", None)
        while op is not None and op.name in ("linalg.fill", "linalg.generic"):
            base = list(op.operands)[-1]
            op = getattr(base.owner, "operation", None)
        if op is not None and op.name == "tensor.empty" and base.type == value.type:
            return base
        extents = self.bindings.extents(value.type)
        element = self.bindings.element_name(value.type)
        return self.builder.empty(value, extents, element, self.sizes(value))


class _Placed:
    def __init__(self, context: BuildContext, op: Operation) -> None:
        self._context = context
        self._op = op

    def __enter__(self) -> None:
        self._context._points.append(self._op)  # pyright: ignore[reportPrivateUsage]
        self._context.builder.before(self._op)

    def __exit__(self, *_: object) -> None:
        points = self._context._points  # pyright: ignore[reportPrivateUsage]
        points.pop()
        if points:
            self._context.builder.before(points[-1])


def _after(value: Value) -> Operation:
    """The operation behind the one that defines `value`."""
    owner = value.owner
    op = getattr(owner, "operation", None)
    operations = list((owner if op is None else op.block).operations)
    if op is None:
        return operations[0].operation
    position = next(i for i, o in enumerate(operations) if o.operation == op)
    return operations[position + 1].operation


def out_extents(extents: Extents, loops: Sequence[int]) -> Extents:
    """Extents of a tensor whose dimensions are these loops."""
    return tuple(extents[d] for d in loops)


@lru_cache(maxsize=1 << 10)
def loops_to_dims(loops: tuple[int, ...], rank: int) -> Index:
    """A substitution from loops to the dimensions of a tensor made of `loops`; other loops become dimension 0."""
    places = list(identity(rank))
    known = identity(max(len(loops), 1))
    for position, loop in enumerate(loops):
        places[loop] = known[position]
    return tuple(places)


def dims_in(index: Index) -> list[int]:
    """The loops of an index that is a list of loops."""
    return [d for d in map(as_dim, index) if d is not None]
