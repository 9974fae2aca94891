"""Regions: operations that become integer together or not, as a project-selection problem with prices.

Only numbers: what the variables stand for in a module is `qfuse.selection`'s to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from qfuse.cost.cut import Problem, solve
from qfuse.cost.model import Prices, cost_function, missing
from qfuse.cost.target import Target
from qfuse.cost.workload import Workload

#: How far a number is changed to find out what would have changed a choice.
LARGEST_FACTOR = 1024.0


@dataclass(eq=False)
class Variable:
    """Something that is done in integers (chosen) or not.

    Attributes:
        chosen: what is computed and moved when it is.
        left: what is when it is not.
    """

    chosen: list[Workload] = field(default_factory=list[Workload])
    left: list[Workload] = field(default_factory=list[Workload])


@dataclass(frozen=True)
class Region:
    """One problem; equal regions of a module are solved once.

    Attributes:
        chosen: for each variable the workloads when it is chosen.
        left: the same when it is not.
        edges: `(i, j, workload)`: what is computed when `i` is chosen and `j` is not; None when that may not be.
    """

    chosen: tuple[tuple[Workload, ...], ...]
    left: tuple[tuple[Workload, ...], ...]
    edges: tuple[tuple[int, int, Workload | None], ...]

    @property
    def workloads(self) -> Iterator[Workload]:
        """All of them, also those that no assignment has together."""
        for side in (*self.chosen, *self.left):
            yield from side
        yield from (w for _, _, w in self.edges if w is not None)

    def problem(self, prices: Prices) -> Problem | str:
        """The problem with costs in femtoseconds, or which number is not known."""
        for workload in self.workloads:
            if prices.of(workload) is None:
                return missing(workload, prices.target)
        return Problem(
            tuple(prices.total(w) or 0 for w in self.chosen),
            tuple(prices.total(w) or 0 for w in self.left),
            tuple((i, j, None if w is None else prices.of(w)) for i, j, w in self.edges),
        )


@dataclass(frozen=True)
class Choice:
    """What a region costs and what is chosen; costs in femtoseconds, None when a number is not known.

    Attributes:
        integer: when all is done in integers.
        float: when nothing is.
        cut: of the best assignment.
        selected: the variables that the best assignment chooses; all when a number is not known.
        unknown: which number is not known, or empty.
    """

    integer: int | None
    float: int | None
    cut: int | None
    selected: frozenset[int]
    unknown: str = ""


@dataclass(frozen=True)
class Change:
    """A change of one number of a target that changes a choice.

    Attributes:
        number: the key, `throughput.s8xs8`, `memory_bandwidth` or `call_overhead`.
        factor: the least factor found, up or down; its neighbour 1 % nearer to 1 changes nothing.
    """

    number: str
    factor: float


class Chooser:
    """Chooses for regions on one target; each distinct region once.

    Attributes:
        prices: of the target.
        explains: whether `changes` is asked for.
    """

    def __init__(self, target: Target, explains: bool = False) -> None:
        """Nothing chosen yet."""
        self.prices = Prices(target)
        self.explains = explains
        self._choices: dict[Region, Choice] = {}
        self._changes: dict[tuple[Region, frozenset[int]], tuple[Change, ...]] = {}

    def choose(self, region: Region) -> Choice:
        """The least total."""
        if region not in self._choices:
            self._choices[region] = choose(region, self.prices)
        return self._choices[region]

    def changes(self, region: Region, decisive: frozenset[int]) -> tuple[Change, ...]:
        """For each number of the target by what least factor it would have to differ for another choice.

        Args:
            region: the region.
            decisive: the variables whose choice counts.
        """
        key = region, decisive
        if key not in self._changes:
            self._changes[key] = tuple(self._find_changes(region, decisive))
        return self._changes[key]

    def _find_changes(self, region: Region, decisive: frozenset[int]) -> Iterator[Change]:
        target = self.prices.target
        choice = self.choose(region)
        if choice.unknown:
            return
        present = choice.selected & decisive
        for number in _numbers(target, region.workloads):
            found: list[float] = []
            for up in (True, False):
                factor = _least_factor(region, target, number, present, decisive, up)
                if factor is not None:
                    found.append(factor)
            if found:
                yield Change(number, min(found, key=lambda f: max(f, 1 / f)))


def choose(region: Region, prices: Prices) -> Choice:
    """The least total of one region."""
    problem = region.problem(prices)
    everything = frozenset(range(len(region.chosen)))
    if isinstance(problem, str):
        return Choice(None, None, None, everything, problem)
    selected = solve(problem)
    return Choice(problem.total(everything), problem.total(()), problem.total(selected), selected)


def _numbers(target: Target, workloads: Iterable[Workload]) -> list[str]:
    """The numbers of a target that play a part in the cost of workloads."""
    priced = [w for w in workloads if cost_function(w, target) is None]
    types = dict.fromkeys(w.compute for w in priced if w.operations and w.compute in target.throughput)
    general = ["memory_bandwidth"] if priced else []
    if priced and target.call_overhead:
        general.append("call_overhead")
    return [*(f"throughput.{t}" for t in types), *general]


def scaled(target: Target, number: str, factor: float) -> Target:
    """A target with one number multiplied; `number` as in `Change`."""
    key, _, types = number.partition(".")
    if types:
        return replace(target, throughput={**target.throughput, types: target.throughput[types] * factor})
    return replace(target, **{key: getattr(target, key) * factor})


def _least_factor(
    region: Region, target: Target, number: str, present: frozenset[int], decisive: frozenset[int], up: bool
) -> float | None:
    def differs(factor: float) -> bool:
        other = Prices(scaled(target, number, factor if up else 1 / factor))
        return choose(region, other).selected & decisive != present

    low, high = 1.0, 2.0
    while not differs(high):
        low, high = high, high * 2
        if high > LARGEST_FACTOR:
            return None
    while high > low * 1.01:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if differs(middle) else (middle, high)
    return high if up else 1 / high


def components(count: int, edges: Sequence[tuple[int, int, Workload | None]]) -> list[int]:
    """For each variable the least variable that edges connect it with."""
    parent = list(range(count))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j, _ in edges:
        a, b = find(i), find(j)
        parent[max(a, b)] = min(a, b)
    return [find(i) for i in range(count)]
