"""Random networks on random machines: a plan costs what its regions say and is the chosen one, and its numbers hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

import qfuse
from qfuse.cost.region import Chooser
from qfuse.selection import select
from tests.cost.machines import analysed, carried_out, random_machine, total
from tests.property.contract import TARGETS, examine
from tests.property.graphs import build, random_graph

NAMES = ("linalg", "integer-only", "kernels")


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_costs_what_its_regions_say(name: str) -> None:
    """Taking back what is rejected saves exactly what the cuts promise, and nothing else changes."""
    variant = TARGETS[name]
    options = dict(variant.options)
    registry = options.pop("registry", None) or qfuse.FusionRegistry.discover()
    rejected, kept = 0, 0
    for seed in range(40):
        target = random_machine(registry.target(variant.target), seed)
        analysis = analysed(build(random_graph(seed)).function.text, target, options, registry)
        chooser = Chooser(target)
        before = total(analysis, chooser.prices)
        selected = select(analysis, chooser)
        assert not [r.choice.unknown for r in selected if r.choice.unknown]
        gone = [d for region in selected for d in region.rejected]
        promised = sum((r.choice.cut or 0) - (r.choice.integer or 0) for r in selected)
        expected = carried_out(analysis) - {(d.node.result, d.fusion.id) for d in gone}
        analysis.withdraw(dict.fromkeys(gone))
        assert carried_out(analysis) == expected, seed
        assert total(analysis, chooser.prices) - before == promised, seed
        assert promised <= 0
        rejected += len(gone)
        kept += len(expected)
    assert rejected > 40
    assert kept > 40


@pytest.mark.parametrize("name", NAMES)
def test_numbers_hold_whatever_is_chosen(name: str) -> None:
    """Each layer keeps its promise, in integers or in float."""
    variant = TARGETS[name]
    registry = variant.options.get("registry") or qfuse.FusionRegistry.discover()
    cheaper = 0
    for seed in range(6):
        target = random_machine(registry.target(variant.target), seed)
        chosen = replace(variant, target=target, options={**variant.options, "policy": "profitable"})
        built = build(random_graph(seed))
        outcome = examine(built, chosen, built.samples())
        assert not outcome.violations, (seed, outcome.violations)
        cheaper += sum("float is cheaper here" in reason for reason in outcome.missed)
    assert cheaper
