"""`plan`, `fuse` and `as_pass`: read everything, decide everything, then rewrite.

Everything that can refuse runs in `plan`. `fuse` builds the planned operations beside the old ones, verifies, switches
the uses over and erases what died. An exception while building leaves the module as it was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import networkx as nx

from qfuse._mlir import Bindings, Builder, Operation, Value
from qfuse.cost.target import Options, Target
from qfuse.emit.base import BuildContext
from qfuse.emit.expression import stored_tensors
from qfuse.errors import InputError
from qfuse.graph import AccumForm, Decision, Environment, Existing, Made, Moved, QValue, Refusal
from qfuse.matchers.linalg import Recognizer
from qfuse.matchers.nodes import Node, Quantize
from qfuse.matchers.scalar import ScalarReader
from qfuse.registry import FusionRegistry
from qfuse.report import Report, collect


class Plan:
    """What `fuse` would do: printable, serialisable, and nothing changed yet.

    Attributes:
        report: the entries, as they will stand in the report.
    """

    def __init__(self, analysis: _Analysis, report: Report) -> None:
        """Made by `plan`."""
        self._analysis = analysis
        self.report = report

    def __str__(self) -> str:
        return self.report.text()

    def to_json(self) -> dict[str, Any]:
        """The same data as the report's `to_json`."""
        return self.report.to_json()

    def graph(self) -> nx.DiGraph[int]:
        """The recognised operations and how values flow between them, one node a recognised operation.

        Node attributes: `kind`, `op`, `location`, `fusion` (id or None), `reason` (or None).
        """
        analysis = self._analysis
        graph: nx.DiGraph[int] = nx.DiGraph()
        numbers = {node.result: i for i, node in enumerate(analysis.nodes)}
        for i, node in enumerate(analysis.nodes):
            decision = analysis.env.decisions.get(node.result)
            refusal = analysis.refusals.get(node.result)
            graph.add_node(
                i,
                kind=type(node).__name__,
                op=node.op.name,
                location=analysis.bindings.location(node.op),
                fusion=None if decision is None else decision.fusion.id,
                reason=None if refusal is None else refusal.reason,
            )
            for operand in node.op.operands:
                if operand in numbers:
                    graph.add_edge(numbers[operand], i)
        return graph


