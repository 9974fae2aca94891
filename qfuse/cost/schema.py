"""The keys of a target: what each takes, for targets in Python and in TOML alike."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from qfuse.cost.limits import CLAMPS, Limits, OperandLimits
from qfuse.cost.toml_keys import Path
from qfuse.errors import unknown
from qfuse.fixed_point import ROUNDINGS as SCALINGS

SPELLINGS = ("generic", "named")
ROUNDINGS = ("magic", "roundeven")
OPERANDS = ("i8", "i16", "vnni")
EPILOGUES = ("float", "fixed-point", "power-of-two")
BOUNDARIES = ("keep", "drop")
POLICIES = ("always", "profitable", "never")
GRANULARITIES = ("per-tensor", "per-axis", "per-token", "per-group", "per-block", "unstructured")
SIDES = ("lhs", "rhs")

_STORAGE = re.compile(r"[su]([1-9]|[1-5][0-9]|6[0-4])")
_TYPES = re.compile(r"(s|u|f|bf)[1-9][0-9]?(x(s|u|f|bf)[1-9][0-9]?)?")


class InvalidKeyError(ValueError):
    """A key that is not known, or has a value of the wrong kind.

    Attributes:
        message: what is wrong.
        path: the key, from where the error was raised.
    """

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


Converter: TypeAlias = Callable[[Any], Any]

# -- values ------------------------------------------------------------------------------------------------------------


def boolean(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InvalidKeyError(f"takes true or false, got {value!r}")
    return value


def line_of_text(value: Any) -> str:
    """Text without line breaks, maybe empty."""
    if not isinstance(value, str) or "\n" in value:
        raise InvalidKeyError(f"takes one line of text, got {value!r}")
    return value


def name(value: Any) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise InvalidKeyError(f"takes a name, got {value!r}")
    return value


def positive_integer(value: Any) -> int:
    """An integer above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidKeyError(f"takes a positive integer, got {value!r}")
    return value


def width(value: Any) -> int:
    """A number of bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not 8 <= value <= 64:
        raise InvalidKeyError(f"takes widths from 8 to 64 bits, got {value!r}")
    return value


def positive_number(value: Any) -> float:
    """A finite number above 0; what is not known is left out."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise InvalidKeyError(f"takes a positive number, got {value!r}")
    return float(value)


