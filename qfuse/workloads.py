"""Workloads of the module's own operations and of planned ones, in terms that do not depend on the dialect."""

from __future__ import annotations

from typing import Any

from qfuse._mlir import Bindings, Operation, Value
from qfuse.cost.workload import (
    DIALECTS,
    FREE,
    Workload,
    count,
    element_bits,
    size_in_bytes,
    tensors_read,
    value_bytes,
)
from qfuse.emit.expression import nodes
from qfuse.emit.spec import PlannedContraction
from qfuse.fusions.expression import CorrectedAccumulators
from qfuse.fusions.kernel import KernelFusion
from qfuse.fusions.requires import is_constant
from qfuse.graph import AccumForm, Decision, Environment, Existing, Folded, Made, Moved, QValue, StoredForm
from qfuse.matchers.nodes import Contraction, Convolution, Dequantize, LayoutNode, Node, Quantize, Reduction
from qfuse.qparams import StorageType
from qfuse.settle import settled

Read = tuple[str, "int | None"]

#: Operations an element of a quantize: divide, round, add, two clamps, convert; of a dequantize: subtract, convert,
#: multiply.
QUANTIZE, DEQUANTIZE = 6, 3
_CONSTANT = ("arith.constant", "tosa.const", "tosa.const_shape", "tensor.empty")
_FREE_MOVES = ("reshape", "cast", "barrier")


