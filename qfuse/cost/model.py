"""Seconds that an operation takes on a target: a roofline of its workload, or what the target's own function says."""

from __future__ import annotations

import math

from qfuse.cost.target import Target
from qfuse.cost.workload import Workload
from qfuse.errors import UsageError


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


def cost(workload: Workload, target: Target) -> float | None:
    """Seconds, by the target's function for the fusion or the kind of operation if there is one, else the roofline.

    Raises:
        UsageError: a target's function returned something that is no time.
    """
    own = target.costs.get(workload.fusion) or target.costs.get(workload.kind)
    if own is None:
        return roofline(workload, target)
    seconds = own(workload, target)
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        raise UsageError(f"the cost function of target {target.name} for {workload.kind} returned {seconds!r}")
    return seconds


def missing(workload: Workload, target: Target) -> str:
    """What is not known of an operation whose cost is None, as a clause."""
    if (target.costs.get(workload.fusion) or target.costs.get(workload.kind)) is not None:
        return f"the cost function of target {target.name} for {workload.kind} does not know"
    if workload.bytes_moved is None or workload.operations is None:
        return f"the extents of a {workload.kind} are dynamic"
    if target.memory_bandwidth is None:
        return f"target {target.name} gives no memory_bandwidth"
    if target.call_overhead is None:
        return f"target {target.name} gives no call_overhead"
    return f"target {target.name} gives no throughput for {workload.compute}"
