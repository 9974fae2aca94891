"""What an operation costs on a target: a roofline of its workload, or what the target's own function says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real

from qfuse.cost.target import Target
from qfuse.cost.workload import Workload
from qfuse.errors import UsageError, noted

#: Costs are added as whole numbers of this unit, so that sums do not depend on their order.
FEMTOSECONDS = 10**15


def roofline(workload: Workload, target: Target) -> float | None:
    """`max(operations / throughput, bytes / memory bandwidth) + call overhead` in seconds, None when one is unknown."""
    bandwidth, overhead = target.memory_bandwidth, target.call_overhead
    moved = workload.bytes_moved
    if bandwidth is None or overhead is None or moved is None or workload.operations is None:
        return None
    compute = 0.0
    if workload.operations and workload.compute:
        rate = target.throughput.get(workload.compute)
        if rate is None:
            return None
        compute = workload.operations / rate
    return max(compute, moved / bandwidth) + overhead


def cost_function(workload: Workload, target: Target) -> Callable[[Workload], float | None] | None:
    """The target's own function for the fusion or the kind of operation, or None."""
    return target.costs.get(workload.fusion) or target.costs.get(workload.kind)


def seconds(workload: Workload, target: Target) -> float | None:
    """By the target's function for the fusion or the kind of operation if there is one, else the roofline.

    Raises:
        UsageError: a target's function returned something that is no time.
    """
    own = cost_function(workload, target)
    if own is None:
        return roofline(workload, target)
    try:
        found: object = own(workload)
    except BaseException as error:
        noted(error, f"raised by the cost function of target {target.name} for {workload.fusion or workload.kind}")
        raise
    if found is not None and not (isinstance(found, Real) and math.isfinite(found) and found >= 0):
        raise UsageError(f"the cost function of target {target.name} for {workload.kind} returned {found!r}")
    return None if found is None else float(found)


def missing(workload: Workload, target: Target) -> str:
    """What is not known of an operation whose cost is None, as a clause."""
    if cost_function(workload, target) is not None:
        return f"the cost function of target {target.name} does not know this {workload.kind}"
    if workload.kind == "other" and workload.operations is None:
        return f"target {target.name} has no cost function for fusion {workload.fusion}"
    if workload.bytes_moved is None or workload.operations is None:
        return f"the extents of a {workload.kind} are dynamic"
    if target.memory_bandwidth is None:
        return f"target {target.name} gives no memory_bandwidth"
    if target.call_overhead is None:
        return f"target {target.name} gives no call_overhead"
    return f"target {target.name} gives no throughput of {workload.compute}"


class Prices:
    """Costs of workloads on one target, each computed once.

    Attributes:
        target: the target.
    """

    def __init__(self, target: Target) -> None:
        """Nothing computed yet."""
        self.target = target
        self._known: dict[Workload, int | None] = {}

    def of(self, workload: Workload) -> int | None:
        """Femtoseconds, or None when they are not known."""
        if workload not in self._known:
            found = seconds(workload, self.target)
            self._known[workload] = None if found is None else round(found * FEMTOSECONDS)
        return self._known[workload]

    def total(self, workloads: Iterable[Workload]) -> int | None:
        """The sum, or None when one is not known."""
        total = 0
        for workload in workloads:
            cost = self.of(workload)
            if cost is None:
                return None
            total += cost
        return total