class _Analysis:
    """Nodes, forms and decisions of one module or function, and what follows from them."""

    def __init__(
        self, root: Operation, bindings: Bindings, registry: FusionRegistry, target: Target, options: Options
    ) -> None:
        self.root = root
        self.bindings = bindings
        self.recognizer = Recognizer(bindings)
        self.env = Environment(bindings, self.recognizer.reader, target, options)
        self.nodes: list[Node] = []
        self.refusals: dict[Value, Refusal] = {}
        self.functions: dict[Value, str] = {}
        found = [(f, [o.operation for o in block.operations]) for f, block in _blocks(bindings, root)]
        for _, operations in found:
            self.recognizer.constants.prefetch(operations)
        for function, operations in found:
            for op in operations:
                self._visit(op, registry, function)
        self._dead: dict[Value, bool] = {}
        self.live: list[Decision] = []
        self.floats: dict[Value, AccumForm] = {}
        self._demand()

    def _visit(self, op: Operation, registry: FusionRegistry, function: str) -> None:
        node = self.recognizer.node(op)
        if node is None:
            return
        self.nodes.append(node)
        self.functions[node.result] = function
        if isinstance(node, Quantize):
            self.env.quantizes[node.result] = node
        for fusion in registry.for_node(node):
            outcome = fusion.check(node, self.env)
            if isinstance(outcome, Decision):
                self.env.decisions[node.result] = outcome
                self.refusals.pop(node.result, None)
                if outcome.form is not None:
                    self.env.forms[node.result] = outcome.form
                return
            if outcome is not None and node.result not in self.refusals:
                self.refusals[node.result] = outcome

    def _demand(self) -> None:
        """Which decisions are carried out: those whose integers replace something, and what these need.

        `live` are the decisions to build, `floats` the accumulator forms whose float value someone still reads.
        """
        wanted: set[Decision] = set()
        stack: list[Decision] = []
        pending_floats: list[Value] = []

        def want(decision: Decision) -> None:
            if decision not in wanted:
                wanted.add(decision)
                stack.append(decision)

        def read_float(value: Value) -> None:
            form = self.env.forms.get(value)
            if isinstance(form, AccumForm) and value not in self.floats:
                self.floats[value] = form
                pending_floats.append(value)

        for node in self.nodes:
            decision = self.env.decisions.get(node.result)
            if decision is None or decision.on_demand:
                continue
            if decision.replacement is not None or decision.form is None:
                want(decision)
        for node in self.nodes:
            if isinstance(self.env.forms.get(node.result), AccumForm) and self._has_float_user(node.result):
                read_float(node.result)
        while stack or pending_floats:
            while pending_floats:
                form = self.floats[pending_floats.pop()]
                want(form.decision)
                for step in form.steps:
                    operand = step.operand
                    if operand is not None and operand.scalar is not None:
                        needed = [d for q in stored_tensors(operand.scalar) for d in _decisions_in(q, self.env)]
                        for other in needed:
                            want(other)
                    elif operand is not None and operand.value is not None:
                        read_float(operand.value)
            if not stack:
                break
            decision = stack.pop()
            for need in decision.needs:
                for other in _decisions_in(need, self.env):
                    want(other)
            for value in decision.float_inputs:
                read_float(value)
        order = {node.result: i for i, node in enumerate(self.nodes)}
        self._carried_out = wanted
        self.live = sorted(wanted, key=lambda d: order[d.node.result])

    def _has_float_user(self, value: Value) -> bool:
        for use in value.uses:
            user = use.owner.operation
            results = user.results
            if not len(results):
                return True
            result = results[0]
            decision = self.env.decisions.get(result)
            if decision is None:
                return True
            replaced = decision.replacement is not None or isinstance(decision.form, AccumForm)
            if not replaced:
                return True
        return False

    def is_dead(self, value: Value) -> bool:
        """Whether nothing reads a value once the plan is carried out: all its users are replaced or dead."""
        known = self._dead.get(value)
        if known is None:
            self._dead[value] = False
            if any(value in decision.float_inputs for decision in self.live):
                return False
            users = [use.owner.operation for use in value.uses]
            known = self._dead[value] = bool(users) and all(self._goes_away(user) for user in users)
        return known

    def _goes_away(self, op: Operation) -> bool:
        if not len(op.results):
            return False
        result = op.results[0]
        if result in self.floats:
            return True
        decision = self.env.decisions.get(result)
        if decision is not None and decision.replacement is not None and decision in self._carried_out:
            return True
        return isinstance(self.env.forms.get(result), AccumForm) or self.is_dead(result)


def _decisions_in(need: QValue | Decision, env: Environment) -> Iterator[Decision]:
    if isinstance(need, Decision):
        yield need
    elif isinstance(need, Made):
        yield need.decision
    elif isinstance(need, Moved):
        for inner, _ in need.inputs:
            yield from _decisions_in(inner, env)
    elif isinstance(need, Existing):
        decision = env.decisions.get(need.value)
        if decision is not None and decision.on_demand:
            yield decision


def _blocks(bindings: Bindings, root: Operation) -> Iterator[tuple[str, Any]]:
    if root.name != "builtin.module":
        for block in bindings.blocks(root):
            yield _symbol(root), block
        return
    for region in root.regions:
        for outer in region.blocks:
            for op in outer.operations:
                op = op.operation
                if op.name == "builtin.module":
                    yield from _blocks(bindings, op)
                    continue
                for block in bindings.blocks(op):
                    yield _symbol(op), block


