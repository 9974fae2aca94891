"""What a planned operation asks of a machine; a target's limits are compared with it. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qfuse.qparams import QuantParams


@dataclass(frozen=True, eq=False)
class Operand:
    """An integer tensor that an operation reads or writes.

    Attributes:
        role: `lhs` and `rhs` of a contraction, `input` and `weight` of a convolution, `input` of anything else;
            `result`.
        params: how it is quantized; the extents are its shape.
        constant: whether its integers are known now.
        layout: a letter for each of its dimensions as they are stored (`NHWC`, `OIHW`, `MK`), or None when the
            operation gives its dimensions no meaning.
    """

    role: str
    params: QuantParams
    constant: bool = False
    layout: str | None = None


@dataclass(frozen=True, eq=False)
class Requirements:
    """What one planned operation needs.

    Attributes:
        kind: `contraction`, `convolution`, `depthwise`, `sum`, `maximum`, `elementwise`, `lookup`, `concat` or
            `rescale`.
        operands: the integer tensors.
        epilogue: how integers of the result are made: `float`, `fixed-point` or `power-of-two`; None when nothing is
            rescaled.
        scaling: how an epilogue in integers rounds, see `qfuse.Options.scaling`.
        clamp: bounds of the result: `storage` (those of its type), `relu` (from the zero point on) or `range` (others);
            None when nothing is clamped.
        operations: names of elementwise operations that are computed.
        sizes: extents by name (see the target reference), None where they are dynamic.
        entries: size of a table.
    """

    kind: str
    operands: tuple[Operand, ...] = ()
    epilogue: str | None = None
    scaling: str | None = None
    clamp: str | None = None
    operations: tuple[str, ...] = ()
    sizes: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    entries: int | None = None
