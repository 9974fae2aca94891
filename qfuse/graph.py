"""Integer forms: which values are integers plus `QuantParams`, and how each integer tensor is to be obtained.

Nothing is built here. A `QValue` says where an integer tensor will come from; a form says what a float value is in
terms of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Index, compose, gather, identity, is_plain
from qfuse.matchers.intervals import interval_of, of_type
from qfuse.matchers.layout import Layout, is_integer_barrier
from qfuse.matchers.nodes import Node, Quantize, Reduction
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import Param, QuantParams, StorageType
from qfuse.regrouping import regrouped
from qfuse.requirements import Requirements

Array = np.ndarray[Any, Any]


# -- integer tensors, existing and to be made --------------------------------------------------------------------


@dataclass(eq=False)
class Existing:
    """An integer tensor that is in the IR; `cast` is the printed type to `quant.scast` it to first."""

    value: Value
    cast: str | None = None


@dataclass(eq=False)
class Folded:
    """An integer constant computed now."""

    array: Array


@dataclass(eq=False)
class Moved:
    """The result of a layout operation repeated on integers.

    Attributes:
        layout: the operation to repeat.
        inputs: an integer tensor a source, with the index at which the source's elements are read from it.
        storage: their type.
        fill: what a pad yields, as a stored integer or a run-time zero point.
    """

    layout: Layout
    inputs: tuple[tuple[QValue, Index], ...]
    storage: StorageType
    fill: int | Param | None = None


@dataclass(eq=False)
class Made:
    """The integer result of a planned fusion."""

    decision: Decision


QValue: TypeAlias = Existing | Folded | Moved | Made


# -- forms -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class StoredForm:
    """`value[d] = scale * (q[index(d)] - zero_point)`.

    Attributes:
        q: the integer tensor.
        index: over the value's dimensions; a list of dimensions (a transposed or broadcast read) or the identity.
        params: over the value's dimensions.
        low: least stored integer that can occur.
        high: greatest one.
    """

    q: QValue
    index: Index
    params: QuantParams
    low: int
    high: int


@dataclass(eq=False)
class StepOperand:
    """The other operand of an epilogue step: a number, or a float tensor read at `index` over the accumulator's dims.

    Attributes:
        number: the number.
        value: the float tensor.
        index: where it is read.
        element: its printed float type.
        scalar: an expression of stored integers over the accumulator's dims, see `qfuse.emit.expression`.
    """

    number: float | None = None
    value: Value | None = None
    index: Index = ()
    element: str = "f32"
    scalar: Scalar | None = None


@dataclass(eq=False)
class Step:
    """One float operation after the scaled accumulators.

    Attributes:
        kind: `add`, `sub` (value - operand), `rsub` (operand - value), `mul`, `div`, `max`, `min` or `neg`.
        operand: the other operand.
    """

    kind: str
    operand: StepOperand | None = None


@dataclass(eq=False, kw_only=True)
class Pooling(Layout):
    """A maximum or minimum of elements, which follows an epilogue as layout operations do.

    Rounding, clamps and other steps that keep the order of numbers commute with it.

    Attributes:
        decision: its own; the node is the reduction. What quantizes the form says in `payload` of which storage type
            the integers are.
        pad: the layout operation that pads the source with an infinity, or None.
        behind: how many steps of the form come before it.
    """

    decision: Decision
    pad: Layout | None
    behind: int

    @property
    def node(self) -> Reduction:
        """The reduction."""
        node = self.decision.node
        assert isinstance(node, Reduction)
        return node


@dataclass(eq=False)
class AccumForm:
    """`value = moves(steps(scale * corrected accumulators))`.

    Attributes:
        decision: the planned contraction.
        steps: float operations, in order, on the accumulators' own shape.
        moves: layout operations after them, poolings among them. Steps behind a pooling keep the order of numbers.
        to_value: for each accumulator element its place in the value; None when the moves cannot be inverted.
        extents: shape of the value.
        element: printed float type of the value.
    """

    decision: Decision
    steps: tuple[Step, ...]
    moves: tuple[Layout, ...]
    to_value: Index | None
    extents: Extents
    element: str

    @property
    def poolings(self) -> tuple[Pooling, ...]:
        """Those among the moves, in order."""
        return tuple(move for move in self.moves if isinstance(move, Pooling))


Form: TypeAlias = StoredForm | AccumForm


# -- decisions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """Why a fusion does not apply. Falsy, and holds text only: operations may be gone when it is read.

    Attributes:
        reason: lower-case clause, requirement and finding.
        hint: what would make it apply, or empty.
        in_float: whether the option `epilogue=float` would, too; the hint then says so where the emitter has it.
    """

    reason: str
    hint: str = ""
    in_float: bool = False

    def __bool__(self) -> bool:
        return False


@dataclass(eq=False)
class Decision:
    """A fusion that applies to a node.

    Attributes:
        fusion: the fusion.
        node: the node.
        exactness: `bit-exact`, `within-1-lsb`, `within-n-lsb` or `reassociated`.
        form: integer form of the node's result, when it stays a float value for others.
        replacement: the integer tensor that takes the place of the node's (integer) result.
        needs: integer tensors, and planned contractions whose accumulators are read.
        float_inputs: float values that are read.
        detail: facts for the report.
        payload: what `build` needs; private to the fusion.
        on_demand: whether it is carried out only where other fusions read the integers it replaces.
        requires: what it asks of the machine, which the target's limits are compared with. When empty that of the node:
            of a contraction or reduction its operands and sizes, of a quantize of accumulators their result.
    """

    fusion: Any
    node: Node
    exactness: str
    form: Form | None = None
    replacement: QValue | None = None
    needs: tuple[QValue | Decision, ...] = ()
    float_inputs: tuple[Value, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict[str, Any])
    payload: Any = None
    on_demand: bool = False
    requires: tuple[Requirements, ...] = ()

    @property
    def replaces(self) -> bool:
        """Whether what it builds takes the place of the node's result."""
        return self.replacement is not None or self.form is None


