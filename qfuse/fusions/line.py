"""A chain of float steps on accumulators as one line between clamps:  clamp(slope * acc + offset, low, high)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from qfuse.emit.base import loops_to_dims, out_extents
from qfuse.emit.spec import PlannedContraction
from qfuse.fixed_point import is_power_of_two
from qfuse.graph import Array, Environment, Refusal, Step, StepOperand, StoredForm
from qfuse.indexing import Extents, Index, compose, gather, is_identity
from qfuse.qparams import Param, over_extents

#: Scales along two dimensions are multiplied out up to so many numbers.
_MOST_SCALES = 1 << 16
#: A bias is at the accumulators' scale when its own is within the rounding of f32.
_SAME_SCALE = 2.0**-22


@dataclass(eq=False)
class Line:
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
        """Adds a constant."""
        self.rounded = self.rounded or bool(self.offset.any())
        self.mass = self.mass + np.abs(number)
        self.offset, self.low, self.high = self.offset + number, self.low + number, self.high + number

    def multiply(self, number: Array) -> None:
        """Multiplies by a constant."""
        self.rounded = self.rounded or not is_power_of_two(np.abs(number))
        self.slope, self.offset, self.mass = self.slope * number, self.offset * number, self.mass * np.abs(number)
        self.addends = [(form, index, scale * number) for form, index, scale in self.addends]
        ends = self.low * number, self.high * number
        self.low, self.high = np.minimum(*ends), np.maximum(*ends)

    def clamp(self, kind: str, number: Array) -> None:
        """The maximum (`kind` is `max`) or minimum with a constant."""
        bounded = np.maximum if kind == "max" else np.minimum
        self.low, self.high = bounded(self.low, number), bounded(self.high, number)


def start(planned: PlannedContraction, env: Environment) -> Line | Refusal:
    """The scaled accumulators themselves."""
    rank = len(planned.out_loops)
    to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
    extents = out_extents(planned.extents, planned.out_loops)
    scales: list[Array] = []
    for role, side in (("lhs", planned.lhs), ("rhs", planned.rhs)):
        param = side.params.scale
        moved = Param(compose(param.index, to_dims, extents), param.data, param.value, param.element, param.signed)
        found = constant_param(f"scale of {role}", moved, extents)
        if isinstance(found, Refusal):
            return found
        scales.append(found.astype(np.float64))
    shape = np.broadcast_shapes(scales[0].shape, scales[1].shape)
    size = int(np.prod(shape, dtype=np.int64))
    if size > max(s.size for s in scales) and size > _MOST_SCALES:
        return Refusal(
            f"the scales of both operands vary: a fixed-point epilogue would need {size} multipliers",
            "quantize one operand per tensor",
            in_float=True,
        )
    nothing = np.zeros((1,) * rank)
    rounded = not all(is_power_of_two(s) for s in scales)
    whole = np.zeros((1,) * rank, np.int64)
    return Line(scales[0] * scales[1], nothing, nothing - np.inf, nothing + np.inf, whole, nothing, nothing, rounded)


def constant_param(what: str, param: Param, extents: Extents) -> Array | Refusal:
    """A constant parameter over dimensions of these extents."""
    if param.data is None or not param.data.size:
        return Refusal(f"the {what} is known only at run time", "quantize statically", in_float=True)
    found = over_extents(param.data, param.index, extents)
    if found is None:
        return Refusal(f"the {what} varies along dynamic extents in blocks, which fixed point does not take")
    return found


def follow(line: Line, step: Step, planned: PlannedContraction, env: Environment) -> Refusal | None:
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
            "quantize that tensor",
            in_float=True,
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


def _take_addend(line: Line, kind: str, form: StoredForm, index: Index, scale: Array) -> Refusal | None:
    """Takes the addition of a dequantized tensor."""
    if (np.isfinite(line.low) | np.isfinite(line.high)).any():
        return Refusal(
            "a dequantized tensor is added behind a clamp, which cannot move behind the addition",
            "quantize between the two",
            in_float=True,
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
    scale = over_extents(form.params.scale.data, params.scale.index, extents)
    if scale is None or params.scale.data is None or not env.is_readable(form.q, index, extents):
        return None
    return replace(form, params=params), index, scale.astype(np.float64)


def _constant_over(operand: StepOperand, extents: Extents, env: Environment) -> Array | None:
    """Constant values of a step's operand in f64 over the dimensions, or None."""
    if operand.number is not None:
        return np.full((1,) * len(extents), operand.number, np.float64)
    constant = constant_operand(operand, env)
    return None if constant is None else over_extents(*constant, extents)


def constant_operand(operand: StepOperand, env: Environment) -> tuple[Array, Index] | None:
    """Constant values of a step's tensor operand in f64, and where they are read; None where they are not known."""
    if operand.scalar is not None and operand.scalar.op == "array":
        array, index = operand.scalar.payload
        return array.astype(np.float64), index
    array = None if operand.value is None else env.reader.constants.read(operand.value)
    if array is None:
        stored = _stored_constant(operand, env)
        if stored is None:
            return None
        array = stored[0] * stored[1]
    return array.astype(np.float64), operand.index


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


def _take_integers(line: Line, step: Step, extents: Extents, env: Environment) -> bool:
    """Takes a dequantized constant that is at the accumulators' scale as the integers that it is."""
    operand = step.operand
    stored = None if operand is None else _stored_constant(operand, env)
    if operand is None or stored is None:
        return False
    whole = over_extents(stored[0], operand.index, extents)
    scale = over_extents(np.broadcast_to(stored[1], stored[0].shape), operand.index, extents)
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
