"""The report: what was applied, what was left in float and why, as text, JSON and compiler remarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from qfuse._mlir import Bindings, Operation, Value
from qfuse.graph import AccumForm, Decision, Environment, Refusal, StoredForm
from qfuse.matchers.contraction import loop_extent
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

VERSION = 1

_LONGEST_WAY = 32
"""Values looked at between a contraction and what a hint of it names."""


@dataclass
class Report:
    """What one run did; plain data that outlives the module.

    Attributes:
        target: name of the target.
        problems: plugins that failed to load.
        applied: one entry a fusion: `fusion`, `op`, `location`, `function`, `exactness`, and facts of the fusion.
        missed: one entry an operation left in float: `op`, `location`, `function`, `reason`, `hint`.
        already_integer: contractions that were integer before: `op`, `location`, `function`, `macs`.
        summary: counts; see `docs/diagnostics.md`.
        functions: the same for each function: `integer_macs`, `float_macs`, and with the option `workload`
            `bytes_before` and `bytes_after`.
        policy: the option of that name.
        cost: with the policy `profitable` or the option `explain_cost` one entry a region; see `docs/cost-model.md`.
    """

    target: str
    problems: list[str] = field(default_factory=list[str])
    applied: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    missed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    already_integer: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    summary: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    functions: dict[str, dict[str, int | None]] = field(default_factory=dict[str, "dict[str, int | None]"])
    policy: str = "always"
    cost: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    quantization_found: bool = True

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data (schema version 1, see `docs/diagnostics.md`)."""
        return {
            "version": VERSION,
            "target": self.target,
            "summary": dict(self.summary),
            "functions": {name: dict(facts) for name, facts in self.functions.items()},
            "applied": [dict(e) for e in self.applied],
            "missed": [dict(e) for e in self.missed],
            "already_integer": [dict(e) for e in self.already_integer],
            "policy": self.policy,
            "cost": [dict(e) for e in self.cost],
            "problems": list(self.problems),
        }

    def remarks(self) -> list[str]:
        """One compiler-style line an entry: `location: remark: ...` or `location: missed: ...`."""
        lines = [f"qfuse: warning: {p}" for p in self.problems]
        if not self.quantization_found:
            lines.append("qfuse: remark: the module holds no quantize, dequantize or integer contraction; unchanged")
        for entry in self.applied:
            facts = ", ".join(f"{k} {v}" for k, v in _facts(entry) if v is not None)
            lines.append(f"{entry['location']}: remark: {entry['fusion']}: {entry['op']}: {facts}")
        for entry in self.already_integer:
            lines.append(f"{entry['location']}: remark: {entry['op']} is integer already")
        for entry in self.missed:
            hint = f" ({entry['hint']})" if entry["hint"] else ""
            lines.append(f"{entry['location']}: missed: {entry['op']}: {entry['reason']}{hint}")
        return lines

    def text(self) -> str:
        """A summary for people: counts, then one line an entry."""
        s = self.summary
        lines = [f"target {self.target}"]
        lines += [f"warning: {p}" for p in self.problems]
        if not self.quantization_found:
            lines.append("the module holds no quantize, dequantize or integer contraction; it is unchanged")
            return "\n".join(lines)
        lines.append(
            f"quantized compute operations: {s['quantized_compute_ops']}, of these in integers: {s['integer_ops']};"
            f" float operations left: {s['float_ops_left']}"
        )
        if s["quantized_macs"]:
            lines.append(f"multiply-accumulates in integers: {s['integer_macs']} of {s['quantized_macs']}")
        lines += [_function_line(name, facts) for name, facts in self.functions.items() if "bytes_before" in facts]
        if self.applied:
            lines.append(f"applied ({len(self.applied)}):")
            for e in self.applied:
                facts = ", ".join(f"{k} {v}" for k, v in _facts(e) if v is not None)
                lines.append(f"  {e['location']}  {e['fusion']}  {e['op']}: {facts}")
        if self.already_integer:
            lines.append(f"integer already ({len(self.already_integer)}):")
            lines += [f"  {e['location']}  {e['op']}" for e in self.already_integer]
        if self.missed:
            lines.append(f"missed ({len(self.missed)}):")
            for e in self.missed:
                lines.append(f"  {e['location']}  {e['op']}: {e['reason']}")
                if e["hint"]:
                    lines.append(f"      to fuse it: {e['hint']}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def _function_line(name: str, facts: Mapping[str, int | None]) -> str:
    shown = {k: "unknown" if v is None else v for k, v in facts.items()}
    macs_text = f"{shown.get('integer_macs', 0)} integer and {shown.get('float_macs', 0)} float multiply-accumulates"
    return f"function {name}: {macs_text}; bytes moved: {shown['bytes_before']}, after {shown.get('bytes_after', '-')}"


def _facts(entry: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in entry.items():
        if key == "repaired":
            yield key, _REPAIRED
        elif key not in ("fusion", "op", "location", "function", "macs"):
            yield key, value


_REPAIRED = "(unsigned storage was taken for signed, so results differ from the unfused module's)"


def applied_entry(bindings: Bindings, decision: Decision, function: str) -> dict[str, Any]:
    """The report entry of a decision."""
    place = {"fusion": decision.fusion.id, **_place(bindings, decision.node, function)}
    return {**place, "exactness": decision.exactness, **decision.detail}


def _has_one_user(op: Operation) -> bool:
    return len(list(op.results[0].uses)) == 1


def _place(bindings: Bindings, node: Node, function: str) -> dict[str, Any]:
    return {"op": node.op.name, "location": bindings.location(node.op), "function": function}


def macs(node: Contraction) -> int | None:
    """Multiply-accumulates of a contraction, None when an extent is dynamic."""
    return loop_extent(node.extents, tuple(range(len(node.extents))))


class Findings(Protocol):
    """What an analysis of a module found and decided; see `qfuse.pipeline`."""

    bindings: Bindings
    env: Environment
    nodes: list[Node]
    refusals: dict[Value, Refusal]
    live: list[Decision]
    floats: dict[Value, AccumForm]
    functions: dict[Value, str]

    def is_dead(self, value: Value) -> bool:
        """Whether nothing reads a value once the plan is carried out."""
        ...


def collect(report: Report, found: Findings) -> None:
    """Fills a report from an analysis: every compute operation that touches a dequantized value has an entry."""
    bindings, env, nodes = found.bindings, found.env, found.nodes
    live, floats, functions = found.live, found.floats, found.functions
    carried_out = set(live)
    inside = {o.results[0] for n in nodes if isinstance(n, Contraction) for o in n.through if _has_one_user(o)}
    steps = quantize_steps(nodes)
    counted: list[tuple[Node, bool]] = []
    left = _left_with_their_root(found, carried_out)
    known = {n.result: n for n in nodes}
    report.quantization_found = False
    for node in nodes:
        decision = env.decisions.get(node.result)
        if isinstance(node, Quantize | Dequantize | FakeQuantize | Contradiction):
            report.quantization_found = True
        function = functions[node.result]
        if decision is not None and decision in carried_out:
            if _is_listed(decision, found):
                report.applied.append(applied_entry(bindings, decision, function))
            if isinstance(node, Contraction | Reduction) or decision.fusion.counted:
                counted.append((node, True))
            elif node.result in env.elementwise:
                counted.append((node, False))  # a quantize that is only written anew
            continue
        if isinstance(node, Contraction) and node.integer:
            report.quantization_found = True
            report.already_integer.append({**_place(bindings, node, function), "macs": macs(node)})
            counted.append((node, True))
            continue
        if _computes_on_stored(node, found):
            counted.append((node, False))
        if node.result in inside or node.result in left:
            continue
        reason = _missed(node, decision, found.refusals.get(node.result), env, steps)
        if reason is not None and node.result not in found.refusals:
            of_root = _reason_of_root(node, found)
            reason = reason if of_root is None else of_root
        if reason is not None and (isinstance(node, Contradiction) or not found.is_dead(node.result)):
            hint = _behind_contradiction(node, found, known) or reason.hint
            report.missed.append({**_place(bindings, node, function), "reason": reason.reason, "hint": hint})
    _results(report, live, [d for d in live if _is_listed(d, found)], floats)
    done = [n for n, integer in counted if integer]
    report.functions = _macs_by_function(nodes, {id(n) for n in done}, functions)
    every = [macs(n) for n, _ in counted if isinstance(n, Contraction)]
    some = [macs(n) for n in done if isinstance(n, Contraction)]
    report.summary = {
        "quantized_compute_ops": len(counted),
        "integer_ops": len(done),
        "float_ops_left": len(report.missed),
        "quantized_macs": None if None in every else sum(m or 0 for m in every),
        "integer_macs": None if None in some else sum(m or 0 for m in some),
    }


def _computes_on_stored(node: Node, found: Findings) -> bool:
    """Whether a node that is not rewritten computes on dequantized values; not a sum that is part of another."""
    if isinstance(node, Contraction | Reduction) and _all_stored(node, found.env):
        return not (isinstance(node, Reduction) and found.is_dead(node.result))
    return node.result in found.env.elementwise and found.env.decisions.get(node.result) is None


def _macs_by_function(
    nodes: Sequence[Node], integer: set[int], functions: Mapping[Value, str]
) -> dict[str, dict[str, int | None]]:
    """Multiply-accumulates of every contraction and convolution, also those that were never quantized."""
    found: dict[str, dict[str, int | None]] = {}
    for node in nodes:
        if not isinstance(node, Contraction):
            continue
        facts = found.setdefault(functions[node.result], {"integer_macs": 0, "float_macs": 0})
        kind = "integer_macs" if id(node) in integer else "float_macs"
        before, more = facts[kind], macs(node)
        facts[kind] = None if before is None or more is None else before + more
    return found


def _is_listed(decision: Decision, found: Findings) -> bool:
    """Whether a decision has an entry of its own; not where a dequantize is a step of another."""
    node = decision.node
    if not decision.fusion.listed or not isinstance(node, Dequantize):
        return decision.fusion.listed
    readers = [u.owner.operation.results for u in node.result.uses]
    outer = [found.env.decisions.get(r[0]) if len(r) else None for r in readers]
    return not outer or any(
        d is None or not isinstance(d.node, Dequantize) or d.node.storage != node.storage for d in outer
    )


def _results(
    report: Report, live: Sequence[Decision], listed: Sequence[Decision], floats: Mapping[Value, AccumForm]
) -> None:
    """Says of each applied contraction what it ends in: stored integers, float values or both."""
    ends: dict[int, set[str]] = {}
    classes: dict[int, set[str]] = {}
    for decision in live:
        for need in decision.needs:
            if isinstance(need, Decision):
                ends.setdefault(id(need), set()).add(str(decision.detail.get("result", decision.exactness)))
                classes.setdefault(id(need), set()).add(decision.exactness)
    for form in floats.values():
        ends.setdefault(id(form.decision), set()).add(form.element)
        classes.setdefault(id(form.decision), set()).add(form.decision.exactness)
    for decision, entry in zip(listed, report.applied, strict=True):
        if id(decision) in ends:
            entry["result"] = " and ".join(sorted(ends[id(decision)]))
            entry["exactness"] = " and ".join(sorted(classes[id(decision)]))


def _all_stored(node: Contraction | Reduction, env: Environment) -> bool:
    operands = (node.operand,) if isinstance(node, Reduction) else (node.lhs, node.rhs)
    return all(isinstance(env.form(v), StoredForm) for v in operands)


def _behind_contradiction(node: Node, found: Findings, known: Mapping[Value, Node]) -> str:
    """The hint to mend the contradictory quantize or dequantize that an operand of a contraction comes from, if any."""
    operands = (node.lhs, node.rhs) if isinstance(node, Contraction) else ()
    pending = [v for v in operands if not isinstance(found.env.form(v), StoredForm)]
    for _ in range(_LONGEST_WAY):
        if not pending:
            break
        value = pending.pop(0)
        source = known.get(value)
        if isinstance(source, Contradiction):
            return f"correct the quantization parameters at {found.bindings.location(source.op)}"
        owner = getattr(value.owner, "operation", None)
        if owner is not None and not isinstance(source, Contraction):
            pending += list(owner.operands)
    return ""


def _reason_of_root(node: Node, found: Findings) -> Refusal | None:
    """Why the quantize stays in float that an expression with this operation in it ends in, or None."""
    roots = [r for r, through in found.env.elementwise.items() if node.result in through and r in found.refusals]
    return found.refusals[roots[0]] if roots else None


def _left_with_their_root(found: Findings, carried_out: set[Decision]) -> set[Value]:
    """Float values that only lead to quantizes whose own entry says why their expression stays in float."""
    env = found.env
    refused = {r for r in found.refusals if env.decisions.get(r) not in carried_out}
    left: set[Value] = set()
    for root, through in env.elementwise.items():
        if root not in refused:
            continue
        for value in reversed(through):
            users = [u.owner.operation.results for u in value.uses]
            if all(len(r) and (r[0] in left or (r[0] in refused and r[0] in env.elementwise)) for r in users):
                left.add(value)
    return left


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


def _missed(
    node: Node, decision: Decision | None, refusal: Refusal | None, env: Environment, steps: set[Value]
) -> Refusal | None:
    """Why a node stays in float, or None when it is not a compute operation on dequantized values."""
    if isinstance(node, Contradiction):
        return Refusal(node.reason, "correct the quantization parameters")
    if isinstance(node, FakeQuantize):
        return Refusal(
            "fake-quantize stays in float: there is no integer tensor", "convert the model to quantize / dequantize"
        )
    if refusal is not None:
        return refusal
    if isinstance(node, Reduction) and decision is not None:
        return Refusal("no quantize reads its result", "quantize the result")
    if isinstance(node, LayoutNode | Dequantize) or decision is not None or node.result in steps:
        return None
    if isinstance(node, Quantize):
        form = env.form(node.input.payload[0]) if node.input.op == "elem" else None
        fusion = "qfuse.requantize" if isinstance(form, AccumForm) else "qfuse.rescale"
        return None if form is None else Refusal("no registered fusion takes this quantize", f"enable {fusion}")
    forms = [f for f in map(env.form, node.op.operands) if f is not None]
    if not forms:
        return None
    stored = any(isinstance(f, StoredForm) for f in forms)
    if isinstance(node, Contraction):
        if not stored:
            return Refusal("no operand is dequantized", "quantize both operands")
        kind = "convolution" if isinstance(node, Convolution) else "contraction"
        return Refusal(f"no registered fusion takes this {kind}", f"enable qfuse.{kind}")
    what = node.kind if isinstance(node, Opaque) else _described(node)
    if stored:
        return Refusal(f"no fusion is registered for {what} on dequantized values")
    return Refusal(f"no fusion is registered for {what} on accumulators", "quantize the operand")


def _described(node: Node) -> str:
    if isinstance(node, Reduction):
        loops = "windows" if any(len(e.terms) > 1 for e in node.index) else "dimensions"
        return f"a{'n' * node.kind.startswith('a')} {node.kind} over {loops}"
    return f"elementwise {node.scalar.op}" if isinstance(node, Elementwise) else type(node).__name__.lower()
