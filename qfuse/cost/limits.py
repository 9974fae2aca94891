"""What a machine takes: `Limits` of a kind of operation, `OperandLimits` of one of its tensors.

Each key is compared with an operation's `Requirements` by the function of its name. These functions say what the target
takes and what was found, or return None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qfuse.requirements import Operand, Requirements

CLAMPS = ("storage", "relu", "range")


@dataclass(frozen=True)
class OperandLimits:
    """What an operand or a result may be; None where it may be anything, or what the target says of all operands.

    Attributes:
        storage: storage types (`s8`, `u8`, `s4`, ...).
        signed: whether they must be signed (True) or unsigned (False).
        granularities: `per-tensor`, `per-axis`, `per-token`, `per-group`, `per-block`.
        zero_point: whether there may be a zero point.
        block_sizes: sizes of groups and blocks, where there are any.
        constant: whether the integers must be known when the module is compiled.
        layouts: a letter a dimension: of a contraction `B`, `M`, `N`, `K`; of a convolution `N`, `G`, `C`, `D`, `H`,
            `W` for input and result and `O`, `G`, `I`, `D`, `H`, `W` for the weight.
    """

    storage: Collection[str] | None = None
    signed: bool | None = None
    granularities: Collection[str] | None = None
    zero_point: bool | None = None
    block_sizes: Collection[int] | None = None
    constant: bool | None = None
    layouts: Collection[str] | None = None


@dataclass(frozen=True)
class Limits:
    """What operations of one kind may be; None where they may be anything, or what the target says of all kinds.

    Attributes:
        supported: whether there are integer operations of this kind at all.
        operands: limits by role, see `qfuse.Requirements`.
        accumulators: widths in bits, narrowest first.
        epilogues: how integers of the result may be made: `float`, `fixed-point`, `power-of-two`.
        scalings: how epilogues in integers may round, see `qfuse.Options.scaling`.
        clamp: what a result may be clamped to at most: `storage` (the range of its type), `relu` (also from the zero
            point on) or `range` (any bounds).
        operations: names of elementwise operations.
        multiple_of: what sizes must be multiples of, by name.
        max_size: the greatest sizes, by name.
        table_sizes: numbers of entries of tables.
    """

    supported: bool | None = None
    operands: Mapping[str, OperandLimits] = field(default_factory=dict[str, OperandLimits])
    accumulators: Sequence[int] | None = None
    epilogues: Collection[str] | None = None
    scalings: Collection[str] | None = None
    clamp: str | None = None
    operations: Collection[str] | None = None
    multiple_of: Mapping[str, int] = field(default_factory=dict[str, int])
    max_size: Mapping[str, int] = field(default_factory=dict[str, int])
    table_sizes: Collection[int] | None = None


def limit_fusion(name: str) -> str:
    """A fusion that is forbidden, or not among those that are named."""
    return f"does not use fusion {name}"


# -- of one operand ----------------------------------------------------------------------------------------------------


def limit_storage(allowed: Collection[str], operand: Operand) -> str | None:
    """Storage types."""
    if str(operand.params.storage) in allowed:
        return None
    return f"takes storage {listed(allowed)}, {operand.role} is {operand.params.storage}"


def limit_signed(signed: bool, operand: Operand) -> str | None:
    """Signedness of the storage type."""
    if operand.params.storage.signed == signed:
        return None
    return f"takes {'signed' if signed else 'unsigned'} integers only, {operand.role} is {operand.params.storage}"


def limit_granularities(allowed: Collection[str], operand: Operand) -> str | None:
    """Granularities by name, without axes and sizes."""
    found = operand.params.granularity
    return None if found.split("(")[0] in allowed else f"takes {listed(allowed)} for {operand.role}, it is {found}"


def limit_zero_point(allowed: bool, operand: Operand) -> str | None:
    """Zero points that are not known to be zero."""
    return None if allowed or operand.params.symmetric else f"takes no zero point on {operand.role}"


def limit_block_sizes(allowed: Collection[int], operand: Operand) -> str | None:
    """Sizes of groups of more than one element along a dimension."""
    blocks = operand.params.block_size or ()
    odd = [g for g in blocks if g is not None and g > 1 and g not in allowed]
    return f"takes blocks of {listed(allowed)} for {operand.role}, they are of {odd[0]}" if odd else None


def limit_constant(needed: bool, operand: Operand) -> str | None:
    """Integers that are known at compile time."""
    return f"takes constants only for {operand.role}, it is known at run time" if needed > operand.constant else None


def limit_layouts(allowed: Collection[str], operand: Operand) -> str | None:
    """The order of dimensions as they are stored."""
    if operand.layout is None or operand.layout in allowed:
        return None
    return f"takes layout {listed(allowed)} for {operand.role}, it is {operand.layout}"


# -- of an operation ---------------------------------------------------------------------------------------------------


def limit_supported(supported: bool, needs: Requirements) -> str | None:
    """The kind as a whole."""
    return None if supported else f"has no {needs.kind} in integers"


def limit_epilogues(allowed: Collection[str], needs: Requirements) -> str | None:
    """Where something is rescaled."""
    if needs.epilogue is None or needs.epilogue in allowed:
        return None
    return f"takes epilogues {listed(allowed)}, this one is {needs.epilogue}"


def limit_scalings(allowed: Collection[str], needs: Requirements) -> str | None:
    """Where something is rescaled in integers."""
    if needs.scaling is None or needs.scaling in allowed:
        return None
    return f"takes scaling {listed(allowed)}, this one is {needs.scaling}"


def limit_clamp(most: str, needs: Requirements) -> str | None:
    """Each clamp can do what those before it can."""
    if needs.clamp is None or CLAMPS.index(needs.clamp) <= CLAMPS.index(most):
        return None
    return f"clamps results to {most} at most, this one to {needs.clamp}"


def limit_operations(allowed: Collection[str], needs: Requirements) -> str | None:
    """Elementwise operations by name."""
    odd = [name for name in needs.operations if name not in allowed]
    return f"takes the operations {listed(allowed)}, found {odd[0]}" if odd else None


def limit_table_sizes(allowed: Collection[int], needs: Requirements) -> str | None:
    """Entries of a table."""
    if needs.entries is None or needs.entries in allowed:
        return None
    return f"takes tables of {listed(allowed)} entries, this one has {needs.entries}"


# -- of a size ---------------------------------------------------------------------------------------------------------


def limit_multiple_of(factor: int, name: str, size: int | None) -> str | None:
    """A size that is dynamic is not known to be a multiple of anything but 1."""
    if factor == 1 or (size is not None and size % factor == 0):
        return None
    return f"takes multiples of {factor} for {name}, it is {'dynamic' if size is None else size}"


def limit_max_size(most: int, name: str, size: int | None) -> str | None:
    """A size that is dynamic has no known limit."""
    if size is not None and size <= most:
        return None
    return f"takes {most} at most for {name}, it is {'dynamic' if size is None else size}"


def listed(names: Iterable[Any]) -> str:
    """Names or numbers in order, for a reason; `none` where there are none."""
    return ", ".join(str(n) for n in sorted(names)) or "none"


OPERAND_CHECKS: Mapping[str, Callable[[Any, Operand], str | None]] = {
    "storage": limit_storage,
    "signed": limit_signed,
    "granularities": limit_granularities,
    "zero_point": limit_zero_point,
    "block_sizes": limit_block_sizes,
    "constant": limit_constant,
    "layouts": limit_layouts,
}
KIND_CHECKS: Mapping[str, Callable[[Any, Requirements], str | None]] = {
    "supported": limit_supported,
    "epilogues": limit_epilogues,
    "scalings": limit_scalings,
    "clamp": limit_clamp,
    "operations": limit_operations,
    "table_sizes": limit_table_sizes,
}
SIZE_CHECKS: Mapping[str, Callable[[int, str, int | None], str | None]] = {
    "multiple_of": limit_multiple_of,
    "max_size": limit_max_size,
}
