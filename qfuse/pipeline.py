"""`plan`, `fuse` and `as_pass`: read everything, decide everything, then rewrite.

Everything that can refuse runs in `plan`. `fuse` builds the planned operations beside the old ones, verifies, switches
the uses over and erases what died. An exception while building leaves the module as it was.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from qfuse._builder import Builder
from qfuse._mlir import Bindings, Value
from qfuse.analysis import Analysis
from qfuse.boundary import Boundary, build_results, expose, plan_boundaries
from qfuse.cost.options import Options
from qfuse.cost.target import Target
from qfuse.emit.base import BuildContext
from qfuse.emit.vocabulary import Vocabulary, vocabulary_of
from qfuse.erase import erase
from qfuse.errors import InputError, UsageError, noted
from qfuse.graph import AccumForm, Decision
from qfuse.integer_only import name_float_operations
from qfuse.policy import apply_policy
from qfuse.registry import FusionRegistry
from qfuse.report import Report, collect

if TYPE_CHECKING:
    import networkx as nx


class Plan:
    """What `fuse` would do: printable, serialisable, and nothing changed yet.

    Attributes:
        report: the entries, as they will stand in the report.
    """

    def __init__(self, analysis: Analysis, report: Report) -> None:
        """Made by `plan`."""
        self._analysis = analysis
        self.report = report

    def __str__(self) -> str:
        return self.report.text()

    def to_json(self) -> dict[str, Any]:
        """The same data as the report's `to_json`."""
        return self.report.to_json()

    def graph(self) -> nx.DiGraph[int]:
        """The recognised operations and how values flow between them, one node a recognised operation.

        Node attributes: `kind`, `op`, `location`, `fusion` (id or None), `reason` (or None).
        """
        import networkx as nx  # takes longer to import than all of qfuse

        analysis = self._analysis
        graph: nx.DiGraph[int] = nx.DiGraph()
        numbers = {node.result: i for i, node in enumerate(analysis.nodes)}
        for i, node in enumerate(analysis.nodes):
            decision = analysis.env.decisions.get(node.result)
            refusal = analysis.refusals.get(node.result)
            graph.add_node(
                i,
                kind=type(node).__name__,
                op=node.op.name,
                location=analysis.bindings.location(node.op),
                fusion=None if decision is None else decision.fusion.id,
                reason=None if refusal is None else refusal.reason,
            )
            for operand in node.op.operands:
                if operand in numbers:
                    graph.add_edge(numbers[operand], i)
        return graph


@lru_cache(maxsize=1)
def _installed() -> FusionRegistry:
    return FusionRegistry.discover()


def _usable(registry: Any) -> FusionRegistry:
    """The registry that was given, or that of what is installed."""
    if registry is not None and not isinstance(registry, FusionRegistry):
        raise UsageError(f"registry takes a FusionRegistry, got {registry!r}")
    return _installed() if registry is None else registry


def _vocabulary(known: FusionRegistry, target: Target, options: Options) -> type[Vocabulary]:
    """What the target's emitter can write.

    Raises:
        UsageError: not what the options ask for; quotes the line of a target's file that names the emitter.
    """
    vocabulary = vocabulary_of(known.emitter(target))
    try:
        vocabulary.check_options(target.name, options.epilogue, options.scaling)
    except UsageError as error:
        where = "" if target.origin is None else f" ({target.quoted(('emitter',))})"
        raise UsageError(f"{error}{where}") from None
    return vocabulary


