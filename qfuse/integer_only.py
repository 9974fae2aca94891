"""Names what keeps float arithmetic between the quantize of a function's inputs and the dequantize of its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from qfuse._mlir import Bindings, Operation, Value
from qfuse.graph import Decision, Refusal
from qfuse.matchers.nodes import Dequantize, Node, Quantize
from qfuse.missed import Findings, quantize_steps
from qfuse.report import Report


def name_float_operations(report: Report, found: Findings, root: Operation) -> None:
    """Adds a missed entry for each operation between quantized values that stays in float and has none yet."""
    known = {(e["op"], e["location"], e["function"]) for e in report.missed}
    for op, function in _between(found, root):
        place = {"op": op.name, "location": found.bindings.location(op), "function": function}
        if (place["op"], place["location"], place["function"]) in known:
            continue
        refusal = Refusal(
            "stays in float between a dequantize and a quantize",
            "quantize its operands and its result in a way that a fusion takes",
        )
        report.missed.append({**place, "reason": refusal.reason, "hint": refusal.hint})
    report.summary["float_ops_left"] = len(report.missed)


def _between(found: Findings, root: Operation) -> Iterator[tuple[Operation, str]]:
    """Float operations on paths from a dequantized value to a quantize, that are left once the plan is carried out."""
    view = _View(found)
    for function, operations in _blocks(found.bindings, root):
        before = view.computed_from_integers(operations)
        after = view.read_by_integers(operations)
        for op in operations:
            if view.is_left(op) and any(v in before for v in view.read(op)) and any(r in after for r in op.results):
                yield op, function


class _View:
    """What is left of a function's operations."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._nodes: Mapping[Value, Node] = {n.result: n for n in found.nodes}
        self._live = {d.node.result: d for d in found.live}
        self._steps = quantize_steps(found.nodes)

    def is_left(self, op: Operation) -> bool:
        """Whether an operation computes on floats, and is no quantize or dequantize."""
        result = _result(op)
        if result is None or self._replaced(result) is not None or result in self._found.floats:
            return False
        if result in self._steps:
            return False
        if isinstance(self._nodes.get(result), Quantize | Dequantize) or self._found.is_dead(result):
            return False
        return any(self._is_float(v) for v in (*op.operands, *op.results))

    def computed_from_integers(self, operations: Iterable[Operation]) -> set[Value]:
        """Float values that are dequantized, at run time, or computed from such."""
        values: set[Value] = set()
        for op in operations:
            result = _result(op)
            if result is None or self._replaced(result) is not None:
                continue
            node = self._nodes.get(result)
            if isinstance(node, Dequantize):
                if self._found.env.reader.constants.read(node.storage) is None:
                    values.add(result)
            elif result in self._found.floats or any(v in values for v in self.read(op)):
                values.update(op.results)
        return values

    def read_by_integers(self, operations: list[Operation]) -> set[Value]:
        """Float values that are quantized, or that such are computed from."""
        values: set[Value] = set()
        for op in reversed(operations):
            result = _result(op)
            if result is None:
                continue
            decision = self._replaced(result)
            if decision is not None:
                values.update(decision.float_inputs)
                continue
            node = self._nodes.get(result)
            if isinstance(node, Dequantize) or self._found.is_dead(result):
                continue
            if isinstance(node, Quantize) or any(r in values for r in op.results):
                values.update(self.read(op))
        return values

    def read(self, op: Operation) -> list[Value]:
        """Operands, and tensors that the body reads elements of."""
        return [*op.operands, *self._found.env.reader.captured_tensors(op)]

    def _replaced(self, result: Value) -> Decision | None:
        decision = self._live.get(result)
        return decision if decision is not None and decision.replaces else None

    def _is_float(self, value: Value) -> bool:
        info = self._found.bindings.tensor_info(value.type)
        name = self._found.bindings.type_name(value.type) if info is None else info[1]
        return name.startswith(("f", "bf"))


def _result(op: Operation) -> Value | None:
    return op.results[0] if len(op.results) else None


def _blocks(bindings: Bindings, root: Operation) -> Iterator[tuple[str, list[Any]]]:
    for function in functions(root):
        name = function.attributes["sym_name"].value if "sym_name" in function.attributes else function.name
        for block in bindings.blocks(function):
            yield name, [o.operation for o in block.operations]


def functions(root: Operation) -> Iterator[Operation]:
    """The operations directly inside a module, nested modules included; `root` itself where it is no module."""
    if root.name != "builtin.module":
        yield root
        return
    for region in root.regions:
        for block in region.blocks:
            for op in block.operations:
                yield from functions(op.operation)
