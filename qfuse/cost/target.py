"""`Target`: what is allowed on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qfuse.qparams import QuantParams

SPELLINGS = ("generic", "named")
ROUNDINGS = ("magic", "roundeven")
OPERANDS = ("i8", "i16")
EPILOGUES = ("float", "fixed-point", "power-of-two")
BOUNDARIES = ("keep", "drop")


@dataclass(frozen=True)
class Target:
    """What may become integer on a machine, and how it is spelled.

    Attributes:
        name: how the target is asked for.
        doc: one line for listings.
        emitter: name of the emitter that spells integer operations.
        fusions: ids of the fusions that may be used; None for all.
        forbidden: ids of fusions that may not be used.
        storage: allowed storage types as printed (`s8`, `u8`, ...); None for all.
        granularities: allowed kinds an operand (`lhs`, `rhs`): `per-tensor`, `per-axis`, `per-token`, `per-group`,
            `per-block`; an operand that is not named may have any.
        asymmetric: operands (`lhs`, `rhs`) that may have a zero point.
        accumulators: allowed accumulator widths in bits, narrowest first.
        split_reduction: whether a reduction may be split so that the parts fit a narrower accumulator.
        spelling: default of the option of that name.
        rounding: default of the option of that name.
        operands: allowed values of the option of that name, the default first.
        epilogue: default of the option of that name.
        scaling: default of the option of that name.
        integer_only: whether the report names every operation that keeps float arithmetic between quantized values.
        throughput: for the cost model, by types: `s8xs8`, `f32xf32` in multiply-accumulates a second, `s8`, `f32` in
            elements a second of one elementwise operation. What is not named is unknown, not free.
        memory_bandwidth: bytes a second, or None when unknown.
        call_overhead: seconds that starting one operation takes, or None when unknown.
    """

    name: str
    doc: str = ""
    emitter: str = "linalg"
    fusions: frozenset[str] | None = None
    forbidden: frozenset[str] = frozenset()
    storage: frozenset[str] | None = None
    granularities: Mapping[str, frozenset[str]] = field(default_factory=dict[str, "frozenset[str]"])
    asymmetric: frozenset[str] = frozenset({"lhs", "rhs"})
    accumulators: tuple[int, ...] = (32, 64)
    split_reduction: bool = True
    spelling: str = "generic"
    rounding: str = "roundeven"
    operands: tuple[str, ...] = OPERANDS[:1]
    epilogue: str = "float"
    scaling: str = "single"
    integer_only: bool = False
    throughput: Mapping[str, float] = field(default_factory=dict[str, float])
    memory_bandwidth: float | None = None
    call_overhead: float | None = None

    def allows(self, fusion: str) -> bool:
        """Whether the fusion of this id may be used."""
        return fusion not in self.forbidden and (self.fusions is None or fusion in self.fusions)

    def refuses_operand(self, role: str, params: QuantParams) -> str | None:
        """Why an operand (`lhs` or `rhs`) quantized like this is not allowed, or None."""
        if self.storage is not None and str(params.storage) not in self.storage:
            return f"target {self.name} takes storage {_listed(self.storage)}, {role} is {params.storage}"
        kind = params.granularity.split("(")[0]
        allowed = self.granularities.get(role)
        if allowed is not None and kind not in allowed:
            return f"target {self.name} takes {_listed(allowed)} for {role}, it is {params.granularity}"
        if role not in self.asymmetric and not params.symmetric:
            return f"target {self.name} takes no zero point on {role}"
        return None


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
