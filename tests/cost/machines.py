"""Machines to choose for, and what a plan costs counted from the module, whatever the regions say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch_mlir import ir

import qfuse
from qfuse._mlir import Bindings
from qfuse.analysis import Analysis
from qfuse.cost.model import Prices
from qfuse.cost.options import Options
from qfuse.cost.workload import Workload
from qfuse.emit.vocabulary import vocabulary_of
from qfuse.graph import Decision, Moved
from qfuse.workloads import Workloads, is_base

#: Operations and bytes a second of a machine whose numbers are in the usual proportions.
THROUGHPUT = {"s8xs8": 4e12, "s8": 2e11, "f32xf32": 1e12, "f32": 1e11, "s32": 1e11}
NORMAL = qfuse.Target("normal", throughput=THROUGHPUT, memory_bandwidth=1e10, call_overhead=1e-6)
SLOW_INTEGER = replace(NORMAL, name="slow-integer", throughput={**THROUGHPUT, "s8xs8": 1e9})
#: Multiplies integers somewhat slower than floats and reads fast memory, so that neither decides alone.
FAST_MEMORY = replace(
    NORMAL, name="fast-memory", throughput={**THROUGHPUT, "s8xs8": 2.5e11}, memory_bandwidth=1e13, call_overhead=1e-8
)
SLOW_MEMORY = replace(FAST_MEMORY, name="slow-memory", memory_bandwidth=1e9)


def random_machine(base: qfuse.Target, seed: int) -> qfuse.Target:
    """A target with numbers over four decades, integers rather slow."""
    rng = np.random.default_rng([seed, 77])
    stored = ("s8", "u8", "s16", "u16")
    types = [*stored, *(f"{a}x{b}" for a in stored for b in stored), "f32xf32", "f32", "s32", "s64"]
    throughput = {t: float(10 ** rng.uniform(*((9, 13) if t.startswith("f") else (6, 10)))) for t in types}
    bandwidth, overhead = (float(10 ** rng.uniform(*ends)) for ends in ((8, 12), (-11, -6)))
    return replace(base, throughput=throughput, memory_bandwidth=bandwidth, call_overhead=overhead)


def analysed(text: str, target: qfuse.Target, options: Mapping[str, Any], registry: qfuse.FusionRegistry) -> Analysis:
    """What applies to a module; the module lives as long as the analysis."""
    module = ir.Module.parse(text, ir.Context())
    parsed = Options.of(target, options)
    usable = registry.restricted(target, parsed.fusions, parsed.disable)
    vocabulary = vocabulary_of(registry.emitter(target))
    found = Analysis(module.operation, Bindings.of(module), usable, target, parsed, vocabulary)
    found.module = module  # type: ignore[attr-defined]
    return found


def carried_out(analysis: Analysis) -> set[tuple[Any, str]]:
    """The fusions of a plan, by the value that they are of."""
    return {(d.node.result, d.fusion.id) for d in analysis.live if not d.on_demand}


def total(analysis: Analysis, prices: Prices) -> int:
    """Femtoseconds of a plan: everything that it builds, and everything in the module that stays."""
    workloads = Workloads(analysis.bindings, analysis.env)
    found: list[Workload | None] = []
    moved: set[Moved] = set()
    live = [d for d in analysis.live if not d.on_demand]
    read_by = {need: d for d in live for need in d.needs if isinstance(need, Decision)}
    as_float = {form.decision for form in analysis.floats.values()}
    for decision in live:
        reader = read_by.get(decision)
        in_kernel = reader is not None and isinstance(reader.fusion, qfuse.KernelFusion)
        if not (is_base(decision) and in_kernel and decision not in as_float):
            found.append(workloads.of_decision(decision))
        pending = [need for need in decision.needs if isinstance(need, Moved)]
        while pending:
            move = pending.pop()
            if move not in moved:
                moved.add(move)
                found.append(workloads.of_move(move))
                pending += [inner for inner, _ in move.inputs if isinstance(inner, Moved)]
    found += [workloads.of_float_value(form, value) for value, form in analysis.floats.items()]
    nodes = {node.result: node for node in analysis.nodes}
    replaced = {d.node.result for d in live if d.replacement is not None} | set(analysis.floats)
    for block in analysis.bindings.blocks(analysis.root):
        for op in block.operations:
            results = list(op.operation.results)
            if not results or results[0] in replaced or analysis.is_dead(results[0]):
                continue
            if not workloads.is_constant(results[0]):
                found.append(workloads.of_operation(op.operation, nodes.get(results[0])))
    costs = [prices.of(w) for w in found if w is not None]
    assert None not in costs
    return sum(c or 0 for c in costs)
