"""Reads elementwise TOSA operations as structured operations, so that they are matched as `linalg` bodies are.

An operand of extent 1 where the result has more is read at 0 (TOSA's broadcasting). Constants of one element are
numbers. Names of operations in expressions are those of `arith` and `math`; a cast from float to integer rounds to the
nearest even and saturates, which the expression says. Rounding spelled as floor, ceil and select is read as what it
stands for (`qfuse.matchers.tosa_rounding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qfuse._mlir import Bindings, Operation, Value
from qfuse.indexing import Extents, Index, constant, dim, identity
from qfuse.matchers.constants import ConstantReader
from qfuse.matchers.evaluate import typed
from qfuse.matchers.scalar import Scalar, simplified
from qfuse.matchers.structure import Structure, View
from qfuse.matchers.tosa_rounding import match_rounding

_FLOAT_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
#: The greatest finite number of a float type: a clamp there bounds nothing.
_GREATEST = {"f16": 65504.0, "bf16": 3.3e38, "f32": 3.4e38, "f64": 1.7e308}

#: Operations with the same name for floats and integers: how each is called.
_ARITHMETIC = {
    "tosa.add": ("add", "addi"), "tosa.sub": ("sub", "subi"),
    "tosa.maximum": ("max", "maxsi"), "tosa.minimum": ("min", "minsi"),
}  # fmt: skip
_UNARY = {
    "tosa.floor": "floor", "tosa.ceil": "ceil", "tosa.exp": "exp", "tosa.log": "log",
    "tosa.tanh": "tanh", "tosa.erf": "erf", "tosa.rsqrt": "rsqrt", "tosa.sin": "sin", "tosa.cos": "cos",
}  # fmt: skip
_LOGICAL = {"tosa.logical_and": "andi", "tosa.logical_or": "ori", "tosa.logical_xor": "xori"}
#: Predicates of `arith.cmpf` (ordered) and of `arith.cmpi`.
_COMPARED = {"tosa.equal": (1, 0), "tosa.greater": (2, 4), "tosa.greater_equal": (3, 5)}
#: Operands that are tensors of one value an element; the rest are zero points, shifts and the like.
_DATA_OPERANDS = {"tosa.mul": 2, "tosa.negate": 1}

_Args = Sequence[Scalar]


class TosaViews:
    """Elementwise TOSA operations of one module; what several have in common is kept."""

    def __init__(self, bindings: Bindings, constants: ConstantReader) -> None:
        """A reader for modules of `bindings`."""
        self.bindings = bindings
        self.constants = constants
        self._structures: dict[Any, Structure | None] = {}

    def view(self, op: Operation) -> View | None:
        """An elementwise TOSA operation on ranked tensors as a structured one, or None."""
        build = _BUILDERS.get(op.name)
        if build is None or len(op.results) != 1:
            return None
        bindings = self.bindings
        result = bindings.tensor_info(op.results[0].type)
        rounded = match_rounding(self.constants, op) if op.name == "tosa.select" else None
        operands = [rounded[1]] if rounded is not None else list(op.operands)[: _DATA_OPERANDS.get(op.name)]
        infos = [bindings.tensor_info(v.type) for v in operands]
        if result is None or any(i is None or len(i[0]) != len(result[0]) for i in infos):
            return None
        inputs: list[Value] = []
        captured: list[Value] = []
        reads: list[tuple[str, Index | None]] = []
        for value, info in zip(operands, infos, strict=True):
            assert info is not None
            number = self.constants.scalar(value)
            (captured if number is not None else inputs).append(value)
            reads.append((info[1], None if number is not None else _broadcast(info[0], result[0])))
        facts = ("tosa.round", rounded[0]) if rounded is not None else self._facts(op)
        if facts is None:
            return None
        key = (op.name, facts, result[1], len(result[0]), tuple(reads))
        if key not in self._structures:
            self._structures[key] = _structure(build, facts, result[1], len(result[0]), reads)
        structure = self._structures[key]
        return None if structure is None else View(bindings, op, inputs, [], structure, captured, captured)

    def _facts(self, op: Operation) -> Any:
        """What the meaning of an operation depends on besides types, hashable; None when it is not known."""
        if op.name == "tosa.clamp":
            attributes = op.attributes
            return (_number(attributes["min_val"]), _number(attributes["max_val"]))
        if op.name == "tosa.mul":
            shift = self.constants.scalar(op.operands[2])
            return None if shift is None else (int(shift[0]),)
        if op.name == "tosa.negate":
            zeros = [self.constants.scalar(v) for v in list(op.operands)[1:]]
            return None if None in zeros else tuple(z[0] for z in zeros if z is not None)
        return ()


def _number(attribute: Any) -> float | int:
    return attribute.value


def _broadcast(extents: Extents, result: Extents) -> Index:
    """Where an operand of shape `extents` is read over the dimensions of the result."""
    return tuple(
        constant(0) if a == 1 and b != 1 else dim(i) for i, (a, b) in enumerate(zip(extents, result, strict=True))
    )


def _structure(
    build: _Builder, facts: Any, element: str, rank: int, reads: Sequence[tuple[str, Index | None]]
) -> Structure | None:
    args: list[Scalar] = []
    maps: list[Index] = []
    holes = 0
    for type_, index in reads:
        if index is None:
            args.append(Scalar("hole", type_, payload=holes))
            holes += 1
            continue
        args.append(Scalar("elem", type_, payload=(len(maps), index)))
        maps.append(index)
    if facts and facts[0] == "tosa.round":
        body: Scalar | None = Scalar(facts[1], element, tuple(args))
    else:
        body = build(args, element, facts)
    if body is None:
        return None
    structure = Structure([*maps, identity(rank)], rank, len(maps), True, [body], True)
    structure.signless = True
    return structure


# -- expressions of single operations ----------------------------------------------------------------------------


def _is_float(type_: str) -> bool:
    return type_ in _FLOAT_BITS


def _const(number: Any, type_: str) -> Scalar:
    return Scalar("const", type_, payload=typed(number, type_))


def _binary(names: tuple[str, str]) -> _Builder:
    def build(args: _Args, type_: str, _: Any) -> Scalar | None:
        return Scalar(names[0] if _is_float(type_) else names[1], type_, tuple(args))

    return build


def _unary(name: str) -> _Builder:
    def build(args: _Args, type_: str, _: Any) -> Scalar | None:
        return Scalar(name, type_, tuple(args)) if _is_float(type_) else None

    return build


def _logical(name: str) -> _Builder:
    return lambda args, type_, _: Scalar(name, type_, tuple(args))


def _compared(predicates: tuple[int, int]) -> _Builder:
    def build(args: _Args, type_: str, _: Any) -> Scalar | None:
        if _is_float(args[0].type):
            return Scalar("cmpf", type_, tuple(args), predicates[0])
        return Scalar("cmpi", type_, tuple(args), predicates[1])

    return build


def _mul(args: _Args, type_: str, facts: Any) -> Scalar | None:
    if _is_float(type_):
        return Scalar("mul", type_, tuple(args))
    (shift,) = facts
    if shift:
        return None
    return Scalar("muli", type_, tuple(a if a.type == type_ else Scalar("extsi", type_, (a,)) for a in args))


def _negate(args: _Args, type_: str, zeros: Any) -> Scalar | None:
    return Scalar("neg", type_, tuple(args)) if _is_float(type_) and not any(zeros) else None


def _clamp(args: _Args, type_: str, bounds: Any) -> Scalar | None:
    low, high = bounds
    value = args[0]
    greatest = _GREATEST.get(type_)
    if greatest is None:
        value = Scalar("maxsi", type_, (value, _const(low, type_)))
        return Scalar("minsi", type_, (value, _const(high, type_)))
    if low > -greatest:
        value = Scalar("max", type_, (value, _const(low, type_)))
    return Scalar("min", type_, (value, _const(high, type_))) if high < greatest else value


def _cast(args: _Args, type_: str, _: Any) -> Scalar | None:
    value = args[0]
    source = value.type
    if source == type_:
        return value
    if _is_float(source) and _is_float(type_):
        return Scalar("extf" if _FLOAT_BITS[type_] > _FLOAT_BITS[source] else "truncf", type_, (value,))
    if source == "i1":
        return Scalar("uitofp" if _is_float(type_) else "extui", type_, (value,))
    if type_ == "i1" or (not source[1:].isdigit() and not _is_float(source)):
        return None
    if _is_float(type_):
        return Scalar("sitofp", type_, (value,))
    if not type_[1:].isdigit():
        return None
    bits = int(type_[1:])
    if not _is_float(source):
        return Scalar("extsi" if bits > int(source[1:]) else "trunci", type_, (value,))
    value = Scalar("max", source, (Scalar("round", source, (value,)), _const(-float(1 << (bits - 1)), source)))
    value = Scalar("min", source, (value, _const(float((1 << (bits - 1)) - 1), source)))
    return Scalar("fptosi", type_, (value,))


def _reciprocal(args: _Args, type_: str, _: Any) -> Scalar | None:
    return Scalar("div", type_, (_const(1.0, type_), args[0]))


def _abs(args: _Args, type_: str, _: Any) -> Scalar | None:
    if _is_float(type_):
        return Scalar("absf", type_, tuple(args))
    negated = Scalar("subi", type_, (_const(0, type_), args[0]))
    return Scalar("maxsi", type_, (args[0], negated))


def _intdiv(args: _Args, type_: str, _: Any) -> Scalar | None:
    return Scalar("divsi", type_, tuple(args))


def _sigmoid(args: _Args, type_: str, _: Any) -> Scalar | None:
    one = _const(1.0, type_)
    power = Scalar("exp", type_, (Scalar("neg", type_, (args[0],)),))
    return Scalar("div", type_, (one, Scalar("add", type_, (power, one))))


def _select(args: _Args, type_: str, _: Any) -> Scalar | None:
    return simplified("select", type_, tuple(args), None)


def _logical_not(args: _Args, type_: str, _: Any) -> Scalar | None:
    return Scalar("xori", type_, (args[0], _const(True, type_)))


_Builder = Callable[[_Args, str, Any], "Scalar | None"]
_BUILDERS: Mapping[str, _Builder] = {
    **{name: _binary(names) for name, names in _ARITHMETIC.items()},
    **{name: _unary(called) for name, called in _UNARY.items()},
    **{name: _logical(called) for name, called in _LOGICAL.items()},
    **{name: _compared(predicates) for name, predicates in _COMPARED.items()},
    "tosa.mul": _mul, "tosa.negate": _negate, "tosa.clamp": _clamp, "tosa.cast": _cast, "tosa.pow": _logical("powf"),
    "tosa.reciprocal": _reciprocal, "tosa.sigmoid": _sigmoid, "tosa.select": _select, "tosa.intdiv": _intdiv,
    "tosa.abs": _abs,
    "tosa.logical_not": _logical_not,
}  # fmt: skip
