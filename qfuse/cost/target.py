"""`Target`: what is allowed on a machine; `Options`: how one run is to be done."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from qfuse.errors import UsageError
from qfuse.fixed_point import ROUNDINGS as SCALINGS
from qfuse.qparams import QuantParams

SPELLINGS = ("generic", "named")
ROUNDINGS = ("magic", "roundeven")
OPERANDS = ("i8", "i16")
EPILOGUES = ("float", "fixed-point", "power-of-two")
BOUNDARIES = ("keep", "drop")


@dataclass(frozen=True)
class Target:
    """What may become integer on a machine, and how it is spelled.

    Attributes:
        name: how the target is asked for.
        doc: one line for listings.
        emitter: name of the emitter that spells integer operations.
        fusions: ids of the fusions that may be used; None for all.
        forbidden: ids of fusions that may not be used.
        storage: allowed storage types as printed (`s8`, `u8`, ...); None for all.
        granularities: allowed kinds an operand (`lhs`, `rhs`): `per-tensor`, `per-axis`, `per-token`, `per-group`,
            `per-block`; an operand that is not named may have any.
        asymmetric: operands (`lhs`, `rhs`) that may have a zero point.
        accumulators: allowed accumulator widths in bits, narrowest first.
        split_reduction: whether a reduction may be split so that the parts fit a narrower accumulator.
        spelling: default of the option of that name.
        rounding: default of the option of that name.
        operands: allowed values of the option of that name, the default first.
        epilogue: default of the option of that name.
        scaling: default of the option of that name.
        integer_only: whether the report names every operation that keeps float arithmetic between quantized values.
        throughput: for the cost model, by types: `s8xs8`, `f32xf32` in multiply-accumulates a second, `s8`, `f32` in
            elements a second of one elementwise operation. What is not named is unknown, not free.
        memory_bandwidth: bytes a second, or None when unknown.
        call_overhead: seconds that starting one operation takes, or None when unknown.
    """

    name: str
    doc: str = ""
    emitter: str = "linalg"
    fusions: frozenset[str] | None = None
    forbidden: frozenset[str] = frozenset()
    storage: frozenset[str] | None = None
    granularities: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    asymmetric: frozenset[str] = frozenset({"lhs", "rhs"})
    accumulators: tuple[int, ...] = (32, 64)
    split_reduction: bool = True
    spelling: str = "generic"
    rounding: str = "roundeven"
    operands: tuple[str, ...] = OPERANDS[:1]
    epilogue: str = "float"
    scaling: str = "single"
    integer_only: bool = False
    throughput: Mapping[str, float] = field(default_factory=dict[str, float])
    memory_bandwidth: float | None = None
    call_overhead: float | None = None

    def allows(self, fusion: str) -> bool:
        """Whether the fusion of this id may be used."""
        return fusion not in self.forbidden and (self.fusions is None or fusion in self.fusions)

    def refuses_operand(self, role: str, params: QuantParams) -> str | None:
        """Why an operand (`lhs` or `rhs`) quantized like this is not allowed, or None."""
        if self.storage is not None and str(params.storage) not in self.storage:
            return f"target {self.name} takes storage {_listed(self.storage)}, {role} is {params.storage}"
        kind = params.granularity.split("(")[0]
        allowed = self.granularities.get(role)
        if allowed is not None and kind not in allowed:
            return f"target {self.name} takes {_listed(allowed)} for {role}, it is {params.granularity}"
        if role not in self.asymmetric and not params.symmetric:
            return f"target {self.name} takes no zero point on {role}"
        return None


@dataclass(frozen=True)
class Options:
    """How one run is to be done; every field is an option of `fuse`, `plan`, `as_pass` and `qfuse-opt --option`.

    Attributes:
        spelling: `generic` (linalg.generic with the weight read where it lies) or `named` (linalg.quantized_matmul,
            matmul, contract where they can say it).
        rounding: `roundeven` (math.roundeven) or `magic` (clamp first, then add and subtract 1.5 * 2^23: the same
            result, less code on machines without a rounding instruction).
        operands: narrowest operands of an integer contraction: `i8`, or `i16` with the zero points subtracted (faster
            on CPUs that multiply i8 no faster than i16). Not every target has the choice.
        epilogue: how accumulators become stored integers: `float`, `fixed-point` (a multiplier and a shift, no float
            operation) or `power-of-two` (a shift).
        scaling: rounding of the last two: `single` or `double` (TOSA RESCALE), `gemmlowp`, or `half-even`.
        boundary: `keep`, or `drop` the quantize of function arguments and the dequantize of function results.
        lookup16: whether functions of a 16-bit value become tables too, with straight lines between 513 points.
        workload: whether the report counts the bytes that each function moves, before and after.
        max_reduction: upper bound on dynamic reduction sizes; None when no bound is known.
        fusions: ids of the only fusions to use; None for all that the target allows.
        disable: ids of fusions not to use.
    """

    spelling: str = "generic"
    rounding: str = "roundeven"
    operands: str = "i8"
    epilogue: str = "float"
    scaling: str = "single"
    boundary: str = "keep"
    lookup16: bool = False
    workload: bool = False
    max_reduction: int | None = None
    fusions: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()

    @staticmethod
    def of(target: Target, given: Mapping[str, Any]) -> Options:
        """Options for `target`: its defaults, overridden by `given` (values may be text).

        Raises:
            UsageError: an unknown name or a value of the wrong kind.
        """
        known = {f.name for f in fields(Options)}
        for name in given:
            if name not in known:
                raise UsageError(unknown("option", name, sorted(known)))
        defaults = Options(
            target.spelling, target.rounding, target.operands[0], epilogue=target.epilogue, scaling=target.scaling
        )
        options = replace(defaults, **{k: _parse(k, v) for k, v in given.items()})
        _one_of("spelling", options.spelling, SPELLINGS)
        _one_of("rounding", options.rounding, ROUNDINGS)
        _one_of("operands", options.operands, target.operands)
        _one_of("epilogue", options.epilogue, EPILOGUES)
        _one_of("scaling", options.scaling, SCALINGS)
        _one_of("boundary", options.boundary, BOUNDARIES)
        return options


def _parse(name: str, value: Any) -> Any:
    if name in ("fusions", "disable"):
        parts = value.split(",") if isinstance(value, str) else value
        return None if parts is None else tuple(p.strip() for p in parts if p.strip())
    if name in ("lookup16", "workload"):
        return _boolean(name, value)
    if name != "max_reduction" or value is None:
        return value
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number <= 0:
        raise UsageError(f"option max_reduction takes a positive integer, got {value!r}")
    return number


def _boolean(name: str, value: Any) -> bool:
    found = {"true": True, "false": False}.get(str(value).lower())
    if found is None:
        raise UsageError(f"option {name} takes true or false, got {value!r}")
    return found


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UsageError(f"option {name} takes one of {', '.join(allowed)}, got {value!r}")


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """The message for a name that is not known: the nearest one, then all."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}known are {', '.join(known) or 'none'}"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
