"""Plans epilogues in integers: what a chain of float steps between accumulators and a quantize is in fixed point.

    %f = float(%acc) * s ; + bias ; / n ; relu ; quantize   ->   clamp(rescale(%acc + bias') + zero point)

A chain of additions, multiplications and clamps by constants is  clamp(slope * acc + offset)  with other clamp bounds:
each is monotone. The bias is an integer at the scale of the accumulators,  round(offset / slope).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from qfuse.emit.base import loops_to_dims, out_extents
from qfuse.emit.fixed_epilogue import FixedAddend, FixedScale, PlannedFixedRequantize, PlannedFixedRescale
from qfuse.emit.spec import PlannedContraction
from qfuse.fixed_point import Multiplier, fits, greatest_scale, is_power_of_two, tie_distance
from qfuse.graph import AccumForm, Array, Environment, Refusal, Step, StepOperand, StoredForm
from qfuse.indexing import Extents, Index, as_dim, compose, dims_of_index, gather, is_identity
from qfuse.qparams import Param, QuantParams, broadcast_to_dims

#: Relative error of scales that were multiplied and divided in f64, generously.
_ROUNDED = 2.0**-48
#: Scales along two dimensions are multiplied out up to so many numbers.
_MOST_SCALES = 1 << 16
#: A bias is at the accumulators' scale when its own is within the rounding of f32.
_SAME_SCALE = 2.0**-22

#: Guard bits of a sum, at least and at most.
_GUARD = (4, 20)

_I32 = 1 << 31


@dataclass(eq=False)
class FixedPlan:
    """A planned epilogue and how far it can be from the reference.

    Attributes:
        scale: what to build.
        distance: greatest distance from a half-integer at which results may differ, in steps of the output.
        bounds: greatest difference in steps, a channel.
    """

    scale: FixedScale
    distance: float
    bounds: Array

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
            "tie_distance": float(f"{self.distance:.3g}"),
            "scaling": self.scale.rounding,
            "multiplier": f"{multiplier.mantissa.size} channels" if known is None else f"{known[0]} / 2^{known[1]}",
            "channel_bounds": None if same else [int(n) for n in bounds],
            **({"guard_bits": self.scale.guard} if self.scale.addends else {}),
        }


@dataclass(eq=False)
class _Line:
    """`clamp(slope * (acc + whole) + offset, low, high)`, each an array over the accumulators' dimensions.

    Attributes:
        loose: how far `whole` may be from what it stands for.
        mass: sum of what was added, as magnitudes: what the rounding of `offset` is relative to.
        rounded: whether any number was computed with rounding.
        addends: dequantized tensors that are added, each with its scale.
    """

    slope: Array
    offset: Array
    low: Array
    high: Array
    whole: Array
    loose: Array
    mass: Array
    rounded: bool
    addends: list[tuple[StoredForm, Index, Array]] = field(default_factory=list[tuple[StoredForm, Index, Array]])

    def add(self, number: Array) -> None:
        self.rounded = self.rounded or bool(self.offset.any())
        self.mass = self.mass + np.abs(number)
        self.offset, self.low, self.high = self.offset + number, self.low + number, self.high + number

    def multiply(self, number: Array) -> None:
        self.rounded = self.rounded or not is_power_of_two(np.abs(number))
        self.slope, self.offset, self.mass = self.slope * number, self.offset * number, self.mass * np.abs(number)
        self.addends = [(form, index, scale * number) for form, index, scale in self.addends]
        ends = self.low * number, self.high * number
        self.low, self.high = np.minimum(*ends), np.maximum(*ends)

    def clamp(self, kind: str, number: Array) -> None:
        bounded = np.maximum if kind == "max" else np.minimum
        self.low, self.high = bounded(self.low, number), bounded(self.high, number)


def plan_requantize(form: AccumForm, params: QuantParams, env: Environment) -> FixedPlan | Refusal:
    """The epilogue of accumulators that end in a quantize with these parameters (over the accumulators' dimensions)."""
    planned: PlannedContraction = form.decision.payload
    if planned.blocked is not None:
        return Refusal(
            "groups along the reduction are summed in float, which a fixed-point epilogue does not do",
            "quantize per tensor or per axis, or use epilogue=float",
        )
    line = _start(planned, env)
    if isinstance(line, Refusal):
        return line
    for step in form.steps:
        refusal = _follow(line, step, planned, env)
        if refusal is not None:
            return refusal
    extents = out_extents(planned.extents, planned.out_loops)
    return _finish(line, planned.bound, params, extents, _I32, env)


def plan_rescale(form: StoredForm, params: QuantParams, env: Environment) -> FixedPlan | Refusal:
    """Stored integers that are quantized with other parameters."""
    rank = len(params.extents)
    scale = _constant_param("scale of the input", form.params.scale, params.extents)
    zero = _constant_param("zero point of the input", form.params.zero_point, params.extents)
    for found in (scale, zero):
        if isinstance(found, Refusal):
            return found
    assert not isinstance(scale, Refusal)
    assert not isinstance(zero, Refusal)
    slope, whole = scale.astype(np.float64), -zero.astype(np.int64)
    nothing = np.zeros((1,) * rank)
    line = _Line(
        slope, nothing, nothing - np.inf, nothing + np.inf, whole, nothing, nothing, not is_power_of_two(slope)
    )
    largest = max(abs(form.low), abs(form.high))
    return _finish(line, largest, params, params.extents, _I32 + 1, env)


def _start(planned: PlannedContraction, env: Environment) -> _Line | Refusal:
    rank = len(planned.out_loops)
    to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
    extents = out_extents(planned.extents, planned.out_loops)
    scales: list[Array] = []
    for role, side in (("lhs", planned.lhs), ("rhs", planned.rhs)):
        param = side.params.scale
        moved = Param(compose(param.index, to_dims, extents), param.data, param.value, param.element, param.signed)
        found = _constant_param(f"scale of {role}", moved, extents)
        if isinstance(found, Refusal):
            return found
        scales.append(found.astype(np.float64))
    shape = np.broadcast_shapes(scales[0].shape, scales[1].shape)
    size = int(np.prod(shape, dtype=np.int64))
    if size > max(s.size for s in scales) and size > _MOST_SCALES:
        return Refusal(
            f"the scales of both operands vary: a fixed-point epilogue would need {size} multipliers",
            "quantize one operand per tensor, or use epilogue=float",
        )
    nothing = np.zeros((1,) * rank)
    rounded = not all(is_power_of_two(s) for s in scales)
    whole = np.zeros((1,) * rank, np.int64)
    return _Line(scales[0] * scales[1], nothing, nothing - np.inf, nothing + np.inf, whole, nothing, nothing, rounded)


def _constant_param(what: str, param: Param, extents: Extents) -> Array | Refusal:
    """A constant parameter over dimensions of these extents."""
    if param.data is None or not param.data.size:
        return Refusal(f"the {what} is known only at run time", "use epilogue=float, or quantize statically")
    found = _over_dims(param.data, param.index, extents)
    if found is None:
        return Refusal(f"the {what} varies along dynamic extents in blocks, which fixed point does not take")
    return found


def _over_dims(array: Array, index: Index, extents: Extents) -> Array | None:
    """A constant read at `index`, over the dimensions: extent 1 where it does not vary. None for dynamic gathers."""
    aligned = broadcast_to_dims(Param(index, array), list(range(len(extents))))
    if aligned is not None:
        return aligned
    used = dims_of_index(index)
    if any(extents[d] is None for d in used):
        return None
    return gather(array, index, [(extents[d] or 0) if d in used else 1 for d in range(len(extents))])


def _follow(line: _Line, step: Step, planned: PlannedContraction, env: Environment) -> Refusal | None:
    """Takes one float step into a line."""
    rank = len(planned.out_loops)
    extents = out_extents(planned.extents, planned.out_loops)
    if step.operand is None:
        line.multiply(np.full((1,) * rank, -1.0))
        return None
    if step.kind in ("add", "sub") and _take_integers(line, step, extents, env):
        return None
    number = _constant_over(step.operand, extents, env)
    added = None if number is not None else _addend(step.operand, extents, env)
    if added is not None and step.kind in ("add", "sub", "rsub"):
        return _take_addend(line, step.kind, *added)
    if number is None:
        return Refusal(
            f"the epilogue has {_SHOWN[step.kind]} a float tensor that is known only at run time",
            "quantize that tensor, or use epilogue=float",
        )
    if np.isnan(number).any():
        return Refusal("a constant of the epilogue is not a number")
    if number.size > _MOST_SCALES and number.size > line.slope.size:
        return Refusal(f"the epilogue has a constant of {number.size} elements, more than it may hold")
    if step.kind in ("max", "min"):
        line.clamp(step.kind, number)
        return None
    if not np.isfinite(number).all() or (step.kind in ("mul", "div") and not number.all()):
        return Refusal("a constant that the epilogue adds, multiplies or divides by is zero or infinite")
    if step.kind in ("mul", "div"):
        line.multiply(number if step.kind == "mul" else 1.0 / number)
        return None
    if step.kind == "rsub":
        line.multiply(np.full((1,) * rank, -1.0))
    line.add(-number if step.kind == "sub" else number)
    return None


_SHOWN = {
    "add": "an addition of", "sub": "a subtraction of", "rsub": "a subtraction from", "mul": "a multiplication by",
    "div": "a division by", "max": "a maximum with", "min": "a minimum with",
}  # fmt: skip


def _take_addend(line: _Line, kind: str, form: StoredForm, index: Index, scale: Array) -> Refusal | None:
    """Takes the addition of a dequantized tensor."""
    if (np.isfinite(line.low) | np.isfinite(line.high)).any():
        return Refusal(
            "a dequantized tensor is added behind a clamp, which cannot move behind the addition",
            "quantize between the two, or use epilogue=float",
        )
    if kind == "rsub":
        line.multiply(np.full((1,) * line.offset.ndim, -1.0))
    line.rounded = line.rounded or not is_power_of_two(scale)
    line.addends.append((form, index, -scale if kind == "sub" else scale))
    return None


def _addend(operand: StepOperand, extents: Extents, env: Environment) -> tuple[StoredForm, Index, Array] | None:
    """A dequantized tensor with constant parameters: its form, the index of its integers, its scale."""
    form = None if operand.value is None else env.form(operand.value)
    if not isinstance(form, StoredForm) or form.params.zero_point.data is None or form.params.scale.data is None:
        return None
    params = form.params.over(operand.index, extents)
    index = compose(form.index, operand.index, extents)
    scale = _over_dims(form.params.scale.data, params.scale.index, extents)
    if scale is None or params.scale.data is None or None in map(as_dim, index):
        return None
    return replace(form, params=params), index, scale.astype(np.float64)


def _constant_over(operand: StepOperand, extents: Extents, env: Environment) -> Array | None:
    """Constant values of a step's operand in f64 over the dimensions, or None."""
    if operand.number is not None:
        return np.full((1,) * len(extents), operand.number, np.float64)
    array = None if operand.value is None else env.reader.constants.read(operand.value)
    if array is None:
        stored = _stored_constant(operand, env)
        if stored is None:
            return None
        array = stored[0] * stored[1]
    return _over_dims(array.astype(np.float64), operand.index, extents)


def _stored_constant(operand: StepOperand, env: Environment) -> tuple[Array, Array] | None:
    """`q - zero point` and the scale of a dequantized constant, over its own dimensions, or None."""
    form = None if operand.value is None else env.form(operand.value)
    if not isinstance(form, StoredForm):
        return None
    sizes = [n if n is not None else -1 for n in form.params.extents]
    scale, zero = form.params.scale, form.params.zero_point
    array = env.array(form.q, form.params.storage)
    if array is None or scale.data is None or zero.data is None or -1 in sizes:
        return None
    if not is_identity(form.index, form.params.extents):
        array = gather(array, form.index, sizes)
    shifted = array.astype(np.int64) - gather(zero.data.astype(np.int64), zero.index, sizes)
    return shifted, gather(scale.data.astype(np.float64), scale.index, sizes)


def _take_integers(line: _Line, step: Step, extents: Extents, env: Environment) -> bool:
    """Takes a dequantized constant that is at the accumulators' scale as the integers that it is."""
    operand = step.operand
    stored = None if operand is None else _stored_constant(operand, env)
    if operand is None or stored is None:
        return False
    whole = _over_dims(stored[0], operand.index, extents)
    scale = _over_dims(np.broadcast_to(stored[1], stored[0].shape), operand.index, extents)
    if whole is None or scale is None or not (line.slope > 0).all():
        return False
    apart = np.abs(scale - line.slope) / line.slope
    if (apart > _SAME_SCALE).any():
        return False
    line.whole = line.whole + (whole if step.kind == "add" else -whole)
    line.loose = line.loose + np.abs(whole) * apart
    shift = scale * whole * (1 if step.kind == "add" else -1)
    line.low, line.high = line.low + shift, line.high + shift
    return True


def _finish(
    line: _Line, largest: int, params: QuantParams, extents: Extents, limit: int, env: Environment
) -> FixedPlan | Refusal:
    """Ends a line by a quantize: multiplier, integer bias, clamp bounds and error bound.

    Args:
        line: what is quantized.
        largest: greatest magnitude of the integers before `line.whole` is added.
        params: of the output.
        extents: of what the arrays are over.
        limit: what that magnitude with the bias must be less than.
        env: options.
    """
    scale = _constant_param("scale of the result", params.scale, extents)
    zero = _constant_param("zero point of the result", params.zero_point, extents)
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
            f"accumulator and bias can reach {reach:.0f}, which does not fit i32",
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
    if line.addends:
        return _with_addends(line, step, (total, sign, zero, low, high), float(reach), loose, extents, env)
    multiplier = _multiplier(np.abs(ratio), env)
    if isinstance(multiplier, Refusal):
        return multiplier
    planned = FixedScale(multiplier, env.options.scaling, total, sign, zero, low, high)
    distance, bounds = _bounds(planned, np.abs(ratio), int(reach), loose, rounded)
    return FixedPlan(planned, distance, bounds)


def _with_addends(
    line: _Line,
    step: Array,
    rest: tuple[Array, Array, Array, Array, Array],
    reach: float,
    loose: Array,
    extents: Extents,
    env: Environment,
) -> FixedPlan | Refusal:
    """Values and addends are brought to one grid of 2^-guard steps, added and rounded.

    Each rescale is off by half a point of the grid and its own distance; these add up.
    """
    ratio = np.abs(line.slope / step)
    scales = [scale / step for _, _, scale in line.addends]
    biases: list[Array] = []
    magnitudes: list[float] = []
    for form, _, scale in line.addends:
        zero = _constant_param("zero point of the added tensor", form.params.zero_point, extents)
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
    if guard < _GUARD[0]:
        return Refusal(f"a sum in the epilogue can reach {largest:.6g} steps of the result, too many for i32")
    uncertainty = _ROUNDED if line.rounded or not is_power_of_two(step) else 0.0
    rounding = env.options.scaling
    distance = loose * ratio
    made: list[Multiplier] = []
    for scale, magnitude in zip([ratio, *map(np.abs, scales)], [reach, *magnitudes], strict=True):
        multiplier = _multiplier(scale * 2.0**guard, env)
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


def _multiplier(ratio: Array, env: Environment) -> Multiplier | Refusal:
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
    if not fits(ratio):
        return Refusal(
            f"the scale to the result must be positive and less than"
            f" {greatest_scale(31):.0f}, found {float(ratio.max()):.6g}"
        )
    return Multiplier.of(ratio)


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


__all__ = ["FixedPlan", "PlannedFixedRequantize", "PlannedFixedRescale", "plan_requantize", "plan_rescale"]
