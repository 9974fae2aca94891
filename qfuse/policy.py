"""The option `policy`: which of the fusions that apply are carried out, and what the report says of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from qfuse.analysis import Analysis
from qfuse.cost.model import FEMTOSECONDS
from qfuse.cost.region import Change, Chooser
from qfuse.graph import Decision, Refusal
from qfuse.selection import Selected, select


def apply_policy(analysis: Analysis) -> list[dict[str, Any]]:
    """Takes back what the policy does not carry out; returns the entries of the report's `cost`."""
    options = analysis.env.options
    if options.policy == "never" and not options.explain_cost:
        _withdraw_all(analysis)
        return []
    if options.policy == "always" and not options.explain_cost:
        return []
    chooser = Chooser(analysis.env.target, options.explain_cost)
    regions = select(analysis, chooser)
    entries = [_entry(region, analysis, chooser) for region in regions if _is_shown(region)]
    if options.policy == "never":
        _withdraw_all(analysis)
    elif options.policy == "profitable":
        withdrawn: dict[Decision, Refusal | None] = {}
        for region in regions:
            rejected = set(region.rejected)
            withdrawn.update((d, _refusal(d, rejected, region, chooser)) for d in region.rejected)
        if withdrawn:
            analysis.withdraw(withdrawn)
    return entries


def _withdraw_all(analysis: Analysis) -> None:
    live = dict.fromkeys(d for d in analysis.live if not d.on_demand)
    refusal = Refusal("the policy is to fuse nothing", "choose the policy always or profitable")
    analysis.withdraw({d: refusal if _is_told(d, live) else None for d in live})


def _is_told(decision: Decision, rejected: Collection[Decision]) -> bool:
    """Whether a rejected fusion has an entry: not one that ends accumulators which are rejected too."""
    return decision.fusion.listed and not any(isinstance(n, Decision) and n in rejected for n in decision.needs)


def _refusal(decision: Decision, rejected: Collection[Decision], region: Selected, chooser: Chooser) -> Refusal | None:
    if not _is_told(decision, rejected):
        return None
    choice = region.choice
    changes = ", or ".join(map(_described, _changes(region, chooser)))
    hint = changes or "choose the policy always; the option explain_cost says what would have changed this"
    integer, other = shown(choice.integer), shown(choice.float)
    if len(rejected) < len(region.decisions):
        return Refusal(f"float is cheaper here: integer {integer}, float {other}, mixed {shown(choice.cut)}", hint)
    return Refusal(f"float is cheaper here: integer {integer}, float {other}", hint)


def _changes(region: Selected, chooser: Chooser) -> tuple[Change, ...]:
    """What would have changed a choice, if that is asked for."""
    return chooser.changes(region.region, frozenset(region.variables)) if chooser.explains else ()


def _is_shown(region: Selected) -> bool:
    return any(d.fusion.listed for d in region.decisions)


def _entry(region: Selected, analysis: Analysis, chooser: Chooser) -> dict[str, Any]:
    choice = region.choice
    first = region.decisions[0].node
    rejected = set(region.rejected)
    integer = [d.fusion.id for d in region.decisions if d not in rejected and d.fusion.listed]
    left = [d.fusion.id for d in region.decisions if d in rejected and d.fusion.listed]
    policy = analysis.env.options.policy
    if policy == "never":
        chosen = "float"
    elif policy == "always" or choice.unknown or not rejected:
        chosen = "integer"
    else:
        chosen = "float" if len(rejected) == len(region.decisions) else "mixed"
    return {
        "function": analysis.functions[first.result],
        "location": analysis.bindings.location(first.op),
        "integer_seconds": _seconds(choice.integer),
        "float_seconds": _seconds(choice.float),
        "cut_seconds": _seconds(choice.cut),
        "cut_integer": integer,
        "cut_float": left,
        "chosen": chosen,
        "unknown": choice.unknown or None,
        "would_change": [{"number": c.number, "factor": c.factor} for c in _changes(region, chooser)],
    }


def _seconds(cost: int | None) -> float | None:
    return None if cost is None else cost / FEMTOSECONDS


def shown(cost: int | None) -> str:
    """Femtoseconds as a time that people read."""
    if cost is None:
        return "unknown"
    for unit, size in (("s", 10**15), ("ms", 10**12), ("us", 10**9)):
        if cost >= size:
            return f"{cost / size:.4g} {unit}"
    return f"{cost / 10**6:.4g} ns"


def _described(change: Change) -> str:
    factor = change.factor if change.factor >= 1 else 1 / change.factor
    digits = 2 - math.floor(math.log10(factor))
    factor = math.ceil(factor * 10**digits) / 10**digits  # up: what is shown changes the choice
    return f"{change.number} {factor:g} times as {'high' if change.factor >= 1 else 'low'}"


def explained(entries: Iterable[Mapping[str, Any]], policy: str) -> list[str]:
    """The entries of the report's `cost` as text, several lines a region."""
    lines: list[str] = []
    for number, entry in enumerate(entries, 1):
        lines.append(f"region {number}: {entry['location']} in {entry['function']}")
        costs = {key: entry[f"{key}_seconds"] for key in ("integer", "float", "cut")}
        text = ", ".join(f"{k} {_of_seconds(v)}" for k, v in costs.items())
        lines.append(f"  cost: {text}")
        if entry["unknown"]:
            lines.append(f"  unknown: {entry['unknown']}; decided as with the policy always")
        else:
            lines.append(f"  cut: integer {_names(entry['cut_integer'])}; float {_names(entry['cut_float'])}")
        lines.append(f"  chosen (policy {policy}): {entry['chosen']}")
        for change in entry["would_change"]:
            lines.append(f"  would change the cut: {_described(Change(change['number'], change['factor']))}")
    return lines


def _of_seconds(seconds: float | None) -> str:
    return shown(None if seconds is None else round(seconds * FEMTOSECONDS))


def _names(ids: list[str]) -> str:
    return ", ".join(ids) or "nothing"
