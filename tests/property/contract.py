"""What each layer of a fused network promises, and whether it holds given the integers that the layer was given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch_mlir import ir

import qfuse
from tests.property import kernels
from tests.property.executor import PoisonError, execute
from tests.property.graphs import Built
from tests.strategies import Array, Evaluation, Real, Stored, unsigned_view

#: What a reference in float64 may itself be off by, relative to the largest intermediate.
SLACK = 2.0**-44
#: The same for what is computed in f32 with no distance stated.
FLOAT_SLACK = 2.0**-19


@dataclass(frozen=True)
class Violation:
    """One promise that is broken.

    Attributes:
        kind: which: `class`, `poison`, `float`, `text`, ...
        layer: of the graph; -1 for inputs, None for the whole.
        message: what was found.
    """

    kind: str
    layer: int | None
    message: str


@dataclass(frozen=True)
class Target:
    """A target and options, by name."""

    name: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)


TARGETS = {
    t.name: t
    for t in (
        Target("linalg", "linalg"),
        Target("linalg-magic", "linalg", {"spelling": "named", "rounding": "magic"}),
        Target("iree-cpu", "iree-cpu"),
        Target("integer-only", "integer-only"),
        Target("double", "integer-only", {"scaling": "double"}),
        Target("gemmlowp", "integer-only", {"scaling": "gemmlowp"}),
        Target("half-even", "integer-only", {"scaling": "half-even"}),
        Target("power-of-two", "integer-only", {"epilogue": "power-of-two"}),
        Target("kernels", "integer-only", {"registry": kernels.registry("single", folded=False)}),
        Target("kernels-folded", "integer-only", {"registry": kernels.registry("half-even", folded=True)}),
    )
}


@dataclass
class Outcome:
    """What came of one graph.

    Attributes:
        violations: broken promises.
        classes: how many results have each class; `float` for those that stay in float.
        missed: reasons.
        values: how many stored integers were compared.
        differing: how many differ from the reference, as their class allows.
        farthest: the greatest part of its stated distance that a difference was found at.
        inputs: on which a violation was found.
        results: of the fused function on these, else on the first inputs.
    """

    violations: list[Violation] = field(default_factory=list)
    classes: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    values: int = 0
    differing: int = 0
    farthest: float = 0.0
    inputs: dict[str, Any] = field(default_factory=dict)
    results: tuple[Array, ...] = ()


def examine(built: Built, target: Target, samples: Sequence[Mapping[str, Any]], thorough: bool = True) -> Outcome:
    """Fuses a graph, runs it on inputs, and compares every layer with its reference.

    Args:
        built: the graph.
        target: what to fuse for.
        samples: inputs by argument name.
        thorough: whether to look at a second run of the fusions, and at what remains float, too.
    """
    outcome = Outcome()
    text = built.function.text
    with ir.Context(), ir.Location.unknown():
        plain, fused = ir.Module.parse(text), ir.Module.parse(text)
        report = qfuse.fuse(fused, target.target, **target.options)
        outcome.missed = [e["reason"] for e in report.missed]
        entries = _entries(built, report)
        outcome.classes.update(
            "float" if e is None else e["exactness"] for e, n in zip(entries, built.layers, strict=False) if n >= 0
        )
        if not fused.operation.verify():
            outcome.violations.append(Violation("verify", None, "the fused module does not verify"))
        if thorough:
            _look_at_text(built, fused, target, report, outcome)
        for inputs in samples:
            _run(built, plain, fused, entries, inputs, outcome)
            if outcome.violations:
                break
        if thorough and not outcome.violations:
            _run_hidden(built, target, samples[0], outcome)
    return outcome


def _run_hidden(built: Built, target: Target, inputs: Mapping[str, Any], outcome: Outcome) -> None:
    """With only the last result returned, layers before it have no other user: the numbers are the same."""
    module = ir.Module.parse(built.last_only)
    qfuse.fuse(module, target.target, **target.options)
    try:
        (hidden,) = execute(module, list(inputs.values()))
    except PoisonError as error:
        outcome.violations.append(Violation("poison", None, f"with one result, the function computes poison: {error}"))
        return
    shown = outcome.results[-1]
    if not np.array_equal(hidden, shown):
        outcome.inputs = dict(inputs)
        count = int((hidden != shown).sum())
        outcome.violations.append(
            Violation("hidden", None, f"{count} of {shown.size} numbers differ when only the last result is returned")
        )


def _entries(built: Built, report: qfuse.Report) -> list[dict[str, Any] | None]:
    """The report's entry of each stored result."""
    found: dict[int, dict[str, Any]] = {}
    for entry in report.applied:
        place = re.fullmatch(r".*:(\d+):\d+", entry["location"])
        assert place is not None, entry["location"]
        if entry["fusion"] != "qfuse.respell-quantize":
            found[int(place[1])] = entry
    return [found.get(line) for line in built.lines]


def _look_at_text(built: Built, fused: Any, target: Target, report: qfuse.Report, outcome: Outcome) -> None:
    before = str(fused)
    again = qfuse.fuse(fused, target.target, **target.options)
    if again.applied or str(fused) != before:
        what = [e["fusion"] for e in again.applied] or ["the text differs"]
        outcome.violations.append(Violation("second run", None, f"a second run is not idle: {', '.join(what)}"))
    if target.target == "integer-only" and not report.missed and not built.floats:
        left = _float_operations(fused)
        if left:
            outcome.violations.append(
                Violation("unnamed float", None, f"nothing is missed, but float operations are left: {left}")
            )


