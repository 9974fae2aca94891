"""Reads a module into nodes, forms and decisions, and finds out which decisions are to be carried out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from qfuse._mlir import Bindings, Operation, Value
from qfuse.cost.options import Options
from qfuse.cost.target import Target
from qfuse.cost.workload import bytes_moved
from qfuse.emit.expression import stored_tensors
from qfuse.emit.vocabulary import Vocabulary
from qfuse.errors import RegistryError, noted
from qfuse.fusions.base import Fusion
from qfuse.fusions.requires import allowed
from qfuse.graph import (
    AccumForm,
    Decision,
    Environment,
    Existing,
    Made,
    Moved,
    QValue,
    Refusal,
    Step,
    values_read,
)
from qfuse.matchers.nodes import Node, Quantize
from qfuse.matchers.recognizer import Recognizer
from qfuse.registry import FusionRegistry
from qfuse.report import Report
from qfuse.settle import settled


class Analysis:
    """Nodes, forms and decisions of one module or function, and what follows from them."""

    def __init__(
        self,
        root: Operation,
        bindings: Bindings,
        registry: FusionRegistry,
        target: Target,
        options: Options,
        vocabulary: type[Vocabulary] = Vocabulary,
    ) -> None:
        self.root = root
        self.bindings = bindings
        self.recognizer = Recognizer(bindings)
        self.env = Environment(bindings, self.recognizer.reader, target, options, root, vocabulary)
        self.nodes: list[Node] = []
        self.refusals: dict[Value, Refusal] = {}
        self.passed_over: dict[Value, Refusal] = {}
        self.functions: dict[Value, str] = {}
        self._registry = registry
        # Once decisions were withdrawn: the one fusion that may take a node again, "" for those, None where none did.
        self._accepted: dict[Value, str | None] = {}
        found = [(f, [o.operation for o in block.operations]) for f, block in _blocks(bindings, root)]
        for _, operations in found:
            self.recognizer.constants.prefetch(operations)
        for function, operations in found:
            for op in operations:
                self._visit(op, function)
        self._settle()

    def _settle(self) -> None:
        """Finds out which decisions are carried out, from those that there are."""
        demand = _Demand(self.env, self.nodes)
        order = {node.result: i for i, node in enumerate(self.nodes)}
        self.live: list[Decision] = sorted(demand.wanted, key=lambda d: order[d.node.result])
        self.floats: dict[Value, AccumForm] = demand.floats
        self._kept = demand.kept
        self._carried_out = demand.wanted
        self._read = {value for decision in self.live for value in values_read(decision)}
        self._dead: dict[Value, bool] = {}

    def _visit(self, op: Operation, function: str) -> None:
        node = self.recognizer.node(op)
        if node is None:
            return
        self.nodes.append(node)
        self.functions[node.result] = function
        if isinstance(node, Quantize):
            self.env.quantizes[node.result] = node
        self._decide(node)

    def _decide(self, node: Node) -> None:
        declined: list[str] = []
        for fusion in self._registry.for_node(node):
            outcome = self._outcome(fusion, node)
            if isinstance(outcome, Decision):
                if isinstance(node, Quantize) and node.repaired and self.env.vocabulary.repairs:
                    outcome.detail["repaired"] = True
                if declined:
                    outcome.detail["declined"] = declined
                self.env.decisions[node.result] = outcome
                refusal = self.refusals.pop(node.result, None)
                if refusal is not None and not fusion.counted:
                    self.passed_over[node.result] = refusal
                if outcome.form is not None:
                    self.env.forms[node.result] = outcome.form
                return
            if outcome is not None and fusion.declines:
                declined.append(f"{fusion.id}: {outcome.reason}")
            if outcome is not None and node.result not in self.refusals:
                self.refusals[node.result] = _hinted(outcome, self.env.vocabulary.epilogues)

    def _outcome(self, fusion: Fusion, node: Node) -> Decision | Refusal | None:
        """What a fusion says of a node, if the emitter and the target agree."""
        repairs = fusion.repairs and self.env.options.policy != "never"
        limited = fusion.listed and not fusion.on_demand and not repairs and node.result in self._accepted
        accepted = self._accepted.get(node.result) if limited else fusion.id
        if accepted is not None and accepted != fusion.id:
            return None
        outcome = self._checked(fusion, node)
        if not isinstance(outcome, Decision):
            return outcome if self.env.target.allows(fusion.id) or not fusion.listed else None
        if accepted is None:
            return None
        refused = self.env.vocabulary.supports(outcome, self.env)
        return allowed(outcome, self.env) if refused is None else refused

    def _checked(self, fusion: Fusion, node: Node) -> Decision | Refusal | None:
        """What a fusion says of a node. Its own exceptions pass, with a line that says whose they are."""
        try:
            outcome = cast("object", fusion.check(node, self.env))
        except BaseException as error:
            noted(error, f"raised by the check of {self.described(fusion, node)}")
            raise
        if outcome is None or isinstance(outcome, Decision | Refusal):
            return outcome
        raise RegistryError(
            f"the check of {self.described(fusion, node)} returned {outcome!r}, not a Decision, a Refusal or None"
        )

    def described(self, fusion: Fusion, node: Node) -> str:
        """A fusion with its owner and the operation that it was asked about."""
        owner = self._registry.owner(fusion.id)
        return f"fusion {fusion.id} of {owner} for {node.op.name} at {self.bindings.location(node.op)}"

    def withdraw(self, withdrawn: Mapping[Decision, Refusal | None]) -> None:
        """Takes decisions back and decides again what read their results; nothing else takes their place.

        Args:
            withdrawn: decisions that are not carried out, and what the report says of their nodes, if anything.
        """
        results = {d.node.result: refusal for d, refusal in withdrawn.items() if self._is_current(d)}
        behind = self._behind(results)
        for node in self.nodes:
            result = node.result
            if result not in behind:
                continue
            before = self.env.decisions.pop(result, None)
            self.env.forms.pop(result, None)
            self.refusals.pop(result, None)
            self.passed_over.pop(result, None)
            if before is not None:
                self.env.corrected.pop(before, None)
            self._accepted[result] = "" if result in results else None if before is None else before.fusion.id
            refusal = results.get(result)
            if refusal is not None:
                self.refusals[result] = refusal
            if result not in results:
                self.env.elementwise.pop(result, None)
            self._decide(node)
        self._settle()

    def _is_current(self, decision: Decision) -> bool:
        return self.env.decisions.get(decision.node.result) is decision

    def _behind(self, results: Iterable[Value]) -> set[Value]:
        """Values that are computed from these, up to the next quantize, and these themselves."""
        found = set(results)
        pending = [v for v in found if v not in self.env.quantizes]
        while pending:
            for use in pending.pop().uses:
                for value in use.owner.operation.results:
                    if value not in found:
                        found.add(value)
                        if value not in self.env.quantizes:
                            pending.append(value)
        return found

    def forget(self) -> None:
        """Breaks the cycles between decisions and forms, so that no collector has to find them."""
        for decision in self.env.decisions.values():
            decision.form = decision.replacement = None
            decision.needs = ()

    def count_bytes(self, report: Report, key: str) -> None:
        """Notes in a report the bytes that each function moves as the module stands."""
        totals: dict[str, int | None] = {}
        for function, block in _blocks(self.bindings, self.root):
            moved = bytes_moved(self.bindings, (op.operation for op in block.operations))
            before = totals.get(function, 0)
            totals[function] = None if before is None or moved is None else before + moved
        for function, total in totals.items():
            report.functions.setdefault(function, {"integer_macs": 0, "float_macs": 0})[key] = total

    def is_dead(self, value: Value) -> bool:
        """Whether nothing reads a value once the plan is carried out: all its users are replaced or dead."""
        return settled(value, self._dead, self._waits_to_die, all, meanwhile=False)

    def _waits_to_die(self, value: Value) -> bool | list[Value]:
        users = [use.owner.operation for use in value.uses]
        if value in self._read or not users:
            return False
        waiting: list[Value] = []
        for user in users:
            if not len(user.results):
                return False
            if not self._is_replaced(user.results[0]):
                waiting.append(user.results[0])
        return waiting or True

    def _is_replaced(self, result: Value) -> bool:
        if result in self.floats or isinstance(self.env.forms.get(result), AccumForm):
            return result not in self._kept
        decision = self.env.decisions.get(result)
        return decision is not None and decision.replacement is not None and decision in self._carried_out


class _Demand:
    """Which decisions are carried out: those whose integers replace something, and what these need.

    Attributes:
        wanted: the decisions to build.
        floats: the accumulator forms whose float value someone still reads.
        kept: float values behind poolings of such, which are left as they are computed.
    """

    def __init__(self, env: Environment, nodes: list[Node]) -> None:
        self._env = env
        self._decisions: list[Decision] = []
        self._values: list[Value] = []
        self.wanted: set[Decision] = set()
        self.floats: dict[Value, AccumForm] = {}
        self.kept: set[Value] = set()
        for node in nodes:
            decision = env.decisions.get(node.result)
            if decision is None or decision.on_demand:
                continue
            if decision.replaces:
                self._want(decision)
        alive = _Alive(env)
        for node in nodes:
            if isinstance(env.forms.get(node.result), AccumForm) and _has_float_user(node.result, env, alive):
                self._read_float(node.result)
        while self._decisions or self._values:
            while self._values:
                self._follow_form(self.floats[self._values.pop()])
            if self._decisions:
                self._follow_decision(self._decisions.pop())

    def _want(self, decision: Decision) -> None:
        if decision not in self.wanted:
            self.wanted.add(decision)
            self._decisions.append(decision)

    def _read_float(self, value: Value) -> None:
        pending = [value]
        while pending:
            value = pending.pop()
            form = self._env.forms.get(value)
            if not isinstance(form, AccumForm) or value in self.floats or value in self.kept:
                continue
            if form.poolings:
                self.kept.add(value)
                pending += [*value.owner.operation.operands, *form.moves[-1].sources]
                continue
            self.floats[value] = form
            self._values.append(value)

    def _follow_form(self, form: AccumForm) -> None:
        self._want(form.decision)
        for step in form.steps:
            self._follow_step(step)

    def _follow_step(self, step: Step) -> None:
        operand = step.operand
        if operand is None:
            return
        if operand.scalar is not None:
            for q in stored_tensors(operand.scalar):
                for other in _decisions_in(q, self._env):
                    self._want(other)
        elif operand.value is not None:
            self._read_float(operand.value)

    def _follow_decision(self, decision: Decision) -> None:
        for need in decision.needs:
            for other in _decisions_in(need, self._env):
                self._want(other)
        for value in decision.float_inputs:
            self._read_float(value)


class _Alive:
    """Which values are still read once all that can be replaced is: not those that lead to replaced results only."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._known: dict[Value, bool] = {}
        for decision in env.decisions.values():
            replaces = decision.replaces and not decision.on_demand
            floats = () if replaces else decision.float_inputs
            self._known.update((v, True) for v in values_read(decision) if v not in floats)

    def is_read(self, value: Value) -> bool:
        return settled(value, self._known, self._waits_to_be_read, any, meanwhile=True)

    def _waits_to_be_read(self, value: Value) -> bool | list[Value]:
        users = [use.owner.operation for use in value.uses]
        waiting: list[Value] = []
        for user in users:
            if not len(user.results):
                return True
            decision = self._env.decisions.get(user.results[0])
            if decision is None or decision.replacement is None or decision.on_demand:
                waiting += user.results  # what a replaced one reads is known to be read
        return waiting or not users


def _has_float_user(value: Value, env: Environment, alive: _Alive) -> bool:
    for use in value.uses:
        user = use.owner.operation
        results = user.results
        if not len(results):
            return True
        result = results[0]
        decision = env.decisions.get(result)
        if decision is None and not alive.is_read(result):
            continue
        if decision is None:
            return True
        if not decision.replaces and not isinstance(decision.form, AccumForm):
            return True
    return False


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


def _hinted(refusal: Refusal, epilogues: Iterable[str]) -> Refusal:
    """A refusal that names the float epilogue too, where that would do and can be written."""
    if not refusal.in_float or "float" not in epilogues:
        return refusal
    return replace(refusal, hint=", or ".join(filter(None, (refusal.hint, "use epilogue=float"))))


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