def _analyse(
    root: Any, target: str | os.PathLike[str] | Target, registry: FusionRegistry | None, options: dict[str, Any]
) -> tuple[Analysis, list[Boundary], Report]:
    operation = getattr(root, "operation", root)
    bindings = Bindings.of(root)
    known = _usable(registry)
    chosen = target if isinstance(target, Target) else known.target(target)
    parsed = Options.of(chosen, options)
    usable = known.restricted(chosen, parsed.fusions, parsed.disable)
    vocabulary = _vocabulary(known, chosen, parsed)
    analysis = Analysis(operation, bindings, usable, chosen, parsed, vocabulary)
    _check_dialect(analysis, chosen, vocabulary)
    costs = apply_policy(analysis)
    report = Report(chosen.name, list(known.problems), policy=parsed.policy, cost=costs)
    collect(report, analysis)
    if chosen.integer_only:
        name_float_operations(report, analysis, operation)
    drops = parsed.boundary == "drop" and parsed.policy != "never"
    boundaries = plan_boundaries(report, analysis, operation) if drops else []
    if parsed.workload:
        analysis.count_bytes(report, "bytes_before")
    return analysis, boundaries, report


#: Dialects that emitters rewrite, each with a target that does.
_DIALECTS = {"linalg": "linalg", "tosa": "tosa-int"}


def _check_dialect(analysis: Analysis, target: Target, vocabulary: type[Vocabulary]) -> None:
    """Raises InputError for a module that is written in another dialect than the target's."""
    found = {node.op.name.split(".")[0] for node in analysis.nodes} & set(_DIALECTS)
    if not found or vocabulary.dialect in found:
        return
    (other,) = found
    raise InputError(
        f"target {target.name} takes {vocabulary.dialect} operations, this module is written in {other}:"
        f" use target {_DIALECTS[other]}"
    )


def plan(
    module: Any,
    target: str | os.PathLike[str] | Target = "linalg",
    registry: FusionRegistry | None = None,
    **options: Any,
) -> Plan:
    """What `fuse` would do to `module`, which is not changed.

    Args:
        module: an `ir.Module` (or a `builtin.module` / `func.func` operation) of any MLIR binding.
        target: a target's name, the path of a TOML file that describes one, or a `Target`.
        registry: the fusions and targets to choose from; those installed when None.
        **options: see `qfuse.Options`.

    Raises:
        UsageError: an unknown target, fusion or option.
        InputError: `module` is not an MLIR module.
    """
    with _without_collection():
        analysis, _, report = _analyse(module, target, registry, options)
    return Plan(analysis, report)


def fuse(
    module: Any,
    target: str | os.PathLike[str] | Target = "linalg",
    registry: FusionRegistry | None = None,
    **options: Any,
) -> Report:
    """Rewrites `module` in place: all of the plan or, on any error, nothing.

    Args:
        module: an `ir.Module` (or a `builtin.module` / `func.func` operation) of any MLIR binding.
        target: a target's name, the path of a TOML file that describes one, or a `Target`.
        registry: the fusions and targets to choose from; those installed when None.
        **options: see `qfuse.Options`.

    Returns:
        What was applied, what was left alone and why.

    Raises:
        UsageError: an unknown target, fusion or option.
        InputError: `module` is not an MLIR module.
    """
    with _without_collection():
        return _fuse(module, target, registry, options)


def _fuse(
    module: Any, target: str | os.PathLike[str] | Target, registry: FusionRegistry | None, options: dict[str, Any]
) -> Report:
    analysis, boundaries, report = _analyse(module, target, registry, options)
    counting = analysis.env.options.workload
    if not analysis.live and not boundaries:
        if counting:
            analysis.count_bytes(report, "bytes_after")
        return report
    known = _usable(registry)
    builder = Builder(analysis.bindings, analysis.root.context)
    context = BuildContext(
        analysis.bindings,
        builder,
        known.emitter(analysis.env.target),
        analysis.env.options,
        analysis.recognizer.constants,
    )
    try:
        replacements = _build(analysis, context, boundaries)
        results = build_results(boundaries, context)
        _verify(analysis, context)
    except BaseException:
        builder.undo()
        raise
    replacements, dead = expose(boundaries, results, replacements, builder)
    _switch(analysis, replacements, dead, _passed_over(builder))
    if counting:
        analysis.count_bytes(report, "bytes_after")
    analysis.forget()
    return report


