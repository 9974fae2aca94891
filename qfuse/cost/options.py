"""`Options`: how one run is to be done; a target's defaults, overridden by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from qfuse.cost.schema import BOUNDARIES, EPILOGUES, POLICIES, ROUNDINGS, SPELLINGS
from qfuse.cost.target import Target
from qfuse.errors import UsageError, unknown
from qfuse.fixed_point import INEXACT
from qfuse.fixed_point import ROUNDINGS as SCALINGS


@dataclass(frozen=True)
class Options:
    """How one run is to be done; every field is an option of `fuse`, `plan`, `as_pass` and `qfuse-opt --option`.

    Attributes:
        spelling: `generic` (linalg.generic with the weight read where it lies) or `named` (linalg.quantized_matmul,
            matmul, contract where they can say it; the target iree-cpu leaves convolutions as they are).
        rounding: `roundeven` (math.roundeven) or `magic` (clamp first, then add and subtract 1.5 * 2^23: the same
            result, less code on machines without a rounding instruction).
        operands: narrowest operands of an integer contraction: `i8`, `i16` with the zero points subtracted (faster on
            CPUs that multiply i8 no faster than i16), or `vnni`, matmuls of static shape in tiles of an unsigned and a
            signed operand (x86 CPUs with AVX-512 VNNI; others refuse to compile them). Not every target has the choice.
        epilogue: how accumulators become stored integers: `float`, `fixed-point` (a multiplier and a shift, no float
            operation) or `power-of-two` (a shift).
        scaling: rounding of the last two: `single` or `double` (TOSA RESCALE), `gemmlowp`, `half-even`, or
            `inexact` where the emitter leaves it to the machine (TOSA).
        boundary: `keep`, or `drop` the quantize of function arguments and the dequantize of function results.
        policy: which of the fusions that apply are carried out: `always` all, `profitable` those that the cost model
            finds worth it on the target (docs/cost-model.md), `never` none.
        explain_cost: whether the report says what would have changed the choice of each region, whatever the policy.
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
    policy: str = "always"
    explain_cost: bool = False
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
        _one_of("scaling", options.scaling, (*SCALINGS, INEXACT))
        _one_of("boundary", options.boundary, BOUNDARIES)
        _one_of("policy", options.policy, POLICIES)
        return options


def _parse(name: str, value: Any) -> Any:
    if name in ("fusions", "disable"):
        parts = value.split(",") if isinstance(value, str) else value
        return None if parts is None else tuple(p.strip() for p in parts if p.strip())
    if name in ("explain_cost", "lookup16", "workload"):
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
