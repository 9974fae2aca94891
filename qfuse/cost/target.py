"""`Target`: what is allowed on a machine, how it is spelled, and the numbers of its cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, cast

from qfuse.cost.limits import KIND_CHECKS, OPERAND_CHECKS, SIZE_CHECKS, Limits, OperandLimits, limit_fusion
from qfuse.cost.schema import OPERANDS, SIDES, TARGET_KEYS, InvalidKeyError, checked_limits
from qfuse.cost.target_file import Origin, dotted, read_document
from qfuse.cost.toml_keys import Path
from qfuse.cost.workload import KINDS, Workload
from qfuse.errors import UsageError, unknown
from qfuse.requirements import Operand, Requirements

_ANY = Limits()
_ANY_OPERAND = OperandLimits()


@dataclass(frozen=True)
class Target:
    """What may become integer on a machine, and how it is spelled. Every key: docs/target-reference.md.

    What `limits` says of a kind of operation goes before what is said here of all. Collections are kept as frozen sets,
    sequences as tuples.

    Attributes:
        name: how the target is asked for.
        doc: one line for listings.
        emitter: name of the emitter that spells integer operations.
        fusions: ids of the fusions that may be used; None for all.
        forbidden: ids of fusions that may not be used.
        storage: allowed storage types of operands as printed (`s8`, `u8`, ...); None for all.
        granularities: allowed kinds an operand (`lhs`, `rhs`): `per-tensor`, `per-axis`, `per-token`, `per-group`,
            `per-block`; an operand that is not named may have any. `lhs` is also the input of anything else than a
            contraction, `rhs` the weight of a convolution.
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
        costs: functions from a `qfuse.Workload` to seconds, or to None for unknown, by fusion id or by kind of
            workload; that of the fusion goes first, and either before the roofline. Not in a file.
        limits: by kind of operation: `contraction`, `convolution`, `depthwise`, `sum`, `maximum`, `elementwise`,
            `lookup`, `concat`, `rescale`.
        origin: the file that it was read from, with the lines of its keys.
    """

    name: str
    doc: str = ""
    emitter: str = "linalg"
    fusions: Collection[str] | None = None
    forbidden: Collection[str] = frozenset[str]()
    storage: Collection[str] | None = None
    granularities: Mapping[str, Collection[str]] = field(default_factory=dict[str, "Collection[str]"])
    asymmetric: Collection[str] = frozenset(SIDES)
    accumulators: Sequence[int] = (32, 64)
    split_reduction: bool = True
    spelling: str = "generic"
    rounding: str = "roundeven"
    operands: Sequence[str] = OPERANDS[:1]
    epilogue: str = "float"
    scaling: str = "single"
    integer_only: bool = False
    throughput: Mapping[str, float] = field(default_factory=dict[str, float])
    memory_bandwidth: float | None = None
    call_overhead: float | None = None
    costs: Mapping[str, Callable[[Workload], float | None]] = field(
        default_factory=dict[str, "Callable[[Workload], float | None]"]
    )
    limits: Mapping[str, Limits] = field(default_factory=dict[str, Limits])
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Gives every value the type that it is documented with.

        Raises:
            UsageError: a value that the key does not take; names the key and, of a file, its line.
        """
        for known in fields(Target):
            value = getattr(self, known.name)
            convert = checked_limits if known.name == "limits" else TARGET_KEYS.get(known.name)
            if convert is None or (value is None and known.default is None):
                continue
            try:
                object.__setattr__(self, known.name, convert(value))
            except InvalidKeyError as error:
                prefix = () if known.name == "limits" and error.path else (known.name,)
                raise UsageError(self._invalid((*prefix, *error.path), error.message)) from None
        both = sorted(set(self.fusions or ()) & set(self.forbidden))
        if both:
            raise UsageError(self._invalid(("forbidden",), f"{both[0]} is among the fusions that may be used, too"))
        self._check_costs()

    def _check_costs(self) -> None:
        if not isinstance(cast("object", self.costs), Mapping):
            raise UsageError(self._invalid(("costs",), f"takes a mapping of names to functions, got {self.costs!r}"))
        for key, function in self.costs.items():
            if "." not in key and key not in KINDS:
                raise UsageError(self._invalid(("costs",), unknown("kind of workload", key, KINDS)))
            if not callable(function):
                raise UsageError(self._invalid(("costs", key), f"takes a function, got {function!r}"))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Target:
        """The target that a TOML file describes; its name is that of the file when it gives none.

        Raises:
            UsageError: not readable, not TOML, a key that is not known, a value that the key does not take. Names the
                file, the line and the key.
        """
        return Target(**read_document(os.fspath(path)))

    def allows(self, fusion: str) -> bool:
        """Whether the fusion of this id may be used."""
        return fusion not in self.forbidden and (self.fusions is None or fusion in self.fusions)

    def refuses_fusion(self, fusion: str) -> str | None:
        """Why the fusion of this id may not be used, or None."""
        if self.allows(fusion):
            return None
        key = "forbidden" if fusion in self.forbidden else "fusions"
        return f"target {self.name} {limit_fusion(fusion)} ({self.quoted((key,))})"

    def refuses(self, needs: Requirements) -> str | None:
        """Why an operation with these requirements is not allowed, or None. Override it for what no key says."""
        for finding, path in self._findings(needs):
            if finding is not None:
                return f"target {self.name} {finding} ({self.quoted(path)})"
        return None

    @cached_property
    def is_limited(self) -> bool:
        """Whether `refuses` can refuse anything."""
        said = self.storage, self.granularities or None, self.limits or None
        return type(self) is not Target or said != (None, None, None) or self.asymmetric != frozenset(SIDES)

    def accumulator_widths(self, kind: str) -> tuple[int, ...]:
        """Allowed accumulator widths of a kind of operation in bits, narrowest first."""
        own = self.limits.get(kind, _ANY).accumulators
        return tuple(sorted(self.accumulators if own is None else own))

    def accumulators_quoted(self, kind: str) -> str:
        """Where the accumulator widths of a kind of operation are limited, in brackets; empty when they are not."""
        if self.limits.get(kind, _ANY).accumulators is not None:
            return f" ({self.quoted((kind, 'accumulators'))})"
        default = next(f.default for f in fields(Target) if f.name == "accumulators")
        return "" if self.accumulators == default else f" ({self.quoted(('accumulators',))})"

    def quoted(self, path: Path) -> str:
        """A key as it is written in the target's file, with file and line; of a target in Python the field."""
        return f"field {dotted(path)}" if self.origin is None else self.origin.quoted(path)

    def _invalid(self, path: Path, message: str) -> str:
        if self.origin is None:
            return f"target {self.name}: {dotted(path)}: {message}"
        return self.origin.error(path, message)

    def _findings(self, needs: Requirements) -> Iterator[tuple[str | None, Path]]:
        own = self.limits.get(needs.kind, _ANY)
        for key, check in KIND_CHECKS.items():
            value = getattr(own, key)
            if value is not None:
                yield check(value, needs), (needs.kind, key)
        for operand in needs.operands:
            for key, check in OPERAND_CHECKS.items():
                value, path = self._operand_limit(needs.kind, operand, key)
                if value is not None:
                    yield check(value, operand), path
        for key, check in SIZE_CHECKS.items():
            for name, value in getattr(own, key).items():
                if name in needs.sizes:
                    yield check(value, name, needs.sizes[name]), (needs.kind, key, name)

    def _operand_limit(self, kind: str, operand: Operand, key: str) -> tuple[Any, Path]:
        """The limit that a key sets to an operand, of its kind of operation or of all, and where."""
        role = operand.role
        own = getattr(self.limits.get(kind, _ANY).operands.get(role, _ANY_OPERAND), key)
        if own is not None or role == "result":
            return own, (kind, role, key)
        side = "rhs" if role in ("rhs", "weight") else "lhs"
        if key == "storage":
            return self.storage, ("storage",)
        if key == "granularities":
            return self.granularities.get(side), ("granularities", side)
        if key == "zero_point":
            return side in self.asymmetric, ("asymmetric",)
        return None, ()