def _float_operations(module: Any) -> list[str]:
    """Operations that compute on floats, apart from quantizes of arguments and dequantizes of results."""
    found: list[str] = []
    functions = [o.operation for o in module.body.operations if o.operation.name == "func.func"]
    (function,) = [f for f in functions if len(f.regions[0].blocks)]
    block = function.regions[0].blocks[0]
    arguments, returned = list(block.arguments), list(list(block.operations)[-1].operation.operands)
    for op in block.operations:
        op = op.operation
        if not op.name.startswith(("linalg.generic", "linalg.conv", "linalg.pool", "linalg.matmul", "linalg.depth")):
            continue
        floats = [v for v in [*op.operands, *op.results] if "f32" in str(v.type)]
        ends = op.operands[0] in arguments or op.results[0] in returned
        if floats and not ends:
            found.append(op.name)
    return found


# -- numbers -----------------------------------------------------------------------------------------------------


def _run(
    built: Built, plain: Any, fused: Any, entries: Sequence[Any], inputs: Mapping[str, Any], outcome: Outcome
) -> None:
    values = list(inputs.values())
    try:
        results = execute(fused, values)
    except PoisonError as error:
        outcome.inputs = dict(inputs)
        outcome.violations.append(Violation("poison", None, f"the fused function computes poison: {error}"))
        return
    if not outcome.results:
        outcome.results = results
    judge(built, plain, entries, inputs, results, outcome)


def judge(
    built: Built,
    plain: Any,
    entries: Sequence[Any],
    inputs: Mapping[str, Any],
    results: Sequence[Array],
    outcome: Outcome,
) -> None:
    """Compares the results of a fused function, a layer at a time, given the results of the layers before."""
    returned = built.function.returned
    observed = {
        v.ssa: unsigned_view(r, v.grid) for v, r in zip(returned, results, strict=True) if v.grid is not None
    }  # fmt: skip
    run = Evaluation(inputs, observed)
    written = execute(plain, list(inputs.values()), list(results))
    for position, (value, result) in enumerate(zip(returned, results, strict=True)):
        layer = built.layers[position] if position < len(built.layers) else None
        reference = run.of(value)
        if isinstance(reference, Real):
            message = _float_difference(result, reference, written[position])
        else:
            assert isinstance(reference, Stored)
            assert value.grid is not None
            spelled = unsigned_view(written[position], value.grid)
            message = _difference(observed[value.ssa], reference, spelled, entries[position], outcome)
        if message is not None:
            outcome.inputs, outcome.results = dict(inputs), tuple(results)
            outcome.violations.append(Violation("class", layer, f"result {position}: {message}"))


def _float_difference(result: Array, reference: Real, written: Array) -> str | None:
    """Float results: within six roundings of the largest intermediate."""
    error = np.abs(result.astype(np.float64) - reference.value)
    allowed = np.maximum(6.0 * 2.0**-24 * reference.magnitude, 2.0**-148)
    wrong = ~(error <= allowed) & (result != written)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"float at {at} is {result[at]!r}, exact {reference.value[at]!r}, in f32 as written {written[at]!r}"


def _difference(
    stored: Array, reference: Stored, written: Array, entry: Mapping[str, Any] | None, outcome: Outcome
) -> str | None:
    """Stored results: what the entry states. Without one, a float quantize of what may have been reassociated."""
    off = np.abs(stored - reference.value)
    outcome.values += stored.size
    outcome.differing += int((off > 0).sum())
    fact = "stays in float" if entry is None else f"{entry['fusion']}, {entry['exactness']}"
    slack = SLACK * (1 + reference.magnitude)
    if entry is not None and entry["exactness"] == "bit-exact":
        wrong, distance = stored != written, None
    else:
        steps, distance = _stated(entry)
        bounds = steps if entry is None or not entry.get("channel_bounds") else _by_channel(entry, stored.shape)
        wrong = off > bounds
        if distance is None:
            near = np.full(stored.shape, np.inf) if _is_lookup(entry) else FLOAT_SLACK * reference.magnitude
        else:
            # Three digits are stated.
            near = np.full(stored.shape, distance * 1.005) + slack
        wrong = wrong | ((off > 0) & (reference.distance > near))
        if distance and (off > 0).any():
            outcome.farthest = max(outcome.farthest, float((reference.distance[off > 0]).max()) / distance)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    stated = "" if distance is None else f", stated {distance:.4g}"
    return (
        f"{fact}: {int(wrong.sum())} of {stored.size} are wrong; at {at} it is {stored[at]}, reference "
        f"{reference.value[at]}, as written {written[at]}, {reference.distance[at]:.4g} steps from a tie{stated}, "
        f"largest intermediate {np.broadcast_to(reference.magnitude, stored.shape)[at]:.4g} steps"
    )


def _is_lookup(entry: Mapping[str, Any] | None) -> bool:
    return entry is not None and entry["fusion"] == "qfuse.lookup"


def _stated(entry: Mapping[str, Any] | None) -> tuple[int, float | None]:
    if entry is None:
        return 1, None
    classes = [re.fullmatch(r"within-(\d+)-lsb", c) for c in entry["exactness"].split(" and ")]
    steps = [int(c[1]) for c in classes if c is not None]
    assert steps, entry["exactness"]
    return max(steps), entry.get("tie_distance")


def _by_channel(entry: Mapping[str, Any], shape: tuple[int, ...]) -> Array:
    """Bounds of channels over a result; the greatest where it is not plain which dimension they are along."""
    bounds = np.asarray(entry["channel_bounds"])
    axes = [i for i, n in enumerate(shape) if n == bounds.size]
    if len(axes) != 1:
        return np.asarray(bounds.max())
    return bounds.reshape([-1 if i == axes[0] else 1 for i in range(len(shape))])
