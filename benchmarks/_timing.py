"""Interleaved measurements: candidates take turns, so that noise falls on all of them alike.

What is measured runs on the calling thread alone, so its CPU time is its duration without the time other processes
held the core.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping


def interleaved_medians(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int = 3
) -> dict[str, float]:
    """Return the median CPU seconds of one call of every candidate.

    Every round calls each candidate once, starting one further along than the round before. The garbage collector
    is off meanwhile.
    """
    names = list(candidates)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        for _ in range(warmup):
            candidates[name]()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                call = candidates[name]
                start = time.thread_time()
                call()
                samples[name].append(time.thread_time() - start)
    finally:
        if was_enabled:
            gc.enable()
    return {name: statistics.median(values) for name, values in samples.items()}