@contextmanager
def _without_collection() -> Generator[None, None, None]:
    """Pauses the cyclic garbage collector: an analysis keeps many objects and makes no cycles worth looking for."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _verify(analysis: Analysis, context: BuildContext) -> None:
    """Verifies what was built: each new operation, or everything when code from elsewhere took part."""
    parts = [context.emitter, *(d.fusion for d in analysis.live)]
    if all(type(part).__module__.startswith("qfuse.") for part in parts):
        for op in context.builder.created:
            analysis.bindings.verify(op)
    else:
        analysis.bindings.verify(analysis.root)


def _build(analysis: Analysis, context: BuildContext, boundaries: list[Boundary]) -> list[tuple[Value, Value]]:
    replacements: list[tuple[Value, Value]] = []
    dropped = {v for b in boundaries for _, values in b.arguments.values() for v in values}
    live = set(analysis.live)
    for node in analysis.nodes:
        result = node.result
        decision = analysis.env.decisions.get(result)
        if decision is not None and decision in live and decision.replaces:
            try:
                value = context.build(decision)
            except BaseException as error:
                noted(error, f"raised by the build of {analysis.described(decision.fusion, node)}")
                raise
            if not isinstance(getattr(value, "type", None), analysis.bindings.ir.Type):
                raise InputError(f"the build of {analysis.described(decision.fusion, node)} returned {value!r}")
            if analysis.bindings.is_ranked_tensor(value.type):
                with context.at(node.op):
                    value = context.cast(value, node.replaced.type)
            _same_type(node.replaced, value, decision)
            if result not in dropped:
                context.replaced[node.replaced] = value
            replacements.append((node.replaced, value))
        form = analysis.floats.get(result)
        if form is not None:
            with context.at(node.op):
                value = context.cast(context.emitter.materialize(form, node, context), result.type)
            replacements.append((result, value))
    return replacements


def _same_type(old: Value, new: Value, decision: Decision) -> None:
    if old.type != new.type:
        raise InputError(f"fusion {decision.fusion.id} built {new.type} in place of {old.type}")


def _passed_over(builder: Builder) -> list[Value]:
    """Results of operations that were built and that nothing may read: transposes that are undone, and TOSA."""
    created = [op for op in builder.created if op.name == "linalg.transpose" or op.name.startswith("tosa.")]
    return [op.results[0] for op in created]


def _switch(analysis: Analysis, replacements: list[tuple[Value, Value]], dead: list[Value], built: list[Value]) -> None:
    """Replaces uses, then erases what has no user left, last first."""
    final: dict[Value, Value] = dict(replacements)
    for old, new in replacements:
        while new in final:  # the integers of one quantize may take the place of a later one
            new = final[new]
        old.replace_all_uses_with(new)
    absorbed = [
        n.result for n in analysis.nodes
        if isinstance(analysis.env.forms.get(n.result), AccumForm) and n.result not in analysis.floats
    ]  # fmt: skip
    erase(built + [old for old, _ in replacements] + absorbed + dead, analysis.recognizer.reader)


def as_pass(
    target: str | os.PathLike[str] | Target = "linalg", registry: FusionRegistry | None = None, **options: Any
) -> Callable[[Any, Any], None]:
    """A callable for `PassManager.add`, on `builtin.module` or nested on `func.func`.

    The report of each run is appended to the attribute `reports` of what is returned.

    Raises:
        UsageError: an unknown target, fusion or option, at once.
    """
    known = _usable(registry)
    chosen = target if isinstance(target, Target) else known.target(target)
    parsed = Options.of(chosen, options)
    known.restricted(chosen, parsed.fusions, parsed.disable)
    _vocabulary(known, chosen, parsed)

    def qfuse_pass(op: Any, _pass: Any = None) -> None:
        reports.append(fuse(op, chosen, registry, **options))

    reports: list[Report] = []
    qfuse_pass.reports = reports  # type: ignore[attr-defined]
    return qfuse_pass
