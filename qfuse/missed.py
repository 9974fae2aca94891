"""Why operations stay in float, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from qfuse._mlir import Bindings, Operation, Value
from qfuse.graph import AccumForm, Decision, Environment, Refusal, StoredForm
from qfuse.matchers.nodes import (
    Contraction,
    Contradiction,
    Convolution,
    Dequantize,
    Elementwise,
    FakeQuantize,
    LayoutNode,
    Node,
    Opaque,
    Quantize,
    Reduction,
)
from qfuse.matchers.scalar import leaves

_LONGEST_WAY = 32
"""Values looked at between a contraction and what a hint of it names."""


class Findings(Protocol):
    """What an analysis of a module found and decided; see `qfuse.pipeline`."""

    bindings: Bindings
    env: Environment
    nodes: list[Node]
    refusals: dict[Value, Refusal]
    passed_over: dict[Value, Refusal]
    live: list[Decision]
    floats: dict[Value, AccumForm]
    functions: dict[Value, str]

    def is_dead(self, value: Value) -> bool:
        """Whether nothing reads a value once the plan is carried out."""
        ...


class Reasons:
    """Why each operation of an analysis stays in float."""

    def __init__(self, found: Findings, carried_out: set[Decision]) -> None:
        """Reads what all operations have in common.

        Args:
            found: the analysis.
            carried_out: its live decisions.
        """
        self._found = found
        self._env = found.env
        self._carried_out = carried_out
        self._steps = quantize_steps(found.nodes)
        self._nodes = {n.result: n for n in found.nodes}
        self._quantized = _read_by_quantizes(found.nodes)
        self._roots: dict[Value, list[Value]] = {}  # quantizes that expressions with a value in them end in
        for root, through in found.env.elementwise.items():
            for value in through:
                self._roots.setdefault(value, []).append(root)
        self._left = self._left_with_their_root()

    def of(self, node: Node) -> Refusal | None:
        """The entry of an operation whose decision is not carried out; None when it needs none."""
        if node.result in self._left:
            return None
        reason = self._reason(node)
        if reason is not None and node.result not in self._found.refusals:
            of_root = self._reason_of_root(node)
            reason = reason if of_root is None else of_root
        if reason is None or (not isinstance(node, Contradiction) and self._found.is_dead(node.result)):
            return None
        hint = self._hint(node)
        return replace(reason, hint=hint) if hint else reason

    def _hint(self, node: Node) -> str:
        """To mend the contradictory quantize or dequantize that an operand of a contraction comes from, if any."""
        operands = (node.lhs, node.rhs) if isinstance(node, Contraction) else ()
        pending = [v for v in operands if not isinstance(self._env.form(v), StoredForm)]
        for _ in range(_LONGEST_WAY):
            if not pending:
                break
            value = pending.pop(0)
            source = self._nodes.get(value)
            if isinstance(source, Contradiction):
                return f"correct the quantization parameters at {self._found.bindings.location(source.op)}"
            owner = getattr(value.owner, "operation", None)
            if owner is not None and not isinstance(source, Contraction):
                pending += list(owner.operands)
        return ""

    def _reason_of_root(self, node: Node) -> Refusal | None:
        """Why the quantize stays in float that an expression with this operation in it ends in, or None."""
        for root in self._roots.get(node.result, ()):
            reason = self._found.refusals.get(root, self._found.passed_over.get(root))
            if reason is not None:
                return reason
        return None

    def _left_with_their_root(self) -> set[Value]:
        """Float values that only lead to quantizes whose own entry says why their expression stays in float."""
        env = self._env
        refused = {r for r in self._found.refusals if env.decisions.get(r) not in self._carried_out}
        left: set[Value] = set()
        for root, through in env.elementwise.items():
            if root not in refused:
                continue
            for value in reversed(through):
                users = [u.owner.operation.results for u in value.uses]
                if all(len(r) and (r[0] in left or (r[0] in refused and r[0] in env.elementwise)) for r in users):
                    left.add(value)
        return left

    def _reason(self, node: Node) -> Refusal | None:
        """Why a node stays in float, or None when it is not a compute operation on dequantized values."""
        env, decision = self._env, self._env.decisions.get(node.result)
        refusal = self._found.refusals.get(node.result)
        if isinstance(node, Contradiction):
            return Refusal(node.reason, "correct the quantization parameters")
        if isinstance(node, FakeQuantize):
            return Refusal(
                "fake-quantize stays in float: there is no integer tensor", "convert the model to quantize / dequantize"
            )
        if refusal is not None:
            return refusal
        if isinstance(node, Reduction) and decision is not None:
            of_reader = self._of_reader(node.result)
            unread = Refusal("no quantize reads its result", "quantize the result")
            return unread if of_reader is None else of_reader
        if isinstance(node, LayoutNode | Dequantize) or decision is not None or node.result in self._steps:
            return None
        if isinstance(node, Quantize):
            form = env.form(node.input.payload[0]) if node.input.op == "elem" else None
            fusion = "qfuse.requantize" if isinstance(form, AccumForm) else "qfuse.rescale"
            return None if form is None else Refusal("no registered fusion takes this quantize", f"enable {fusion}")
        return self._of_operands(node)

    def _of_reader(self, value: Value) -> Refusal | None:
        """Why what reads a pooled value behind an epilogue is refused, or None."""
        for _ in range(_LONGEST_WAY):
            form = self._env.form(value)
            if not isinstance(form, AccumForm) or not form.poolings:
                return None
            read = [use.owner.operation.results for use in value.uses]
            results = [r[0] for r in read if len(r)]
            refused = [self._found.refusals[r] for r in results if r in self._found.refusals]
            if refused or not results:
                return refused[0] if refused else None
            value = results[0]
        return None

    def _of_operands(self, node: Node) -> Refusal | None:
        """Why a node that no fusion took stays, or None when it reads no dequantized value and no accumulators."""
        env = self._env
        forms = [f for f in map(env.form, node.op.operands) if f is not None]
        if any(map(env.form, env.reader.captured_tensors(node.op))):
            return Refusal(
                "its body reads a dequantized tensor at places that it computes", "gather the elements first"
            )
        if not forms:
            return None
        stored = any(isinstance(f, StoredForm) for f in forms)
        if isinstance(node, Contraction):
            if not stored:
                return Refusal("no operand is dequantized", "quantize both operands")
            kind = "convolution" if isinstance(node, Convolution) else "contraction"
            return Refusal(f"no registered fusion takes this {kind}", f"enable qfuse.{kind}")
        if stored and isinstance(node, Elementwise):
            return self._of_elementwise(node)
        what = node.kind if isinstance(node, Opaque) else _described(node)
        if stored:
            return Refusal(f"no fusion is registered for {what} on dequantized values")
        return Refusal(f"no fusion is registered for {what} on accumulators", "quantize the operand")

    def _of_elementwise(self, node: Elementwise) -> Refusal:
        """Why an operation on dequantized values stays that no refused quantize ends."""
        if node.result not in self._quantized:
            return Refusal("no quantize reads its result", "quantize the result")
        if self._is_fused_elsewhere(node.result):
            return Refusal("its result is also read as a float value", "quantize it for each of its readers")
        return Refusal(f"no fusion is registered for {_described(node)} on dequantized values")

    def _is_fused_elsewhere(self, value: Value) -> bool:
        """Whether a fused expression computes a value anew, so that only others read it as it is."""
        return any(self._env.decisions.get(root) in self._carried_out for root in self._roots.get(value, ()))


def _read_by_quantizes(nodes: Sequence[Node]) -> set[Value]:
    """Values that a quantize reads, at once or behind elementwise operations and moves."""
    found: set[Value] = set()
    for node in reversed(nodes):
        quantizes = isinstance(node, Quantize | FakeQuantize)
        if quantizes or (isinstance(node, Elementwise | LayoutNode) and node.result in found):
            found.update(node.op.operands)
        if isinstance(node, Quantize | FakeQuantize):
            found.update(leaf.payload[0] for leaf in leaves(node.input) if leaf.op == "elem")
    return found


def quantize_steps(nodes: Sequence[Node]) -> set[Value]:
    """Results of operations that are steps of a quantize spelled as several operations."""
    steps: set[Value] = set()
    for node in nodes:
        if isinstance(node, Quantize | FakeQuantize) and node.input.op == "elem":
            steps |= steps_of(node)
    return steps


def steps_of(node: Quantize | FakeQuantize) -> set[Value]:
    """Results of the operations between a tensor and the last operation of the quantize that reads it."""
    source = node.input.payload[0]
    steps: set[Value] = set()
    pending = [node.op]
    while pending:
        for value in pending.pop().operands:
            owner = getattr(value.owner, "operation", None)
            if value == source or owner is None or value in steps or not _computes(owner):
                continue
            steps.add(value)
            pending.append(owner)
    return steps


def _computes(op: Operation) -> bool:
    """Whether an operation may be a step of a quantize that is spelled as several."""
    if op.name.startswith(("tosa.const", "arith.const")):
        return False
    return op.name == "linalg.generic" or op.name.startswith(("tosa.", "arith.", "math."))


def _described(node: Node) -> str:
    if isinstance(node, Reduction):
        loops = "windows" if any(len(e.terms) > 1 for e in node.index) else "dimensions"
        return f"a{'n' * node.kind.startswith('a')} {node.kind} over {loops}"
    return f"elementwise {node.scalar.op}" if isinstance(node, Elementwise) else type(node).__name__.lower()
