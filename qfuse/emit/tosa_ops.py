"""TOSA operations one at a time: what moves and adds, bounds, RESCALE.

Nothing moves i48: where a sum is reshaped or transposed, it is rescaled first, and what that gives is moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qfuse._mlir import Attribute, Value
from qfuse.emit.tosa_moves import TosaMoves
from qfuse.fixed_point import Multiplier
from qfuse.graph import Array

_MODES = {"single": "SINGLE_ROUND", "double": "DOUBLE_ROUND", "inexact": "INEXACT_ROUND"}

#: Shifts of RESCALE.
MIN_SHIFT, MAX_SHIFT = 2, 62


def bits_of(element: str) -> int:
    """Width of a printed integer type."""
    return int(element[1:])


class TosaOps(TosaMoves):
    """Creates TOSA operations through a builder."""

    def clamp(self, value: Value, low: int, high: int) -> Value:
        """A `tosa.clamp` of i8, i16 or f32, a maximum and a minimum of i32; nothing where the type says it."""
        element = self.element(value)
        if element == "f32":
            limits = {"min_val": float(low), "max_val": float(high)}
            attributes = {name: self.builder.attribute(f"{number} : f32") for name, number in limits.items()}
            return self.elementwise("tosa.clamp", [value], element, attributes)
        half = 1 << (bits_of(element) - 1)
        if low <= -half and high >= half - 1:
            return value
        if element in ("i8", "i16"):
            bounds = {
                "min_val": self.builder.attribute(f"{max(low, -half)} : {element}"),
                "max_val": self.builder.attribute(f"{min(high, half - 1)} : {element}"),
            }
            return self.elementwise("tosa.clamp", [value], element, bounds)
        rank = len(self.shape(value))
        value = self.binary("maximum", value, self.number(max(low, -half), rank, element))
        return self.binary("minimum", value, self.number(min(high, half - 1), rank, element))

    # -- RESCALE -----------------------------------------------------------------------------------------------

    def rescale(
        self,
        value: Value,
        multiplier: Multiplier,
        rounding: str,
        element: str,
        zero: int = 0,
        result_zero: int = 0,
        unsigned: tuple[bool, bool] = (False, False),
    ) -> Value:
        """`saturate(round((value - zero) * multiplier) + result_zero)` as `element`.

        Args:
            value: of i8, i16, i32 or i48.
            multiplier: broadcasts over the dimensions of `value`.
            rounding: see `qfuse.fixed_point`; powers of two and multipliers of 15 bits have single rounding only.
            element: printed type of the result.
            zero: of `value`; only i8 has one.
            result_zero: of the result; only i8 has one.
            unsigned: whether the value and the result are unsigned.
        """
        source = self.element(value)
        if source == "i48":
            return self._rescaled_sum(value, multiplier, element, result_zero)
        if source == "i32" and zero == 0:
            value = self.extended(value) or value
            source = self.element(value)
        wide = multiplier.bits != 15
        mantissa, shift = rescale_numbers(multiplier, 31 if wide else 15)
        rank = len(self.shape(value))
        mantissa, shift = np.broadcast_arrays(
            mantissa.reshape((1,) * (rank - mantissa.ndim) + mantissa.shape),
            shift.reshape((1,) * (rank - shift.ndim) + shift.shape),
        )
        varying = [i for i, n in enumerate(mantissa.shape) if n > 1]
        mode = _MODES["single" if multiplier.bits != 31 or not wide else rounding]
        zeros = [self.constant(np.asarray([zero]), source), self.constant(np.asarray([result_zero]), element)]
        attributes = self._attributes(wide, bool(varying), mode, unsigned)
        held = "i32" if wide else "i16"
        if not varying:
            extra = [self.constant(mantissa.reshape(-1)[:1], held), self.constant(shift.reshape(-1)[:1], "i8"), *zeros]
            return self.elementwise("tosa.rescale", [value], element, attributes, extra)
        # Multipliers run along the last dimension.
        own = self.shape(value)
        value = self.tiled(value, [mantissa.shape[i] if i in varying else n for i, n in enumerate(own)])
        order = [i for i in range(rank) if i not in varying] + varying
        moved = self.transpose(value, order)
        shape = self.shape(moved)
        channels = int(np.prod([mantissa.shape[i] for i in varying]))
        split = rank - len(varying)
        flat = self.reshape(moved, [*shape[:split], channels])
        listed = [a.transpose(order).reshape(-1) for a in (mantissa, shift)]
        extra = [self.constant(listed[0], held), self.constant(listed[1], "i8"), *zeros]
        type_ = self.builder.tensor(self.shape(flat), element)
        result = self.builder.create("tosa.rescale", [type_], [flat, *extra], attributes).results[0]
        return self.transpose(self.reshape(result, shape), [order.index(i) for i in range(rank)])

    def _attributes(
        self, wide: bool, per_channel: bool, mode: str, unsigned: tuple[bool, bool]
    ) -> dict[str, Attribute]:
        flags = {"scale32": wide, "per_channel": per_channel}
        flags.update(input_unsigned=unsigned[0], output_unsigned=unsigned[1])
        made = {k: self.builder.attribute("true" if v else "false") for k, v in flags.items()}
        return {**made, "rounding_mode": self.builder.attribute(f"#tosa.rounding_mode<{mode}>")}

    def _rescaled_sum(self, value: Value, multiplier: Multiplier, element: str, result_zero: int) -> Value:
        """An i48 sum, rescaled as it was made and then moved; one that fits i32 where multipliers do not allow that."""
        numbers = rescale_numbers(multiplier, 15)
        made, moves = _made_by(value)
        shape = self.shape(value)
        over = [_before(a.reshape((1,) * (len(shape) - a.ndim) + a.shape), shape, moves, self) for a in numbers]
        if any(n != 1 for a in over for n in a.shape[:-1]):
            narrow = self.rescale(value, Multiplier.of(1.0, 15), "single", "i32")
            return self.rescale(narrow, Multiplier(*numbers, 15), "single", element, 0, result_zero)
        mantissa, shift = (a.reshape(-1) for a in np.broadcast_arrays(*over))
        extra = [self.constant(mantissa, "i16"), self.constant(shift, "i8")]
        extra += [self.constant(np.asarray([0]), "i48"), self.constant(np.asarray([result_zero]), element)]
        attributes = self._attributes(False, mantissa.size > 1, "SINGLE_ROUND", (False, False))
        type_ = self.builder.tensor(self.shape(made), element)
        result = self.builder.create("tosa.rescale", [type_], [made, *extra], attributes).results[0]
        for op in reversed(moves):
            if op.name == "tosa.transpose":
                result = self.transpose(result, [int(p) for p in op.attributes["perms"]])
            else:
                result = self.reshape(result, self.shape(op.results[0]))
        return result


def _made_by(value: Value) -> tuple[Value, list[Any]]:
    """What a tensor is moved from, and the transposes and reshapes on the way, last first."""
    moves: list[Any] = []
    op = getattr(value.owner, "operation", None)
    while op is not None and op.name in ("tosa.transpose", "tosa.reshape"):
        moves.append(op)
        value = op.operands[0]
        op = getattr(value.owner, "operation", None)
    return value, moves


def _before(array: Array, shape: tuple[int, ...], moves: list[Any], ops: TosaOps) -> Array:
    """Numbers over a tensor's dimensions, over those of what it is moved from: extent 1 where they do not vary."""
    if bool((array == array.reshape(-1)[0]).all()):
        array, shape, moves = array.reshape(-1)[:1], (1,), []
    array = np.broadcast_to(array, shape)
    for op in moves:
        if op.name == "tosa.transpose":
            array = array.transpose(np.argsort([int(p) for p in op.attributes["perms"]]))
        else:
            array = array.reshape(ops.shape(op.operands[0]))
    for axis in range(array.ndim):
        first = array.take([0], axis)
        array = first if bool((array == first).all()) else array
    return array


def rescale_numbers(multiplier: Multiplier, bits: int) -> tuple[Array, Array]:
    """Mantissas and shifts of RESCALE with mantissas of `bits` bits; powers of two become mantissas too."""
    if multiplier.bits:
        return multiplier.mantissa, multiplier.shift
    spare = np.clip(MAX_SHIFT - multiplier.shift, 0, bits - 1)
    return np.int64(1) << spare, multiplier.shift + spare