def duration(value: Any) -> float:
    """A finite number of seconds, maybe 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InvalidKeyError(f"takes a number of seconds, got {value!r}")
    return float(value)


def storage_type(value: Any) -> str:
    """`s8`, `u4`, ..."""
    if not isinstance(value, str) or _STORAGE.fullmatch(value) is None:
        raise InvalidKeyError(f"takes storage types such as s8 or u4, got {value!r}")
    return value


def layout(letters: str, example: str) -> Converter:
    """A letter a dimension, of these."""

    def convert(value: Any) -> str:
        if not isinstance(value, str) or not value or set(value) - set(letters):
            raise InvalidKeyError(
                f"takes layouts such as {example}, of the letters {', '.join(letters)}, got {value!r}"
            )
        return value

    return convert


def one_of(kind: str, known: Sequence[str]) -> Converter:
    """One of some names."""

    def convert(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise InvalidKeyError(unknown(kind, str(value), known))
        return value

    return convert


def several(each: Converter) -> Converter:
    """A set of values; a list that is empty allows nothing."""

    def convert(value: Any) -> frozenset[Any]:
        return frozenset(_converted(value, each))

    return convert


def in_order(each: Converter) -> Converter:
    """A sequence of at least one value."""

    def convert(value: Any) -> tuple[Any, ...]:
        found = tuple(_converted(value, each))
        if not found:
            raise InvalidKeyError("takes at least one value")
        return found

    return convert


def _converted(value: Any, each: Converter) -> list[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise InvalidKeyError(f"takes a list, got {value!r}")
    return [_under((i,), each, item) for i, item in enumerate(cast("Iterable[Any]", value))]


def table(what: str, keys: Mapping[str, Converter]) -> Converter:
    """A mapping whose keys are known."""

    def convert(value: Any) -> dict[str, Any]:
        found = _mapping(value)
        for key in found:
            if key not in keys:
                raise InvalidKeyError(unknown(what, key, tuple(keys)), (key,))
        return {key: _under((key,), keys[key], item) for key, item in found.items()}

    return convert


def throughput(value: Any) -> dict[str, float]:
    """Numbers by types."""
    found = _mapping(value)
    for key in found:
        if _TYPES.fullmatch(key) is None:
            raise InvalidKeyError(f"takes types such as s8xs8 or f32, got {key!r}", (key,))
    return {key: _under((key,), positive_number, item) for key, item in found.items()}


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidKeyError(f"takes a table, got {value!r}")
    return dict(cast("Mapping[str, Any]", value))


def _under(path: Path, each: Converter, value: Any) -> Any:
    try:
        return each(value)
    except InvalidKeyError as error:
        raise InvalidKeyError(error.message, (*path, *error.path)) from None


# -- keys --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What can be said of a kind of operation.

    Attributes:
        roles: its operands and result.
        multiples: sizes that can have to be multiples of a number.
        extents: further sizes; these can have a maximum only.
        keys: further keys.
        layouts: by role what orders of dimensions there are, where they have a meaning.
    """

    roles: tuple[str, ...]
    multiples: tuple[str, ...]
    extents: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    layouts: Mapping[str, Converter] = field(default_factory=dict[str, Converter])

    def operand_keys(self, role: str) -> dict[str, Converter]:
        """The keys of an operand."""
        known = dict(OPERAND_KEYS)
        if role == "result":
            del known["constant"]
        if role in self.layouts:
            known["layouts"] = several(self.layouts[role])
        return known


_RESCALED = ("epilogues", "scalings", "clamp")
_IMAGE = layout("NGCDHW", "NHWC")
_CONVOLUTION = Kind(
    ("input", "weight", "result"),
    ("batch", "groups", "in_channels", "out_channels", "reduction"),
    ("spatial", "window", "stride", "dilation"),
    ("accumulators", *_RESCALED),
    layouts={"input": _IMAGE, "weight": layout("OGIDHW", "OIHW"), "result": _IMAGE},
)
_ELEMENTS = ("elements", "inner")

#: What a target can say of each kind of operation.
KINDS: Mapping[str, Kind] = {
    "contraction": Kind(
        ("lhs", "rhs", "result"),
        ("B", "M", "N", "K"),
        (),
        ("accumulators", *_RESCALED),
        {"lhs": layout("BMK", "MK"), "rhs": layout("BNK", "NK"), "result": layout("BMN", "MN")},
    ),
    "convolution": _CONVOLUTION,
    "depthwise": _CONVOLUTION,
    "sum": Kind(("input", "result"), (*_ELEMENTS, "reduction"), (), ("accumulators", *_RESCALED)),
    "maximum": Kind(("input",), (*_ELEMENTS, "reduction")),
    "elementwise": Kind(("input", "result"), _ELEMENTS, (), ("operations", *_RESCALED)),
    "lookup": Kind(("input", "result"), _ELEMENTS, (), ("operations", "table_sizes")),
    "concat": Kind(("input", "result"), _ELEMENTS, (), _RESCALED),
    "rescale": Kind(("input", "result"), _ELEMENTS, (), _RESCALED),
}