def _symbol(op: Operation) -> str:
    return op.attributes["sym_name"].value if "sym_name" in op.attributes else op.name


@lru_cache(maxsize=1)
def _installed() -> FusionRegistry:
    return FusionRegistry.discover()


def _analyse(
    root: Any, target: str | Target, registry: FusionRegistry | None, options: dict[str, Any]
) -> tuple[_Analysis, Report]:
    operation = getattr(root, "operation", root)
    bindings = Bindings.of(root)
    known = _installed() if registry is None else registry
    chosen = known.target(target) if isinstance(target, str) else target
    parsed = Options.of(chosen, options)
    usable = known.restricted(chosen, parsed.fusions, parsed.disable)
    known.emitter(chosen)
    analysis = _Analysis(operation, bindings, usable, chosen, parsed)
    report = Report(chosen.name, list(known.problems))
    collect(report, analysis)
    return analysis, report


def plan(module: Any, target: str | Target = "linalg", registry: FusionRegistry | None = None, **options: Any) -> Plan:
    """What `fuse` would do to `module`, which is not changed.

    Args:
        module: an `ir.Module` (or a `builtin.module` / `func.func` operation) of any MLIR binding.
        target: a target's name, or a `Target`.
        registry: the fusions and targets to choose from; those installed when None.
        **options: see `qfuse.Options`.

    Raises:
        UsageError: an unknown target, fusion or option.
        InputError: `module` is not an MLIR module.
    """
    with _without_collection():
        analysis, report = _analyse(module, target, registry, options)
    return Plan(analysis, report)


def fuse(
    module: Any, target: str | Target = "linalg", registry: FusionRegistry | None = None, **options: Any
) -> Report:
    """Rewrites `module` in place: all of the plan or, on any error, nothing.

    Args:
        module: an `ir.Module` (or a `builtin.module` / `func.func` operation) of any MLIR binding.
        target: a target's name, or a `Target`.
        registry: the fusions and targets to choose from; those installed when None.
        **options: see `qfuse.Options`.

    Returns:
        What was applied, what was left alone and why.

    Raises:
        UsageError: an unknown target, fusion or option.
        InputError: `module` is not an MLIR module.
    """
    with _without_collection():
        return _fuse(module, target, registry, options)


def _fuse(module: Any, target: str | Target, registry: FusionRegistry | None, options: dict[str, Any]) -> Report:
    analysis, report = _analyse(module, target, registry, options)
    if not analysis.live:
        return report
    known = _installed() if registry is None else registry
    builder = Builder(analysis.bindings, analysis.root.context)
    context = BuildContext(
        analysis.bindings,
        builder,
        known.emitter(analysis.env.target),
        analysis.env.options,
        analysis.recognizer.constants,
    )
    try:
        replacements = _build(analysis, context)
        _verify(analysis, context)
    except BaseException:
        builder.undo()
        raise
    _switch(analysis, replacements)
    return report


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pauses the cyclic garbage collector: an analysis keeps many objects and makes no cycles worth looking for."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _verify(analysis: _Analysis, context: BuildContext) -> None:
    """Verifies what was built: each new operation, or everything when code from elsewhere took part."""
    parts = [context.emitter, *(d.fusion for d in analysis.live)]
    if all(type(part).__module__.startswith("qfuse.") for part in parts):
        for op in context.builder.created:
            analysis.bindings.verify(op)
    else:
        analysis.bindings.verify(analysis.root)


def _build(analysis: _Analysis, context: BuildContext) -> list[tuple[Value, Value]]:
    replacements: list[tuple[Value, Value]] = []
    live = set(analysis.live)
    for node in analysis.nodes:
        result = node.result
        decision = analysis.env.decisions.get(result)
        if decision is not None and decision in live:
            if decision.replacement is not None or decision.form is None:
                value = context.build(decision)
                with context.at(node.op):
                    value = context.cast(value, result.type)
                _same_type(result, value, decision)
                replacements.append((result, value))
        form = analysis.floats.get(result)
        if form is not None:
            with context.at(node.op):
                value = context.cast(context.emitter.materialize(form, node, context), result.type)
            replacements.append((result, value))
    return replacements


