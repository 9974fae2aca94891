"""Which planned fusions are worth it: regions of an analysis as project-selection problems, see docs/cost-model.md.

Variables of a region:

    a decision        chosen: it is carried out. What it replaces goes away then, and stays otherwise.
    a float value     chosen: it goes away, because all that reads it does.
    float access      chosen: nobody reads accumulators as a float value. Otherwise one is made of them.
    a moved tensor    chosen: a layout operation is repeated on integers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from qfuse._mlir import Bindings, Operation, Value
from qfuse.cost.region import Choice, Chooser, Region, Variable, components
from qfuse.cost.workload import Workload, tensors_read
from qfuse.fusions.kernel import KernelFusion
from qfuse.graph import AccumForm, Decision, Environment, Made, Moved, QValue, values_read
from qfuse.matchers.nodes import Node
from qfuse.workloads import Workloads, is_base

#: What becomes of a float value besides a variable: it stays whatever is chosen, or nothing reads it.
_STAYS, _UNREAD = -1, -2


class Planned(Protocol):
    """What is known of a module when all fusions that apply would be carried out; see `qfuse.analysis`."""

    bindings: Bindings
    env: Environment
    nodes: list[Node]
    live: list[Decision]


@dataclass(frozen=True, eq=False)
class Selected:
    """A region of a module and what is best for it.

    Attributes:
        decisions: the planned fusions in it, in order.
        variables: for each of them its variable.
        region: the problem.
        choice: its solution.
    """

    decisions: tuple[Decision, ...]
    variables: tuple[int, ...]
    region: Region
    choice: Choice

    @property
    def rejected(self) -> list[Decision]:
        """The fusions that are not worth it."""
        pairs = zip(self.decisions, self.variables, strict=True)
        return [d for d, i in pairs if i not in self.choice.selected]


def select(planned: Planned, chooser: Chooser) -> list[Selected]:
    """The regions of a module, each with its choice, in the order of their first fusions."""
    found = _Builder(planned)
    of_variable = {i: d for d, i in found.decisions.items()}
    roots = components(len(found.variables), found.edges)
    members: dict[int, list[int]] = {}
    for i, root in enumerate(roots):
        members.setdefault(root, []).append(i)
    edges: dict[int, list[tuple[int, int, Workload | None]]] = {}
    for edge in dict.fromkeys(found.edges):
        edges.setdefault(roots[edge[0]], []).append(edge)
    selected: list[Selected] = []
    for root, variables in members.items():
        places = {v: i for i, v in enumerate(variables)}
        own = [v for v in variables if v in of_variable]
        if not own:
            continue
        region = Region(
            tuple(tuple(found.variables[v].chosen) for v in variables),
            tuple(tuple(found.variables[v].left) for v in variables),
            tuple((places[i], places[j], w) for i, j, w in edges.get(root, ())),
        )
        decisions, positions = tuple(of_variable[v] for v in own), tuple(places[v] for v in own)
        selected.append(Selected(decisions, positions, region, chooser.choose(region)))
    return selected


class _Builder:
    """Variables and edges of a whole module; regions are the components."""

    def __init__(self, planned: Planned) -> None:
        self._bindings = planned.bindings
        self._env = planned.env
        self._workloads = Workloads(planned.bindings, planned.env)
        self._nodes: Mapping[Value, Node] = {node.result: node for node in planned.nodes}
        self.variables: list[Variable] = []
        self.edges: list[tuple[int, int, Workload | None]] = []
        self.decisions: dict[Decision, int] = {}
        self._moved: dict[Moved, int] = {}
        live = [d for d in planned.live if not d.on_demand and not d.fusion.repairs]
        for decision in live:
            self.decisions[decision] = self._variable()
        self._replaced = {
            d.node.result: i for d, i in self.decisions.items()
            if not is_base(d) and d.replaces and self._is_own(d)
        }  # fmt: skip
        # Values of the module that planned operations read, which therefore stay.
        self._kept = {value for decision in live for value in values_read(decision)}
        self._ends: dict[Value, int] = {}
        by_kernels = _only_for_kernels(live)
        for decision in live:
            self._integer_side(decision, decision in by_kernels)
        accumulated = [node for node in planned.nodes if self._base(node.result) is not None]
        self._float_side(live, accumulated)
        for node in accumulated:
            self._float_access(node.result, by_kernels)

    def _base(self, value: Value) -> int | None:
        """The variable of the accumulators that a float value is made of; none behind a pooling, which stays."""
        form = self._env.forms.get(value)
        return self.decisions.get(form.decision) if isinstance(form, AccumForm) and not form.poolings else None

    def _variable(self) -> int:
        self.variables.append(Variable())
        return len(self.variables) - 1

    def _is_own(self, decision: Decision) -> bool:
        return self._env.decisions.get(decision.node.result) is decision

    # -- integers --------------------------------------------------------------------------------------------

    def _integer_side(self, decision: Decision, by_kernels: bool) -> None:
        i = self.decisions[decision]
        workload = None if by_kernels else self._workloads.of_decision(decision)
        if workload is not None:
            self.variables[i].chosen.append(workload)
        for need in decision.needs:
            for j in self._needed(need):
                self.edges.append((i, j, None))

    def _needed(self, need: QValue | Decision) -> Iterator[int]:
        if isinstance(need, Decision | Made):
            decision = need.decision if isinstance(need, Made) else need
            if decision in self.decisions:
                yield self.decisions[decision]
        elif isinstance(need, Moved):
            if need not in self._moved:
                i = self._moved[need] = self._variable()
                workload = self._workloads.of_move(need)
                if workload is not None:
                    self.variables[i].chosen.append(workload)
                for inner, _ in need.inputs:
                    for j in self._needed(inner):
                        self.edges.append((i, j, None))
            yield self._moved[need]

    # -- floats ----------------------------------------------------------------------------------------------

    def _float_side(self, live: Sequence[Decision], accumulated: Sequence[Node]) -> None:
        """What goes away when decisions are carried out, found backwards from what they replace."""
        pending = [node.op for node in accumulated] + [d.node.op for d in live]
        seen: set[Value] = set()
        while pending:
            op = pending.pop()
            result = op.results[0]
            if result in seen:
                continue
            seen.add(result)
            end = self._end(op)
            if end < 0:
                continue
            workload = self._workloads.of_operation(op, self._nodes.get(result))
            if workload is not None:
                self.variables[end].left.append(workload)
            for value in tensors_read(op):
                owner = getattr(value.owner, "operation", None)
                if owner is None or value in self._replaced or not self._bindings.is_ranked_tensor(value.type):
                    continue
                if value not in self._kept and not self._workloads.is_constant(value):
                    pending.append(owner)

    def _end(self, op: Operation) -> int:
        """The variable that is chosen when an operation goes away, or one of the two other ends."""
        stack = [op]
        opened: set[Value] = set()
        while stack:
            current = stack[-1]
            result = current.results[0]
            if result in self._ends:
                stack.pop()
                continue
            known = self._known_end(result)
            users = [] if known is not None else [use.owner.operation for r in current.results for use in r.uses]
            if known is None and result not in opened:
                opened.add(result)
                stack += [u for u in users if len(u.results) and u.results[0] not in self._ends]
                continue
            self._ends[result] = self._new_end(users) if known is None else known
            stack.pop()
        return self._ends[op.results[0]]

    def _known_end(self, result: Value) -> int | None:
        if result in self._replaced:
            return self._replaced[result]
        base = self._base(result)
        if base is not None:
            return base
        return _STAYS if result in self._kept else None

    def _new_end(self, users: Sequence[Operation]) -> int:
        ends = self._ends_of(users)
        if _STAYS in ends:
            return _STAYS
        return self._all_of(ends) if ends else _UNREAD

    def _ends_of(self, users: Sequence[Operation]) -> set[int]:
        return {self._ends.get(u.results[0], _STAYS) if len(u.results) else _STAYS for u in users} - {_UNREAD}

    def _all_of(self, variables: set[int]) -> int:
        """A variable that is chosen only where all of these are."""
        if len(variables) == 1:
            return next(iter(variables))
        i = self._variable()
        self.edges += [(i, j, None) for j in sorted(variables)]
        return i

    # -- crossings -------------------------------------------------------------------------------------------

    def _float_access(self, value: Value, by_kernels: Collection[Decision]) -> None:
        """The cost of a float value of accumulators, while anything that reads it stays."""
        form = self._env.forms[value]
        assert isinstance(form, AccumForm), "asked for values of accumulators"
        base = self.decisions[form.decision]
        workloads = [self._workloads.of_float_value(form, value)]
        own = self._workloads.of_decision(form.decision) if form.decision in by_kernels else None
        if own is not None:
            workloads.append(own)
        users = [use.owner.operation for use in value.uses]
        for user in users:
            if len(user.results):
                self._end(user)
        ends = self._ends_of(users) - {base}
        if value in self._kept or _STAYS in ends:
            self.variables[base].chosen += workloads
        elif ends:
            reader = self._all_of(ends)
            self.edges += [(base, reader, w) for w in workloads]


def _only_for_kernels(live: Sequence[Decision]) -> set[Decision]:
    """Decisions whose accumulators are made inside kernels only."""
    read: dict[Decision, bool] = {}
    for decision in live:
        for need in decision.needs:
            if isinstance(need, Decision):
                read[need] = read.get(need, True) and isinstance(decision.fusion, KernelFusion)
    return {decision for decision, only in read.items() if only}