def values_read(decision: Decision) -> Iterator[Value]:
    """Values of the module that a decision's operations read, float or integer."""
    yield from decision.float_inputs
    pending: list[QValue] = [n for n in decision.needs if not isinstance(n, Decision)]
    while pending:
        q = pending.pop()
        if isinstance(q, Existing):
            yield q.value
        elif isinstance(q, Moved):
            pending += [inner for inner, _ in q.inputs]


class Environment:
    """What a fusion's `check` may look at: forms so far, constants, the target and the options.

    Attributes:
        target: what the machine allows.
        options: how this run is to be done.
        reader: scalar expressions and constants.
        corrected: for each planned contraction whose accumulators are read as integers these, zero points subtracted.
        vocabulary: what the emitter can say, see `qfuse.emit.vocabulary`.
        elementwise: for each quantize that ends an expression of dequantized values the float values between.
        root: the module or function that is read.
        declared: printed types of the functions that planned kernel calls declare, by name.
    """

    def __init__(
        self,
        bindings: Bindings,
        reader: ScalarReader,
        target: Any,
        options: Any,
        root: Operation,
        vocabulary: Any,
    ) -> None:
        """An environment with no forms yet."""
        self.bindings = bindings
        self.reader = reader
        self.target = target
        self.options = options
        self.vocabulary = vocabulary
        self.forms: dict[Value, Form] = {}
        self.decisions: dict[Value, Decision] = {}
        self.quantizes: dict[Value, Quantize] = {}
        self.elementwise: dict[Value, tuple[Value, ...]] = {}
        self.corrected: dict[Decision, Made] = {}
        self.root = root
        self.declared: dict[str, str] = {}

    def form(self, value: Value) -> Form | None:
        """The integer form of a float value, or None."""
        return self.forms.get(value)

    def quantize(self, value: Value) -> Quantize | None:
        """The quantize that an integer tensor comes from, also behind barriers, or None."""
        found = self.quantizes.get(value)
        op = getattr(value.owner, "operation", None) if found is None else None
        while op is not None and is_integer_barrier(self.bindings, op):
            value = op.operands[0]
            found = self.quantizes.get(value)
            op = getattr(value.owner, "operation", None) if found is None else None
        return found

    def range_of(self, value: Value, storage: StorageType) -> tuple[int, int]:
        """Least and greatest integer that `value` can hold.

        The clamp of the quantize it comes from, bounds of integer arithmetic, or the range of its type.
        """
        return interval_of(value, storage.bits, storage.signed, self.reader, self._quantized_range)

    def _quantized_range(self, value: Value, bits: int, signed: bool) -> tuple[int, int] | None:
        producer = self.quantize(value)
        if producer is None:
            return None
        storage = producer.params.storage
        if (storage.bits, storage.signed) != (bits, signed):
            return of_type(bits, signed)
        return producer.params.quant_min, producer.params.quant_max

    def stored_range(self, q: QValue, storage: StorageType) -> tuple[int, int]:
        """Least and greatest stored integer of a form's tensor."""
        array = self.array(q, storage)
        if array is not None and array.size:
            return int(array.min()), int(array.max())
        if isinstance(q, Existing) and q.cast is None:
            return self.range_of(q.value, storage)
        if isinstance(q, Moved) and (q.fill is None or isinstance(q.fill, int)):
            ends = [self.stored_range(inner, q.storage) for inner, _ in q.inputs]
            ends += [] if q.fill is None else [(q.fill, q.fill)]
            return min(low for low, _ in ends), max(high for _, high in ends)
        return storage.min, storage.max

    def extents_of(self, q: QValue) -> Extents:
        """The shape of an integer tensor."""
        if isinstance(q, Folded):
            return tuple(q.array.shape)
        if isinstance(q, Existing):
            return self.bindings.extents(q.value.type)
        made: Value = q.layout.op.results[0] if isinstance(q, Moved) else q.decision.node.result
        return self.bindings.extents(made.type)

    def is_readable(self, q: QValue, index: Index, extents: Extents) -> bool:
        """Whether an integer tensor is read at whole dimensions, also split and merged in their order."""
        return is_plain(index) or regrouped(index, self.extents_of(q), extents) is not None

    def array(self, q: QValue, storage: StorageType) -> Array | None:
        """Constant values of an integer tensor, unsigned storage read as such, or None."""
        raw = self._array(q)
        if raw is None or storage.signed or raw.dtype.kind != "i":
            return raw
        if storage.bits < 8 * raw.dtype.itemsize:
            return raw & ((1 << storage.bits) - 1)
        return raw.view(raw.dtype.name.replace("int", "uint"))

    def _array(self, q: QValue) -> Array | None:
        if isinstance(q, Folded):
            return q.array
        if isinstance(q, Existing):
            return None if q.cast is not None else self.reader.constants.read(q.value)
        if not isinstance(q, Moved) or len(q.inputs) != 1 or q.layout.index is None or q.fill is not None:
            return None
        inner, index = q.inputs[0]
        source = self._array(inner)
        extents = self.bindings.extents(q.layout.op.results[0].type)
        if source is None or None in extents:
            return None
        sizes = [n or 0 for n in extents]
        if q.layout.kind == "reshape" and index == identity(source.ndim):
            return source.reshape(sizes)
        moved = gather(source, compose(index, q.layout.index, extents), sizes)
        return np.broadcast_to(moved, sizes)


#: Reasons by node result, kept when a fusion refuses.
Refusals: TypeAlias = Mapping[Value, Refusal]
Check: TypeAlias = Callable[[Node, Environment], "Decision | Refusal"]
