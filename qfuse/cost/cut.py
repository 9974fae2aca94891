"""Which variables of a project-selection problem are chosen: the least total, by one minimum cut.

A variable is chosen or not, and costs something either way. An edge `(i, j, c)` costs `c` when `i` is chosen and `j` is
not; with `c` None that must not happen. The cut between a source (chosen) and a sink (not chosen) of the network

    source -> i  of capacity  cost when i is not chosen
    i -> sink    of capacity  cost when i is chosen
    i -> j       of capacity  c, unbounded for None

is the total of the assignment that it stands for, so a minimum cut is a best assignment.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

Edge: TypeAlias = "tuple[int, int, int | None]"


@dataclass(frozen=True)
class Problem:
    """Costs are whole numbers, so that sums do not depend on their order.

    Attributes:
        chosen: for each variable what it costs when it is chosen.
        left: for each variable what it costs when it is not.
        edges: `(i, j, c)`: what it costs that `i` is chosen and `j` is not; None when it may not be.
    """

    chosen: tuple[int, ...]
    left: tuple[int, ...]
    edges: tuple[Edge, ...]

    def total(self, chosen: Collection[int]) -> int | None:
        """What an assignment costs, or None when it breaks an edge."""
        total = sum(self.chosen[i] if i in chosen else self.left[i] for i in range(len(self.chosen)))
        for i, j, c in self.edges:
            if i in chosen and j not in chosen:
                if c is None:
                    return None
                total += c
        return total


def solve(problem: Problem) -> frozenset[int]:
    """The variables to choose for the least total; of several such sets the largest."""
    count = len(problem.chosen)
    gains = [left - chosen for chosen, left in zip(problem.chosen, problem.left, strict=True)]
    if min(gains, default=0) >= 0:
        return frozenset(range(count))
    if max(gains) < 0:
        return frozenset()
    return _cut(problem, gains)


def _cut(problem: Problem, gains: list[int]) -> frozenset[int]:
    import networkx as nx  # takes longer to import than most modules take to plan

    network: nx.DiGraph[int] = nx.DiGraph()
    count = len(gains)
    source, sink = count, count + 1
    network.add_nodes_from(range(count + 2))
    # What a variable costs either way goes through both of its edges; only the difference takes part.
    for i, gain in enumerate(gains):
        if gain > 0:
            network.add_edge(source, i, capacity=gain)
        elif gain < 0:
            network.add_edge(i, sink, capacity=-gain)
    capacities: dict[tuple[int, int], int | None] = {}
    for i, j, c in problem.edges:
        known = capacities.get((i, j), 0)
        capacities[i, j] = None if known is None or c is None else known + c
    for (i, j), c in capacities.items():
        if c is None:
            network.add_edge(i, j)  # without a capacity: unbounded
        else:
            network.add_edge(i, j, capacity=c)
    flows: Any = nx.algorithms.flow
    _, (chosen, _) = flows.minimum_cut(network, source, sink, flow_func=flows.boykov_kolmogorov)
    return frozenset(chosen - {source})