class Workloads:
    """What operations of one module compute and move, before and after."""

    def __init__(self, bindings: Bindings, env: Environment) -> None:
        """Nothing read yet."""
        self._bindings = bindings
        self._env = env
        self._constant: dict[Value, bool] = {}

    # -- as the module stands --------------------------------------------------------------------------------

    def of_operation(self, op: Operation, node: Node | None) -> Workload | None:
        """What an operation of the module does; None when it computes and moves nothing."""
        if op.name in FREE or not op.name.startswith(DIALECTS):
            return None
        reads = tuple(self._tensor(v) for v in tensors_read(op) if self._bindings.is_ranked_tensor(v.type))
        writes = tuple(self._tensor(v) for v in op.results)
        kind = _kind(node)
        if isinstance(node, Contraction | Reduction):
            element = self._element(node.lhs if isinstance(node, Contraction) else node.operand)
            compute = f"{element}x{element}" if isinstance(node, Contraction) else element
            return Workload(kind, False, "", compute, count(node.extents), reads, writes)
        if isinstance(node, LayoutNode):
            return Workload(kind, False, "", "", 0, reads, writes)
        elements = max(filter(None, (self._elements(v) for v in (*tensors_read(op), *op.results))), default=None)
        if any(size is None for _, size in (*reads, *writes)):
            elements = None
        operations = None if elements is None else elements * self._operations(op, node)
        return Workload(kind, False, "", self._computed_in(op), operations, reads, writes)

    def is_constant(self, value: Value) -> bool:
        """Whether a tensor is computed from constants only, so that a compiler does it ahead of time."""
        return settled(value, self._constant, self._made_of, all, meanwhile=False)

    def _made_of(self, value: Value) -> bool | list[Value]:
        op = getattr(value.owner, "operation", None)
        if op is None or op.name in _CONSTANT:
            return op is not None
        return list(op.operands) or False if op.name.startswith(DIALECTS) else False

    def _operations(self, op: Operation, node: Node | None) -> int:
        if op.name != "linalg.generic":
            return {Quantize: QUANTIZE, Dequantize: DEQUANTIZE}.get(type(node), 1) if node is not None else 1  # type: ignore[call-overload]
        body = (o.operation.name for o in op.regions[0].blocks[0].operations)
        return max(sum(name != "arith.constant" for name in body) - 1, 1)

    def _computed_in(self, op: Operation) -> str:
        """The widest float type that an operation uses, else the widest integer type; conditions are free."""
        found = [self._element(v) for v in (*op.operands, *op.results) if self._bindings.is_ranked_tensor(v.type)]
        found = [element for element in found if element != "i1"]
        floats = [e for e in found if e.startswith(("f", "bf"))]
        widest = max(floats or found, key=lambda e: element_bits(e) or 0, default="")
        return widest if floats or not widest.startswith("i") else f"s{widest[1:]}"

    def _element(self, value: Value) -> str:
        return self._bindings.element_name(value.type)

    def _elements(self, value: Value) -> int | None:
        info = self._bindings.tensor_info(value.type)
        return None if info is None else count(info[0])

    def _tensor(self, value: Value) -> Read:
        info = self._bindings.tensor_info(value.type)
        return ("", None) if info is None else (info[1], value_bytes(self._bindings, value))

    # -- as planned ------------------------------------------------------------------------------------------

    def of_decision(self, decision: Decision) -> Workload | None:
        """What a planned fusion builds; None when that computes and moves nothing."""
        if is_base(decision):
            return self._accumulate(decision)
        if isinstance(decision.fusion, CorrectedAccumulators):
            planned: PlannedContraction = decision.payload
            accumulators = self._accumulators(planned)
            elements = count(tuple(planned.extents[d] for d in planned.out_loops))
            return Workload(
                "elementwise", True, decision.fusion.id, f"s{planned.bits}", elements, (accumulators,), (accumulators,)
            )
        if isinstance(decision.form, AccumForm) and isinstance(decision.payload, StorageType):
            return self._of_pooling(decision, decision.payload)
        stored = decision.form.q if isinstance(decision.form, StoredForm) else decision.replacement
        if not isinstance(stored, Made) or stored.decision is not decision:
            return None if decision.replacement is not None else self.of_operation(decision.node.op, decision.node)
        written = self.stored(stored)
        bases = [n for n in decision.needs if isinstance(n, Decision) and is_base(n)]
        base = bases[0] if bases else None
        reads = [self.stored(n) for n in decision.needs if not isinstance(n, Decision)]
        if base is not None and isinstance(decision.fusion, KernelFusion):
            within = self._accumulate(base)
            kind, compute, operations = within.kind, within.compute, within.operations
            return Workload(kind, True, decision.fusion.id, compute, operations, tuple(reads), (written,))
        reads += [self._accumulators(b.payload) for b in bases]
        reads += [self._tensor(v) for v in decision.float_inputs if self._env.form(v) is None]
        form = getattr(decision.payload, "form", None)
        extents = self._bindings.extents(decision.node.result.type)
        if isinstance(form, AccumForm) and form.poolings:  # they follow what is written here
            extents = self._bindings.extents(form.decision.node.result.type)
            storage = _storage(decision)
            written = written if storage is None else (storage.mlir, size_in_bytes(extents, storage.bits))
        elements = count(extents)
        each, compute = self._arithmetic(decision, base)
        if isinstance(decision.node, Reduction):
            elements = count(decision.node.extents)
        operations = None if elements is None else elements * each
        kind = _planned_kind(decision, base)
        return Workload(kind, True, decision.fusion.id, compute, operations, tuple(reads), (written,))

    def _of_pooling(self, decision: Decision, storage: StorageType) -> Workload:
        """A maximum or minimum behind an epilogue, of stored integers."""
        node = decision.node
        assert isinstance(node, Reduction)
        read, written = (
            (storage.mlir, size_in_bytes(self._bindings.extents(v.type), storage.bits))
            for v in (node.operand, node.result)
        )
        operations = count(node.extents)
        return Workload(_kind(node), True, decision.fusion.id, str(storage), operations, (read,), (written,))

    def of_float_value(self, form: AccumForm, value: Value) -> Workload:
        """Making a float value from accumulators: the crossing from integer to float."""
        written = self._tensor(value)
        elements = count(form.extents)
        operations = None if elements is None else elements * (1 + len(form.steps))
        read = self._accumulators(form.decision.payload)
        return Workload("dequantize", True, "", form.element, operations, (read,), (written,))

    def of_move(self, moved: Moved) -> Workload | None:
        """A layout operation repeated on stored integers; None when it moves nothing or is done ahead of time."""
        if moved.layout.kind in _FREE_MOVES or is_constant(moved, self._env):
            return None
        reads = tuple(self.stored(inner) for inner, _ in moved.inputs)
        return Workload("layout", True, "", "", 0, reads, (self.stored(moved),))

    def stored(self, q: QValue) -> Read:
        """Type and bytes of an integer tensor."""
        if isinstance(q, Existing):
            return self._tensor(q.value)
        if isinstance(q, Folded):
            return f"i{8 * q.array.dtype.itemsize}", int(q.array.nbytes)
        if isinstance(q, Moved):
            extents = self._bindings.extents(q.layout.op.results[0].type)
            return q.storage.mlir, size_in_bytes(extents, q.storage.bits)
        decision = q.decision
        if isinstance(decision.fusion, CorrectedAccumulators):
            return self._accumulators(decision.payload)
        storage = _storage(decision)
        if storage is None:
            return self._tensor(decision.node.result)
        return storage.mlir, size_in_bytes(self._bindings.extents(decision.node.result.type), storage.bits)

    def _accumulate(self, decision: Decision) -> Workload:
        planned = decision.payload
        reads = tuple(self.stored(n) for n in decision.needs if not isinstance(n, Decision))
        if not isinstance(planned, PlannedContraction):
            return Workload("other", True, decision.fusion.id, "", None, reads, (self._accumulators(planned),))
        lhs, rhs = planned.lhs.storage, planned.rhs.storage
        compute = str(lhs) if planned.unit else f"{lhs}x{rhs}"
        writes = (self._accumulators(planned),)
        kind = _kind(decision.node)
        return Workload(kind, True, decision.fusion.id, compute, count(planned.extents), reads, writes)

    def _accumulators(self, planned: Any) -> Read:
        if not isinstance(planned, PlannedContraction):
            return "", None
        extents = tuple(planned.extents[d] for d in planned.out_loops)
        return f"i{planned.bits}", size_in_bytes(extents, planned.bits)

    def _arithmetic(self, decision: Decision, base: Decision | None) -> tuple[int, str]:
        """Operations an element, and what they compute in."""
        storage = _storage(decision)
        if isinstance(decision.node, Reduction) or _planned_kind(decision, base) in ("lookup", "layout"):
            return 1, "" if storage is None else str(storage)
        compute = "f32" if self._env.options.epilogue == "float" else "s32"
        form = getattr(decision.payload, "form", None)
        if isinstance(form, AccumForm):
            return QUANTIZE + len(form.steps), compute
        branches: tuple[Any, ...] = getattr(decision.payload, "branches", (decision.payload,))
        scalars = [b.scalar for b in branches if hasattr(b, "scalar")]
        if scalars:
            return max(sum(bool(n.args) for n in nodes(*scalars)) // len(scalars), 1), compute
        return QUANTIZE + DEQUANTIZE, compute


def is_base(decision: Decision) -> bool:
    """Whether a decision makes accumulators."""
    return isinstance(decision.form, AccumForm) and decision.form.decision is decision


def _storage(decision: Decision) -> StorageType | None:
    """Of the integers that a decision makes, where that is known."""
    if isinstance(decision.form, StoredForm):
        return decision.form.params.storage
    return decision.node.params.storage if isinstance(decision.node, Quantize) else None


def _planned_kind(decision: Decision, base: Decision | None) -> str:
    if base is not None:
        return "requantize"
    if isinstance(decision.node, Reduction):
        return _kind(decision.node)
    kinds = [r.kind for r in decision.requires if r.kind in ("elementwise", "lookup", "concat", "rescale")]
    return kinds[0] if kinds else "other"


def _kind(node: Node | None) -> str:
    if isinstance(node, Reduction):
        return {"mean": "sum", "bilinear": "sum", "argmax": "max", "argmin": "min"}.get(node.kind, node.kind)
    for type_, kind in _KINDS:
        if isinstance(node, type_):
            return kind
    return "elementwise"


_KINDS: tuple[tuple[type[Node], str], ...] = (
    (Convolution, "convolution"), (Contraction, "contraction"), (LayoutNode, "layout"), (Quantize, "quantize"),
    (Dequantize, "dequantize"),
)  # fmt: skip
