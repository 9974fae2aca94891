"""Fuses many functions, compiles them in one module, runs them, and judges each result by its reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

import qfuse
from qfuse.integrations.iree import CompileError, Program, compile_module
from tests.numerics.interpreter import interpret
from tests.strategies import FLOAT_DIGITS, Array, Evaluation, Function, Real, Stored, unsigned_view

KINDS = ("random", "random", "extremes", "low", "high")
#: Relative to the largest intermediate: where a stored output may differ, and how much a float output may.
BOUNDARY = 2.0**-20
FLOAT_ROUNDINGS = 6.0

# Without data tiling: with it, IREE 3.13 miscompiles batched contractions whose epilogue reads one operand a row and
# another a column (float or integer alike).
FLAGS = (
    "--iree-opt-level=O2",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-demote-f64-to-f32=false",
    "--iree-llvmcpu-stack-allocation-limit=2097152",
)


@dataclass(frozen=True)
class Variant:
    """A target and options, by a name for test ids."""

    name: str
    target: str | qfuse.Target = "linalg"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


GENERIC = Variant("generic", "linalg", {"spelling": "generic", "rounding": "roundeven"})
NAMED = Variant("named", "linalg", {"spelling": "named", "rounding": "magic"})
IREE_CPU = Variant("iree-cpu", "iree-cpu")
VARIANTS = (GENERIC, NAMED, IREE_CPU)
#: The other combinations of spelling and rounding.
MIXED = (
    Variant("generic-magic", "linalg", {"spelling": "generic", "rounding": "magic"}),
    Variant("named-roundeven", "linalg", {"spelling": "named", "rounding": "roundeven"}),
    Variant("iree-cpu-named", "iree-cpu", {"spelling": "named"}),
)


@dataclass(eq=False)
class Case:
    """One function and what is expected of it.

    Attributes:
        function: the function.
        exact: every output is exactly the reference's.
        contractions: how many contractions become integer.
        missed: reasons, in order, of what stays in float.
        options: of the fuse call, besides the variant's.
        kinds: of inputs.
        check: looks at the report.
    """

    function: Function
    exact: bool = False
    contractions: int = 1
    missed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = KINDS
    check: Callable[[qfuse.Report], None] | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    def inputs(self) -> list[dict[str, Array]]:
        """The inputs it is run on, always the same."""
        rng = np.random.default_rng([7, *self.name.encode()])
        return [self.function.sample(rng, kind) for kind in self.kinds]


@dataclass(eq=False)
class Fused:
    """A case after `fuse`: the report, the texts before and after and after a second run, the function."""

    report: qfuse.Report
    before: str
    after: str
    again: qfuse.Report
    after_again: str
    module: Any


class Batch:
    """Cases under one variant; compiled together when the first result is asked for."""

    def __init__(self, cases: Sequence[Case], variant: Variant | None) -> None:
        """Fuses every case under `variant`, or leaves all as they are when it is None."""
        self.cases = {case.name: case for case in cases}
        assert len(self.cases) == len(cases), "names of cases must differ"
        self.variant = variant
        self._context = ir.Context()
        self._fused: dict[str, Fused | Exception] = {}

    def fused(self, name: str) -> Fused:
        """A fused case.

        Raises:
            Exception: whatever `fuse` raised.
        """
        found = self._fused.get(name)
        if found is None:
            try:
                found = self._fuse(self.cases[name])
            except (qfuse.QfuseError, ir.MLIRError, ValueError, TypeError, KeyError, AttributeError, IndexError,
                    AssertionError, StopIteration, RuntimeError) as error:  # fmt: skip
                found = error
            self._fused[name] = found
        if isinstance(found, Exception):
            raise found
        return found

    def _fuse(self, case: Case) -> Fused:
        module = ir.Module.parse(case.function.text, self._context)
        before = str(module)
        if self.variant is None:
            empty = qfuse.Report("none")
            return Fused(empty, before, before, empty, before, module)
        options = {**self.variant.options, **case.options}
        report = qfuse.fuse(module, self.variant.target, **options)
        after = str(module)
        again = qfuse.fuse(module, self.variant.target, **options)
        return Fused(report, before, after, again, str(module), module)

    @cached_property
    def _programs(self) -> dict[str, Program | CompileError]:
        modules = {}
        for name in self.cases:
            try:
                modules[name] = self.fused(name).module
            except Exception:  # noqa: BLE001 - the case's own test raises it again
                continue
        return self._compile(modules)

    def _compile(self, modules: Mapping[str, Any]) -> dict[str, Program | CompileError]:
        """One program for all, or, when that does not compile, for each half: one bad function fails alone."""
        if not modules:
            return {}
        with self._context, ir.Location.unknown():
            whole = ir.Module.create()
            for module in modules.values():
                for op in module.body.operations:
                    whole.body.append(op.operation.clone())
        try:
            program: Program | CompileError = Program(compile_module(whole, flags=FLAGS))
        except CompileError as error:
            names = list(modules)
            if len(names) == 1:
                return {names[0]: error}
            half = len(names) // 2
            first = self._compile({n: modules[n] for n in names[:half]})
            return {**first, **self._compile({n: modules[n] for n in names[half:]})}
        return dict.fromkeys(modules, program)

    def run(self, name: str, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """Runs one case.

        Raises:
            CompileError: IREE does not take it.
        """
        self.fused(name)
        program = self._programs[name]
        if isinstance(program, CompileError):
            raise program
        return program(*inputs.values(), entry=name)


@dataclass
class Errors:
    """How far outputs are from the reference: stored integers that differ, and the largest float error."""

    differing: int = 0
    largest: float = 0.0


def judge(case: Case, inputs: Mapping[str, Array], outputs: Sequence[Array], *, strict: bool = True) -> Errors:
    """Compares outputs with the reference, given the stored outputs that came before (later layers build on them).

    With `strict`, asserts the contract: stored outputs are the reference's, or one step off where the real value lies
    within rounding of a boundary; float outputs are within rounding of the largest intermediate.
    """
    run = Evaluation(inputs)
    errors = Errors()
    for value, output in zip(case.function.returned, outputs, strict=True):
        expected = run.of(value)
        if isinstance(expected, Real):
            error = np.abs(output.astype(np.float64) - expected.value)
            scale = np.broadcast_to(expected.magnitude, error.shape)
            relative = error / np.where(scale == 0, 1, scale)
            errors.largest = max(errors.largest, float(relative.max(initial=0)))
            if strict:
                assert output.dtype == np.dtype(value.element.replace("f", "float"))
                bound = 0.0 if case.exact else FLOAT_ROUNDINGS * 2.0 ** -FLOAT_DIGITS[value.element]
                worst = np.unravel_index(int(relative.argmax()), relative.shape) if relative.size else ()
                assert relative.max(initial=0) <= bound, (
                    f"{case.name}: float output {value.ssa} at {worst} is {output[worst]!r}, exact is "
                    f"{expected.value[worst]!r}, largest intermediate {scale[worst]:g}"
                )
            continue
        assert value.grid is not None
        stored = unsigned_view(output, value.grid)
        reference = expected.value if isinstance(expected, Stored) else np.asarray(expected)
        off = np.abs(stored - reference)
        errors.differing += int((off > 0).sum())
        if strict:
            _assert_stored(case, value.ssa, stored, expected, off)
        run.observed[value.ssa] = stored
    return errors


def _assert_stored(case: Case, ssa: str, stored: Array, expected: Any, off: Array) -> None:
    if not isinstance(expected, Stored) or case.exact:
        reference = expected.value if isinstance(expected, Stored) else expected
        assert stored.shape == reference.shape
        np.testing.assert_array_equal(stored, reference, f"{case.name}: output {ssa}")
        return
    assert stored.shape == expected.value.shape
    allowed = (off == 0) | ((off == 1) & (expected.distance <= BOUNDARY * expected.magnitude))
    if allowed.all():
        return
    where = tuple(int(i) for i in np.argwhere(~allowed)[0])
    raise AssertionError(
        f"{case.name}: {int((~allowed).sum())} of {stored.size} stored outputs {ssa} are wrong; at {where} it is "
        f"{stored[where]}, reference {expected.value[where]}, {expected.distance[where]:.3g} steps from a boundary, "
        f"largest intermediate {expected.magnitude[where]:.4g} steps"
    )


def assert_fused(batch: Batch, name: str) -> Fused:
    """Asserts what holds for every fusion: it fires, verifies, is reported, and a second run changes nothing."""
    case = batch.cases[name]
    fused = batch.fused(name)
    assert fused.module.operation.verify()
    report = fused.report
    assert [e["reason"] for e in report.missed] == list(case.missed), str(report)
    assert sum(e["fusion"] == "qfuse.contraction" for e in report.applied) == case.contractions, str(report)
    assert report.summary["integer_ops"] == case.contractions, str(report)
    if case.check is not None:
        case.check(report)
    assert fused.again.applied == [], "a second run applies something"
    assert fused.after_again == fused.after, "a second run changes the text"
    return fused


def assert_numbers(batch: Batch, name: str) -> None:
    """Runs a case on all its inputs and asserts the numeric contract."""
    case = batch.cases[name]
    for inputs in case.inputs():
        judge(case, inputs, batch.run(name, inputs))


def total_errors(batch: Batch, names: Sequence[str], *, compiled: bool) -> Errors:
    """The errors of many cases together, run by IREE or by the interpreter."""
    total = Errors()
    for name in names:
        case = batch.cases[name]
        for inputs in case.inputs():
            if compiled:
                outputs = batch.run(name, inputs)
            else:
                outputs = interpret(batch.fused(name).module, name, list(inputs.values()))
            errors = judge(case, inputs, outputs, strict=False)
            total.differing += errors.differing
            total.largest = max(total.largest, errors.largest)
    return total


def assert_interpreted(batch: Batch, name: str) -> None:
    """As `assert_numbers`, by the interpreter, which also finds poison."""
    case = batch.cases[name]
    module = batch.fused(name).module
    for inputs in case.inputs():
        judge(case, inputs, interpret(module, name, list(inputs.values())))


def parameters(cases: Mapping[str, Case], xfail: Mapping[str, str] | None = None, *, run: bool = True) -> list[Any]:
    """Names for `parametrize`; `xfail` gives the reason why one is not right yet, `run` whether it is safe to run."""
    known = {} if xfail is None else dict(xfail)
    assert set(known) <= set(cases), "xfail names a case that does not exist"
    return [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=known[name], run=run)) if name in known else name
        for name in cases
    ]