OPERAND_KEYS: Mapping[str, Converter] = {
    "storage": several(storage_type),
    "signed": boolean,
    "granularities": several(one_of("granularity", GRANULARITIES)),
    "zero_point": boolean,
    "block_sizes": several(positive_integer),
    "constant": boolean,
}
_KIND_KEYS: Mapping[str, Converter] = {
    "supported": boolean,
    "accumulators": in_order(width),
    "epilogues": several(one_of("epilogue", EPILOGUES)),
    "scalings": several(one_of("scaling", SCALINGS)),
    "clamp": one_of("clamp", CLAMPS),
    "operations": several(name),
    "table_sizes": several(positive_integer),
}
TARGET_KEYS: Mapping[str, Converter] = {
    "name": name,
    "doc": line_of_text,
    "emitter": name,
    "fusions": several(name),
    "forbidden": several(name),
    "storage": several(storage_type),
    "granularities": table("operand", dict.fromkeys(SIDES, several(one_of("granularity", GRANULARITIES)))),
    "asymmetric": several(one_of("operand", SIDES)),
    "accumulators": in_order(width),
    "split_reduction": boolean,
    "spelling": one_of("spelling", SPELLINGS),
    "rounding": one_of("rounding", ROUNDINGS),
    "operands": in_order(one_of("operand type", OPERANDS)),
    "epilogue": one_of("epilogue", EPILOGUES),
    "scaling": one_of("scaling", SCALINGS),
    "integer_only": boolean,
    "throughput": throughput,
    "memory_bandwidth": positive_number,
    "call_overhead": duration,
}


def kind_keys(kind: str) -> dict[str, Converter]:
    """The keys of a kind of operation, roles of operands among them."""
    known = KINDS[kind]
    positive = positive_integer
    sizes = {
        "multiple_of": table("size", dict.fromkeys(known.multiples, positive)),
        "max_size": table("size", dict.fromkeys((*known.multiples, *known.extents), positive)),
    }
    own = {key: _KIND_KEYS[key] for key in ("supported", *known.keys)}
    roles = {role: table("key", known.operand_keys(role)) for role in known.roles}
    return {**own, **sizes, **roles}


def limits_of(kind: str, value: Any) -> Limits:
    """The limits of a kind from a table of its keys.

    Raises:
        InvalidKeyError: a key is not known or has a value of the wrong kind, or two keys contradict each other.
    """
    found = table("key", kind_keys(kind))(value)
    _check_together(kind, found)
    roles = {role: OperandLimits(**found.pop(role)) for role in KINDS[kind].roles if role in found}
    return Limits(operands=roles, **found)


def _check_together(kind: str, found: Mapping[str, Any]) -> None:
    """Raises InvalidKeyError where two keys leave nothing that both allow."""
    factors: Mapping[str, int] = found.get("multiple_of", {})
    for size, most in found.get("max_size", {}).items():
        if factors.get(size, 1) > most:
            raise InvalidKeyError(
                f"{most} at most, and multiples of {factors[size]}: no size is both", ("max_size", size)
            )
    for role in KINDS[kind].roles:
        operand: Mapping[str, Any] = found.get(role, {})
        storage, signed = operand.get("storage"), operand.get("signed")
        if storage and signed is not None and not any(s.startswith("s") == signed for s in storage):
            taken = "signed" if signed else "unsigned"
            raise InvalidKeyError(f"{taken} only, and none of {', '.join(sorted(storage))} is", (role, "signed"))


def checked_limits(value: Any) -> dict[str, Limits]:
    """Limits by kind, each value of the type that it is documented with.

    Raises:
        InvalidKeyError: a kind or key is not known or has a value of the wrong kind.
    """
    found = _mapping(value)
    checked: dict[str, Limits] = {}
    for kind, limits in found.items():
        if kind not in KINDS:
            raise InvalidKeyError(unknown("kind of operation", kind, tuple(KINDS)), (kind,))
        if not isinstance(limits, Limits):
            raise InvalidKeyError(f"takes Limits, got {limits!r}", (kind,))
        checked[kind] = _under((kind,), lambda given, kind=kind: limits_of(kind, _as_table(given)), limits)
    return checked


def _as_table(limits: Limits) -> dict[str, Any]:
    """What was said in `Limits`, as the table that a TOML file would have."""
    said: dict[str, Any] = {k: v for k, v in vars(limits).items() if k != "operands" and v is not None and v != {}}
    for role, operand in _mapping(limits.operands).items():
        if not isinstance(operand, OperandLimits):
            raise InvalidKeyError(f"takes OperandLimits, got {operand!r}", (role,))
        said[role] = {k: v for k, v in vars(operand).items() if v is not None}
    return said
