"""Time of choosing by cost within `qfuse.fuse`, on the chain of quantized linears of `passtime.py`.

Needed: with `policy=profitable` the choice takes at most 30 % of `fuse()`, on a machine where every layer becomes
integer, on one where none does, and on one where the even ones do (they have a relu, which is saved, too).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from passtime import chain, count_operations
from torch_mlir import ir

import qfuse
from qfuse import pipeline

NEEDED = 0.30


def machine(name: str, integer: float) -> qfuse.Target:
    """A target that multiplies s8 at this rate."""
    throughput = {"s8xs8": integer, "s8": 2e11, "f32xf32": 1e12, "f32": 1e11}
    return qfuse.Target(name, throughput=throughput, memory_bandwidth=1e10, call_overhead=1e-6)


def measure(text: str, target: qfuse.Target, repeat: int) -> tuple[int, float, float, Counter[str]]:
    """Operations, median seconds of `fuse()` and of the choice in it, and what regions became."""
    apply_policy = pipeline.apply_policy
    within: list[float] = []

    def timed(analysis: Any) -> Any:
        start = time.process_time()
        found = apply_policy(analysis)
        within.append(time.process_time() - start)
        return found

    whole: list[float] = []
    pipeline.apply_policy = timed
    try:
        for _ in range(repeat + 1):  # the first run imports networkx
            module = ir.Module.parse(text, ir.Context())
            operations = count_operations(module)
            gc.collect()
            start = time.process_time()
            report = qfuse.fuse(module, target, policy="profitable")
            whole.append(time.process_time() - start)
    finally:
        pipeline.apply_policy = apply_policy
    chosen = Counter(str(entry["chosen"]) for entry in report.cost)
    return operations, statistics.median(whole[1:]), statistics.median(within[1:]), chosen


def main() -> int:
    """The command line; the status is 1 when a machine needs more than 30 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=50_000, help="operations of the module")
    parser.add_argument("--dimension", type=int, default=32, help="weights are square, of this size")
    parser.add_argument("--repeat", type=int, default=3, help="runs (default: %(default)s)")
    arguments = parser.parse_args()
    text, _ = chain(arguments.ops, dimension=arguments.dimension)
    worst = 0.0
    for target in (machine("integers", 4e12), machine("floats", 1e7), machine("some", 2.3e9)):
        operations, whole, within, chosen = measure(text, target, arguments.repeat)
        worst = max(worst, within / whole)
        regions = ", ".join(f"{count} {name}" for name, count in sorted(chosen.items()))
        print(
            f"{target.name}: {operations} operations, fuse {whole:.2f} s, choice {within:.2f} s ({within / whole:.0%});"
            f" regions: {regions}"
        )
    print(f"{'PASS' if worst <= NEEDED else 'FAIL'}: choice / fuse {worst:.2f}, needed at most {NEEDED:.2f}")
    return 0 if worst <= NEEDED else 1


if __name__ == "__main__":
    raise SystemExit(main())