def _same_type(old: Value, new: Value, decision: Decision) -> None:
    if old.type != new.type:
        raise InputError(f"fusion {decision.fusion.id} built {new.type} in place of {old.type}")


def _switch(analysis: _Analysis, replacements: list[tuple[Value, Value]]) -> None:
    """Replaces uses, then erases what has no user left, last first."""
    final: dict[Value, Value] = dict(replacements)
    for old, new in replacements:
        while new in final:  # the integers of one quantize may take the place of a later one
            new = final[new]
        old.replace_all_uses_with(new)
    absorbed = [
        n.result for n in analysis.nodes
        if isinstance(analysis.env.forms.get(n.result), AccumForm) and n.result not in analysis.floats
    ]  # fmt: skip
    _erase([old for old, _ in replacements] + absorbed, analysis.recognizer.reader)


def _erase(roots: list[Value], reader: ScalarReader) -> None:
    """Erases the producers of `roots` and then what these used, as far as nothing else uses it."""
    # Python objects of values do not own what they name, so what was erased is remembered by hash (the address). The
    # hash of an operation would not do: it is structural.
    pending = list(roots)
    erased: set[int] = set()
    while pending:
        value = pending.pop()
        if hash(value) in erased or next(iter(value.uses), None) is not None:
            continue
        op = getattr(value.owner, "operation", None)
        if op is None:
            continue
        results = list(op.results)
        if len(results) > 1 and any(next(iter(r.uses), None) is not None for r in results):
            continue
        inputs = _inputs_if_pure(op, reader)
        if inputs is None:
            continue
        erased.update(map(hash, results))
        op.erase()
        pending += inputs


#: Operations whose bodies are the same for all and use nothing from outside.
_CAPTURE_NOTHING = ("linalg.fill", "linalg.transpose", "linalg.broadcast", "linalg.matmul", "linalg.batch_matmul")


def _inputs_if_pure(op: Operation, reader: ScalarReader) -> list[Value] | None:
    """Values from outside that `op` and its body use, or None when it must stay even if unused."""
    if not op.name.startswith(("linalg.", "tensor.", "arith.", "math.", "quant.", "iree_linalg_ext.")):
        return None
    if not len(op.regions) or op.name in _CAPTURE_NOTHING:
        return list(op.operands)
    view = reader.view(op)
    if view is not None:
        return None if view.structure.asserts else [*view.inputs, *view.inits, *view.outside]
    found = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            own: set[Value] = set()
            for inner in block.operations:
                inner = inner.operation
                if inner.name == "cf.assert":
                    return None
                found += [v for v in inner.operands if v not in own]
                own.update(inner.results)
    return [v for v in found if getattr(v.owner, "operation", None) is not None]


def as_pass(
    target: str | Target = "linalg", registry: FusionRegistry | None = None, **options: Any
) -> Callable[[Any, Any], None]:
    """A callable for `PassManager.add`, on `builtin.module` or nested on `func.func`.

    The report of each run is appended to the attribute `reports` of what is returned.

    Raises:
        UsageError: an unknown target, fusion or option, at once.
    """
    known = _installed() if registry is None else registry
    chosen = known.target(target) if isinstance(target, str) else target
    parsed = Options.of(chosen, options)
    known.restricted(chosen, parsed.fusions, parsed.disable)
    known.emitter(chosen)

    def qfuse_pass(op: Any, _pass: Any = None) -> None:
        reports.append(fuse(op, chosen, registry, **options))

    reports: list[Report] = []
    qfuse_pass.reports = reports  # type: ignore[attr-defined]
    return qfuse_pass
