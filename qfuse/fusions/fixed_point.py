"""Plans epilogues in integers: what a chain of float steps between accumulators and a quantize is in fixed point.

    %f = float(%acc) * s ; + bias ; / n ; relu ; quantize   ->   clamp(rescale(%acc + bias') + zero point)

A chain of additions, multiplications and clamps by constants is  clamp(slope * acc + offset)  with other clamp bounds:
each is monotone. The bias is an integer at the scale of the accumulators,  round(offset / slope).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from qfuse.emit.base import out_extents
from qfuse.emit.fixed_epilogue import FixedAddend, FixedScale
from qfuse.emit.spec import PlannedContraction
from qfuse.fixed_point import (
    Multiplier,
    fits,
    greatest_scale,
    is_power_of_two,
    is_within_shift,
    largest_value,
    rounded_up,
    tie_distance,
)
from qfuse.fusions.line import Line, constant_param, follow, start
from qfuse.graph import AccumForm, Array, Environment, Refusal, StoredForm
from qfuse.indexing import Extents
from qfuse.qparams import QuantParams

#: Relative error of scales that were multiplied and divided in f64, generously.
_ROUNDED = 2.0**-48
#: Guard bits of a sum, at least and at most.
_GUARD = (4, 20)

_I32 = 1 << 31
#: Bits of sums that were moved down to i32, and how far from a tie multipliers of 15 bits may be.
_NARROW, _COARSE = 30, 1 / 8


@dataclass(eq=False)
class FixedPlan:
    """A planned epilogue and how far it can be from the reference.

    Attributes:
        scale: what to build.
        distance: greatest distance from a half-integer at which results may differ, in steps of the output.
        bounds: greatest difference in steps, a channel.
        is_mean: whether the emitter has one operation for it.
    """

    scale: FixedScale
    distance: float
    bounds: Array
    is_mean: bool = False

    @property
    def exactness(self) -> str:
        """The class of the rewrite."""
        return f"within-{int(self.bounds.max(initial=0))}-lsb"

    @property
    def detail(self) -> dict[str, object]:
        """Facts for the report."""
        multiplier, bounds = self.scale.multiplier, self.bounds.reshape(-1)
        same = bool((bounds == bounds[:1]).all())
        known = multiplier.scalar
        return {
            "tie_distance": rounded_up(self.distance),
            "scaling": self.scale.rounding,
            "multiplier": f"{multiplier.mantissa.size} channels" if known is None else f"{known[0]} / 2^{known[1]}",
            "channel_bounds": None if same else [int(n) for n in bounds],
            **({} if self.scale.narrowed is None else {"narrowed": self.scale.narrowed}),
            **({"guard_bits": self.scale.guard} if self.scale.addends else {}),
        }


def plan_requantize(form: AccumForm, params: QuantParams, env: Environment) -> FixedPlan | Refusal:
    """The epilogue of accumulators that end in a quantize with these parameters (over the accumulators' dimensions)."""
    planned: PlannedContraction = form.decision.payload
    if planned.blocked is not None:
        return Refusal(
            "groups along the reduction are summed in float, which a fixed-point epilogue does not do",
            "quantize per tensor or per axis",
            in_float=True,
        )
    line = start(planned, env)
    if isinstance(line, Refusal):
        return line
    for step in form.steps:
        refusal = follow(line, step, planned, env)
        if refusal is not None:
            return refusal
    extents = out_extents(planned.extents, planned.out_loops)
    bits = env.vocabulary.multiplier_bits(planned.bits)
    limit = _I32 if bits == 31 else largest_value(bits)
    mean = env.vocabulary.mean_multiplier(form, params) if env.options.epilogue == "fixed-point" else None
    return _finish(line, planned.bound, params, extents, limit, env, bits, mean)


def plan_rescale(form: StoredForm, params: QuantParams, env: Environment) -> FixedPlan | Refusal:
    """Stored integers that are quantized with other parameters."""
    rank = len(params.extents)
    scale = constant_param("scale of the input", form.params.scale, params.extents)
    zero = constant_param("zero point of the input", form.params.zero_point, params.extents)
    for found in (scale, zero):
        if isinstance(found, Refusal):
            return found
    assert not isinstance(scale, Refusal)
    assert not isinstance(zero, Refusal)
    slope, whole = scale.astype(np.float64), -zero.astype(np.int64)
    nothing = np.zeros((1,) * rank)
    line = Line(slope, nothing, nothing - np.inf, nothing + np.inf, whole, nothing, nothing, not is_power_of_two(slope))
    largest = max(abs(form.low), abs(form.high))
    return _finish(line, largest, params, params.extents, _I32 + 1, env)


def _finish(
    line: Line,
    largest: int,
    params: QuantParams,
    extents: Extents,
    limit: int,
    env: Environment,
    bits: int = 31,
    mean: Multiplier | None = None,
) -> FixedPlan | Refusal:
    """Ends a line by a quantize: multiplier, integer bias, clamp bounds and error bound.

    Args:
        line: what is quantized.
        largest: greatest magnitude of the integers before `line.whole` is added.
        params: of the output.
        extents: of what the arrays are over.
        limit: what that magnitude with the bias must be less than.
        env: options.
        bits: of the multiplier.
        mean: the multiplier of an operation of its own, which rounds once.
    """
    scale = constant_param("scale of the result", params.scale, extents)
    zero = constant_param("zero point of the result", params.zero_point, extents)
    if isinstance(scale, Refusal):
        return scale
    if isinstance(zero, Refusal):
        return zero
    step, zero = scale.astype(np.float64), zero.astype(np.int64)
    ratio = line.slope / step
    sign = np.sign(ratio).astype(np.int64)
    exact_bias = line.offset / line.slope
    reach = largest + np.ceil(np.abs(exact_bias)).max(initial=0.0) + np.abs(line.whole).max(initial=0)
    if not reach < limit:
        return Refusal(
            f"accumulator and bias can reach {reach:.0f}, which does not fit i{48 if bits == 15 else 32}",
            "use narrower storage, a smaller reduction or a smaller bias",
        )
    bias = np.rint(exact_bias).astype(np.int64)
    rounded = line.rounded or not is_power_of_two(step)
    loose = np.abs(exact_bias - bias) + line.loose + (line.mass / np.abs(line.slope) * _ROUNDED if rounded else 0.0)
    total = (bias + line.whole) * sign
    low, high = (
        np.clip(np.rint(end / step) + zero, params.quant_min, params.quant_max).astype(np.int64)
        for end in (line.low, line.high)
    )
    rest = (total, sign, zero, low, high)
    narrowed = None
    if bits == 15 and env.options.epilogue == "fixed-point":
        narrowed = _narrowed(line, step, rest, float(reach), loose, extents, env, rounded)
    if line.addends:
        return narrowed or _with_addends(line, step, rest, float(reach), loose, extents, env, bits)
    multiplier = _multiplier(np.abs(ratio), env, bits) if mean is None else mean
    if isinstance(multiplier, Refusal):
        return multiplier
    rounding = _rounding(env, bits) if mean is None else "single"
    planned = FixedScale(multiplier, rounding, *rest)
    distance, bounds = _bounds(planned, np.abs(ratio), int(reach), loose, rounded)
    if narrowed and distance > _COARSE:
        return narrowed
    return FixedPlan(planned, distance, bounds, mean is not None)


def _narrowed(
    line: Line,
    step: Array,
    rest: tuple[Array, Array, Array, Array, Array],
    reach: float,
    loose: Array,
    extents: Extents,
    env: Environment,
    rounded: bool,
) -> FixedPlan | Refusal:
    """Sums that are moved down to i32 first, where multipliers have 31 bits: half a unit of what is left is lost."""
    shift = max(int(reach).bit_length() - _NARROW, 0)
    slope = line.slope * 2.0**shift
    loose = loose * 2.0**-shift + (0.5 if shift else 0.0)
    reach = float(np.ceil(reach * 2.0**-shift))
    if line.addends:
        plan = _with_addends(replace(line, slope=slope), step, rest, reach, loose, extents, env, 31)
        return plan if isinstance(plan, Refusal) else replace(plan, scale=replace(plan.scale, narrowed=shift))
    ratio = np.abs(slope / step)
    multiplier = _multiplier(ratio, env, 31)
    if isinstance(multiplier, Refusal):
        return multiplier
    planned = FixedScale(multiplier, _rounding(env, 31), *rest, narrowed=shift)
    return FixedPlan(planned, *_bounds(planned, ratio, int(reach), loose, rounded))


def _with_addends(
    line: Line,
    step: Array,
    rest: tuple[Array, Array, Array, Array, Array],
    reach: float,
    loose: Array,
    extents: Extents,
    env: Environment,
    bits: int,
) -> FixedPlan | Refusal:
    """Values and addends are brought to one grid of 2^-guard steps, added and rounded.

    Each rescale is off by half a point of the grid and its own distance; these add up.
    """
    ratio = np.abs(line.slope / step)
    scales = [scale / step for _, _, scale in line.addends]
    biases: list[Array] = []
    magnitudes: list[float] = []
    for form, _, scale in line.addends:
        zero = constant_param("zero point of the added tensor", form.params.zero_point, extents)
        if isinstance(zero, Refusal):
            return zero
        if not ((scale > 0).all() or (scale < 0).all()):
            return Refusal("an added tensor is multiplied by constants of both signs")
        biases.append(-zero.astype(np.int64))
        magnitudes.append(float(max(np.abs(form.low - zero).max(), np.abs(form.high - zero).max())))
    largest = float((ratio * reach).max()) + sum(
        float(np.abs(s).max()) * m for s, m in zip(scales, magnitudes, strict=True)
    )
    guard = min(_GUARD[1], 30 - math.ceil(math.log2(largest + 1)))
    # A shift allows values below half of what it divides by, which is one bit less in the worst case.
    factors = list(zip([ratio, *map(np.abs, scales)], [reach, *magnitudes], strict=True))
    while guard >= _GUARD[0] and not all(is_within_shift(s * 2.0**guard, m) for s, m in factors):
        guard -= 1
    if guard < _GUARD[0]:
        return Refusal(f"a sum in the epilogue can reach {largest:.6g} steps of the result, too many for i32")
    uncertainty = _ROUNDED if line.rounded or not is_power_of_two(step) else 0.0
    rounding = _rounding(env, bits)
    distance = loose * ratio
    made: list[Multiplier] = []
    for scale, magnitude in factors:
        multiplier = _multiplier(scale * 2.0**guard, env, 31 if made else bits)
        if isinstance(multiplier, Refusal):
            return multiplier
        made.append(multiplier)
        off = 0.5 + tie_distance(multiplier, scale * 2.0**guard, magnitude, rounding, uncertainty)
        distance = distance + off * 2.0**-guard
    addends = tuple(
        FixedAddend(form.q, index, form.params.storage, bias, 1 if bool((scale > 0).all()) else -1, multiplier)
        for (form, index, scale), bias, multiplier in zip(line.addends, biases, made[1:], strict=True)
    )
    total, sign, zero, low, high = rest
    planned = FixedScale(made[0], rounding, total, sign, zero, low, high, addends, guard)
    return FixedPlan(planned, float(distance.max()), (1 + np.floor(distance)).astype(np.int64))


def _rounding(env: Environment, bits: int) -> str:
    """How values are rounded; multipliers of 15 bits round once."""
    return "single" if bits == 15 else env.options.scaling


def _multiplier(ratio: Array, env: Environment, bits: int) -> Multiplier | Refusal:
    if env.options.epilogue == "power-of-two":
        if not is_power_of_two(ratio):
            found = float(ratio[np.frexp(ratio)[0] != 0.5].reshape(-1)[0])
            return Refusal(
                f"the scale to the result must be a power of two, found {found:.6g}",
                "quantize with scales that are powers of two, or use epilogue=fixed-point",
            )
        if not fits(ratio, 0):
            return Refusal(f"the scale to the result must lie in [2^-62, 2^30], found {float(ratio.max()):.6g}")
        return Multiplier.of(ratio, 0)
    if not fits(ratio, bits):
        return Refusal(
            f"the scale to the result must be positive and less than"
            f" {greatest_scale(bits):.0f}, found {float(ratio.max()):.6g}"
        )
    return Multiplier.of(ratio, bits)


def _bounds(scale: FixedScale, ratio: Array, reach: int, loose: Array, rounded: bool) -> tuple[float, Array]:
    """Greatest distance from a tie, and the difference in steps, a channel.

    Fixed point and reference both grow with the accumulator and are clamped alike. So beyond the first accumulator at
    which the reference reaches the clamp they are no farther apart than there, and only magnitudes up to it count.
    """
    to_clamp = np.maximum(np.abs(scale.low - scale.zero_point), np.abs(scale.high - scale.zero_point)) + 1.0
    with np.errstate(over="ignore"):
        enough = np.ceil(to_clamp / ratio + loose) + 1
    largest = np.minimum(float(reach), enough)
    uncertainty = _ROUNDED if rounded else 0.0
    distance = tie_distance(scale.multiplier, ratio, largest, scale.rounding, uncertainty) + loose * ratio
    ties_alike = scale.rounding == "half-even"
    bounds = np.where(ties_alike & (distance == 0), 0, 1 + np.floor(distance)).astype(np.int64)
    return float(distance.max(initial=0.0)), bounds
