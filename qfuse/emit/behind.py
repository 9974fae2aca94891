"""What follows an epilogue on the stored integers: layout operations and poolings, in order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qfuse._mlir import Value
from qfuse.graph import AccumForm, Pooling
from qfuse.matchers.layout import Layout
from qfuse.qparams import QuantParams


def followed(value: Value, form: AccumForm, params: QuantParams, context: Any) -> Value:
    """Stored integers of these parameters after the moves of a form, by the target's emitter."""
    zero = params.zero_point.scalar
    for move in form.moves:
        if isinstance(move, Pooling):
            neutral = stored_neutral(move, form, params)
            assert neutral is not None, "planned poolings start from a known integer"
            value = context.emitter.pooled(move, value, params, neutral, context)
        else:
            value = context.emitter.move(move, [value], params.storage.mlir, padding_of(move, zero))
    return value


def padding_of(layout: Layout, zero_point: float | None) -> int | None:
    """What a pad of stored integers yields where the float one yields 0.0; None for other layout operations."""
    return int(zero_point) if layout.kind == "pad" and zero_point is not None else None


def stored_neutral(move: Pooling, form: AccumForm, params: QuantParams) -> int | None:
    """The stored integer that the infinity becomes with which a pooling starts and pads; None where it is not known.

    Steps in between that keep the order make it the least of all (of a minimum, the greatest).
    """
    x = -math.inf if move.node.kind == "max" else math.inf
    for step in form.steps[move.behind :]:
        number = None if step.operand is None else step.operand.number
        clamps = step.kind in ("max", "min")
        if not clamps and math.isinf(x):
            continue
        if number is None:
            return None
        if clamps:
            x = max(x, number) if step.kind == "max" else min(x, number)
        else:
            x = {"add": x + number, "sub": x - number, "mul": x * number, "div": x / number}[step.kind]
    if math.isinf(x):
        return params.quant_min if x < 0 else params.quant_max
    scale, zero = 1.0 if x == 0 else params.scale.scalar, params.zero_point.scalar
    if scale is None or zero is None:
        return None
    return int(np.clip(np.rint(x / np.float64(scale)) + zero, params.quant_min, params.quant_max))
