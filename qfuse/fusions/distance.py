"""How far an epilogue in f32 can be from the real value, and whether zero-point corrections may join its bias.

Each f32 operation rounds by at most 2^-24 of the largest magnitude that occurs. Magnitudes behind the clamp do not
count: computed and real value both grow with the accumulator and are clamped alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfuse.emit.spec import EXACT_IN_FLOAT, PlannedContraction
from qfuse.fixed_point import rounded_up
from qfuse.fusions.line import constant_operand
from qfuse.graph import AccumForm, Environment, Step, StoredForm
from qfuse.qparams import QuantParams

_UNIT = 2.0**-24
#: Corrections join the bias only where the result then differs no farther from a tie than this, in steps.
_NEAR = 1 / 16


@dataclass(frozen=True)
class FloatDistance:
    """What is known of an epilogue in f32.

    Attributes:
        steps: greatest distance from the real value in output steps, or None when not known before run time.
        folds: whether constant zero-point corrections join the bias.
    """

    steps: float | None
    folds: bool


@dataclass
class _Magnitudes:
    """Greatest magnitudes before the clamp.

    Attributes:
        slope: what an accumulator of 1 becomes.
        offset: sum of what is added.
        roundings: operations beyond one bias.
    """

    slope: float
    offset: float = 0.0
    roundings: int = 0


def float_distance(form: AccumForm, params: QuantParams, env: Environment) -> FloatDistance:
    """The distance of accumulators with steps that are quantized with `params`.

    The accumulators are converted (one rounding), multiplied by a rounded factor (two), added to a rounded bias (two)
    and divided (one); every further step rounds once more what is there.
    """
    planned: PlannedContraction = form.decision.payload
    foldable = planned.raw_bound < EXACT_IN_FLOAT and planned.blocked is None
    if form.element == "f64":
        return FloatDistance(0.0, foldable)
    lhs, rhs, out = (p.scale.span for p in (planned.lhs.params, planned.rhs.params, params))
    if lhs is None or rhs is None or out is None:
        return FloatDistance(None, foldable)
    found = _Magnitudes(lhs[1] * rhs[1])
    for step in form.steps:
        if not _take(found, step, env):
            return FloatDistance(None, foldable)
    slope, offset = found.slope / out[0], found.offset / out[0]
    uncorrected = max(planned.bound, planned.raw_bound) * slope
    if planned.blocked is not None:
        products = uncorrected * (1 + (planned.extents[-1] or 1))
        return FloatDistance(_shown(products, offset, found.roundings), False)
    corrected = min(planned.bound * slope, _to_clamp(params) + 1 + offset)
    joined = _shown(uncorrected, offset, found.roundings)
    apart = _shown(corrected, offset, found.roundings)
    if foldable and joined <= max(_NEAR, apart):
        return FloatDistance(joined, True)
    return FloatDistance(apart, False)


def _shown(products: float, offset: float, roundings: int) -> float:
    return rounded_up(_UNIT * ((5 + roundings) * products + (3 + roundings) * offset))


def _to_clamp(params: QuantParams) -> float:
    """Steps from the zero point to the farther clamp bound."""
    zero = params.zero_point.span
    low, high = (params.quant_min, params.quant_max) if zero is None else (zero[0], zero[1])
    return float(max(abs(params.quant_min - high), abs(params.quant_max - low)))


def _take(found: _Magnitudes, step: Step, env: Environment) -> bool:
    """Whether one float step is known well enough; its magnitudes are added."""
    if step.kind == "neg":
        return True
    constant = _constant_span(step, env)
    if step.kind in ("max", "min") and constant is not None:
        return True
    if step.kind in ("mul", "div"):
        if constant is None or constant[0] == 0.0:
            return False
        factor = constant[1] if step.kind == "mul" else 1.0 / constant[0]
        found.slope, found.offset = found.slope * factor, found.offset * factor
        found.roundings += 1
        return True
    greatest = _greatest(step, env) if constant is None else constant[1]
    if greatest is None:
        return False
    found.roundings += constant is None
    found.offset += greatest
    return True


def _greatest(step: Step, env: Environment) -> float | None:
    """Greatest magnitude of a step's operand that is read as integers, or None."""
    form = None if step.operand is None or step.operand.value is None else env.form(step.operand.value)
    if step.operand is None or step.operand.scalar is None or not isinstance(form, StoredForm):
        return None
    scale, zero = form.params.scale.data, form.params.zero_point.data
    if scale is None or zero is None or not scale.size or not zero.size:
        return None
    farthest = max(abs(form.low - int(zero.max())), abs(form.high - int(zero.min())), abs(form.high), abs(form.low))
    return float(scale.max()) * farthest


def _constant_span(step: Step, env: Environment) -> tuple[float, float] | None:
    """Least and greatest magnitude of a step's constant operand, or None."""
    operand = step.operand
    if operand is None:
        return None
    if operand.number is not None:
        return abs(operand.number), abs(operand.number)
    constant = constant_operand(operand, env)
    if constant is None or not constant[0].size:
        return None
    magnitudes = np.abs(constant[0])
    return float(magnitudes.min()), float(magnitudes.max())
