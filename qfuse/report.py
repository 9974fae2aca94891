"""The report: what was applied, what was left in float and why, as text, JSON and compiler remarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qfuse._mlir import Bindings, Operation, Value
from qfuse.graph import AccumForm, Decision, Environment, StoredForm
from qfuse.matchers.contraction import loop_extent
from qfuse.matchers.nodes import (
    Contraction,
    Contradiction,
    Dequantize,
    FakeQuantize,
    Node,
    Quantize,
    Reduction,
)
from qfuse.missed import Findings, Reasons

VERSION = 1


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


def collect(report: Report, found: Findings) -> None:
    """Fills a report from an analysis: every compute operation that touches a dequantized value has an entry."""
    bindings, env, nodes = found.bindings, found.env, found.nodes
    live, floats, functions = found.live, found.floats, found.functions
    carried_out = set(live)
    inside = {o.results[0] for n in nodes if isinstance(n, Contraction) for o in n.through if _has_one_user(o)}
    counted: list[tuple[Node, bool]] = []
    reasons = Reasons(found, carried_out)
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
        reason = None if node.result in inside else reasons.of(node)
        if reason is not None:
            place = _place(bindings, node, function)
            report.missed.append({**place, "reason": reason.reason, "hint": reason.hint})
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
