"""What an epilogue computes, reduced to the fewest operands: integer corrections, factors, bias, steps, quantize.

    x = float(acc + corrections) * factors + bias ; steps ; round ; + zero point ; clamp

Everything constant is multiplied out here in double precision and rounded to f32 once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qfuse.graph import Array, Step
from qfuse.indexing import Extents, Index, identity
from qfuse.qparams import Param, QuantParams, broadcast


@dataclass(eq=False)
class Operand:
    """A number or tensor read over the accumulators' dimensions.

    Attributes:
        index: where it is read; `()` for a scalar.
        array: constant values, or None.
        value: SSA tensor or scalar, or None.
        element: printed element type of `value`.
        signed: whether an integer `value` is sign-extended.
    """

    index: Index = ()
    array: Array | None = None
    value: Any = None
    element: str = "f32"
    signed: bool = True

    @property
    def number(self) -> float | None:
        """The one constant number, or None."""
        return None if self.array is None or self.array.size != 1 else self.array.item()

    @staticmethod
    def of(param: Param) -> Operand:
        """A scale or zero point."""
        return Operand(param.index, param.data, param.value, param.element, param.signed)


@dataclass(eq=False)
class Epilogue:
    """The reduced epilogue over `rank` dimensions.

    Attributes:
        corrections: integer products that are added to the accumulators; the first number is a sign or multiple.
        factors: multiplied after the conversion to float.
        bias: added after the factors, or None.
        steps: float operations that could not be folded.
        quantize: parameters of the output, or None for a float result.
        low: clamp of the stored output.
        high: clamp of the stored output.
        divisor: what is divided by before rounding, or None when the output scale is folded into the factors.
        element: printed result type.
        compute: printed float type that is computed in.
    """

    rank: int
    corrections: list[tuple[int, tuple[Operand, ...]]] = field(default_factory=list[Any])
    factors: list[Operand] = field(default_factory=list[Operand])
    bias: Operand | None = None
    steps: list[Step] = field(default_factory=list[Step])
    quantize: QuantParams | None = None
    low: int = 0
    high: int = 0
    divisor: Operand | None = None
    element: str = "f32"
    compute: str = "f32"


def constant_over(operand: Operand, rank: int) -> Array | None:
    """Constant values as an array that broadcasts over `rank` dimensions, or None."""
    if operand.array is None:
        return None
    return broadcast(operand.array, operand.index, tuple(range(rank)))


def constant_operand(array: Array, rank: int) -> Operand:
    """An operand of an array whose axes are the dimensions (extent 1 where it does not vary)."""
    kept = [i for i, n in enumerate(array.shape) if n != 1]
    dims = identity(rank)
    return Operand(tuple(dims[i] for i in kept), array.reshape([array.shape[i] for i in kept]))


def _is_as_large_as_one(a: Array, b: Array) -> bool:
    """Whether two arrays of one rank together need no more elements than one of them."""
    pairs = list(zip(a.shape, b.shape, strict=True))
    return all(m in (1, n) for n, m in pairs) or all(n in (1, m) for n, m in pairs)


def multiply_out(factors: Sequence[Operand], rank: int) -> list[Operand]:
    """Constant factors become one where their product is no larger than the larger of them."""
    product: Array | None = None
    rest: list[Operand] = []
    for factor in factors:
        array = constant_over(factor, rank)
        if array is None:
            rest.append(factor)
            continue
        array = array.astype(np.float64)
        if product is None:
            product = array
        elif _is_as_large_as_one(product, array):
            product = product * array
        else:
            rest.append(factor)
    return rest if product is None else [constant_operand(product, rank), *rest]


def with_steps(
    epilogue: Epilogue, steps: Sequence[Step], extents: Extents, read: Callable[[Any], Array | None]
) -> None:
    """Appends steps; leading additions of constants join the bias.

    Args:
        epilogue: changed in place.
        steps: what follows the scaled accumulators.
        extents: of the accumulators.
        read: constant values of an SSA tensor, or None.
    """
    for step in steps:
        operand = step.operand
        constant = None
        if operand is not None and operand.number is not None:
            constant = Operand((), np.asarray(operand.number))
        elif operand is not None and operand.value is not None:
            array = read(operand.value)
            if array is not None:
                along = Param(operand.index, array).over(identity(epilogue.rank), extents)
                constant = Operand(along.index, along.data)
        if not epilogue.steps and constant is not None and step.kind in ("add", "sub"):
            added = constant_over(constant, epilogue.rank)
            before = np.zeros((1,) * epilogue.rank)
            if epilogue.bias is not None:
                known = constant_over(epilogue.bias, epilogue.rank)
                added, before = (None, before) if known is None else (added, known)
            if added is not None and added.size <= max(_largest(epilogue), 1 << 16):
                sign = 1.0 if step.kind == "add" else -1.0
                epilogue.bias = constant_operand(before + sign * added.astype(np.float64), epilogue.rank)
                continue
        epilogue.steps.append(step)


def _largest(epilogue: Epilogue) -> int:
    return max([f.array.size for f in epilogue.factors if f.array is not None], default=1)


def finish_quantize(epilogue: Epilogue, params: QuantParams) -> None:
    """Ends the epilogue by a quantize: folds the scale and the clamps into what is there, where they are constant."""
    low, high = params.quant_min, params.quant_max
    scale = params.scale.scalar
    zero = params.zero_point.scalar
    kept = list(epilogue.steps)
    while kept and scale is not None and zero is not None and kept[-1].kind in ("max", "min"):
        bound = None if kept[-1].operand is None else kept[-1].operand.number
        if bound is None or math.isnan(bound):
            break
        with np.errstate(over="ignore"):
            grid = float(np.rint(np.float64(bound) / np.float64(scale))) + zero
        if kept[-1].kind == "max":
            low, high = _clip(grid, low, high), max(high, _clip(grid, low, high))
        else:
            high, low = _clip(grid, low, high), min(low, _clip(grid, low, high))
        kept.pop()
    epilogue.steps = kept
    epilogue.quantize, epilogue.low, epilogue.high = params, low, high
    epilogue.element = params.storage.mlir
    divisor = Operand.of(params.scale)
    constant = constant_over(divisor, epilogue.rank)
    if constant is None or kept:
        epilogue.divisor = divisor
        return
    inverse = 1.0 / constant.astype(np.float64)
    epilogue.factors = multiply_out([*epilogue.factors, constant_operand(inverse, epilogue.rank)], epilogue.rank)
    if epilogue.bias is not None:
        bias = constant_over(epilogue.bias, epilogue.rank)
        assert bias is not None
        epilogue.bias = constant_operand(bias * inverse, epilogue.rank)


def _clip(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))


def simplify_corrections(epilogue: Epilogue, fold_into_bias: bool) -> None:
    """Constant corrections become one integer array, or with `fold_into_bias` join the bias (scaled)."""
    total: Array | None = None
    rest: list[tuple[int, tuple[Operand, ...]]] = []
    for multiple, operands in epilogue.corrections:
        product: Array | None = np.asarray(multiple, np.int64)
        for operand in operands:
            array = constant_over(operand, epilogue.rank)
            product = None if array is None or product is None else product * array.astype(np.int64)
        if product is None:
            rest.append((multiple, operands))
            continue
        if total is None:
            total = product
        elif _is_as_large_as_one(total, product):
            total = total + product
        else:
            rest.append((multiple, operands))
    if total is None or not total.any():
        epilogue.corrections = rest
        return
    scales = [constant_over(f, epilogue.rank) for f in epilogue.factors]
    if fold_into_bias and not rest and all(s is not None for s in scales):
        shift: Array = total.astype(np.float64)
        for scale in scales:
            assert scale is not None
            shift = shift * scale.astype(np.float64)
        if shift.size <= max(_largest(epilogue), total.size):
            epilogue.bias = constant_operand(shift, epilogue.rank)
            epilogue.corrections = []
            return
    epilogue.corrections = [(1, (constant_operand(total, epilogue.rank),)), *rest]
