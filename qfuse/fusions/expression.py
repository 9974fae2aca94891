"""What a value is computed from, back to stored integers.

Elementwise operations and exact moves are read through until the leaves are dequantized values, whose dequantize is
then spelled on their integers, constants, and float tensors that come from elsewhere. Operations that no dequantized
value goes into are not repeated: their result is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse._mlir import Value
from qfuse.emit.base import loops_to_dims, out_extents
from qfuse.emit.expression import SPELLED, nodes, number
from qfuse.emit.spec import PlannedContraction
from qfuse.fusions.base import Fusion
from qfuse.graph import AccumForm, Decision, Environment, Existing, Folded, Made, Moved, QValue, StepOperand, StoredForm
from qfuse.indexing import Extents, Index, as_dim, compose, identity, is_plain, printed
from qfuse.matchers.functions import LIBRARY
from qfuse.matchers.nodes import Dequantize, Elementwise, LayoutNode, Reduction
from qfuse.matchers.reader import ScalarReader
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import Param, QuantParams

#: Operations that one expression may have. What is longer is not repeated inside of one operation.
LONGEST = 200
#: Elements that a constant may have when it is written as it is read.
_MOST_CONSTANTS = 1 << 16
_FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(eq=False)
class Traced:
    """An expression over stored integers.

    Attributes:
        scalar: the expression; see `qfuse.emit.expression` for its leaves.
        source: the part of it that was asked for as well, or `scalar`.
        forms: the dequantized values it reads.
        floats: the float values it reads.
        through: the values between that it computes anew.
        exact: whether each dequantize is repeated in its own arithmetic.
        unreadable: the first index at which an indexing map cannot read a tensor, as printed, or None.
    """

    scalar: Scalar
    source: Scalar
    forms: tuple[StoredForm, ...]
    floats: tuple[Value, ...]
    through: tuple[Value, ...]
    exact: bool
    unreadable: str | None


def trace_back(
    scalar: Scalar, extents: Extents, env: Environment, source: Scalar | None = None, accumulators: bool = False
) -> Traced | None:
    """An expression over dimensions of these extents, back to stored integers; None when it reads none.

    Args:
        scalar: the expression.
        extents: of its dimensions.
        env: forms and constants.
        source: a part of it.
        accumulators: whether accumulators are read as integers, too, instead of their float value.
    """
    if not is_repeatable(scalar, env):
        return None
    tracer = _Tracer(extents, env, accumulators)
    found = tracer.follow(scalar)
    part = found if source is None else tracer.follow(source)
    if id(found) not in tracer.quantized or id(part) not in tracer.quantized:
        return None
    kept = list(nodes(found))
    floats = [n.payload[0] for n in kept if n.op == "elem" and env.reader.constants.read(n.payload[0]) is None]
    forms, through = tuple(tracer.forms), tuple(dict.fromkeys(tracer.through))
    place = unreadable(kept, extents, env)
    return Traced(found, part, forms, tuple(dict.fromkeys(floats)), through, tracer.exact, place)


def unreadable(expression: Iterable[Scalar], extents: Extents, env: Environment) -> str | None:
    """The first index at which no tensor can be read, as printed, or None.

    Whole dimensions can be, and those of stored integers split and merged in their order, which a reshape says.
    """
    for node in expression:
        if node.op not in ("elem", "stored"):
            continue
        tensor, index = node.payload
        if not is_plain(index):
            if node.op == "elem" or not env.is_readable(tensor, index, extents):
                return printed(index)
            continue
        own = _extents_of(tensor, env)
        dims = [as_dim(e) for e in index]
        pairs = () if own is None else ((n, extents[d]) for d, n in zip(dims, own, strict=True) if d is not None)
        if any(n != read and None not in (n, read) for n, read in pairs):
            return f"{printed(index)} of a larger tensor"
    return None


def _extents_of(tensor: Value | QValue, env: Environment) -> Extents | None:
    """Extents of what an expression reads, as far as its index does not imply them."""
    if isinstance(tensor, Made) and isinstance(tensor.decision.fusion, CorrectedAccumulators):
        return env.extents_of(tensor)
    if isinstance(tensor, Existing | Folded | Moved | Made):
        return None
    info = env.reader.bindings.tensor_info(tensor.type)
    return None if info is None else info[0]


class _Tracer:
    def __init__(self, extents: Extents, env: Environment, accumulators: bool) -> None:
        self.extents = extents
        self.accumulators = accumulators
        self.env = env
        self.quantized: set[int] = set()
        self.forms: list[StoredForm] = []
        self.through: list[Value] = []
        self.exact = True
        self._leaves: dict[tuple[Value, Index], Scalar] = {}
        self._followed: dict[int, tuple[Scalar, Scalar]] = {}
        self._count = 0

    def follow(self, scalar: Scalar) -> Scalar:
        """The expression with its leaves replaced by what they are computed from."""
        if scalar.op == "elem":
            if scalar.payload not in self._leaves:
                self._leaves[scalar.payload] = self._leaf(scalar)
            return self._leaves[scalar.payload]
        if not scalar.args:
            return scalar
        known = self._followed.get(id(scalar))
        if known is None:
            known = self._followed[id(scalar)] = (scalar, self._operation(scalar))
        return known[1]

    def _operation(self, scalar: Scalar) -> Scalar:
        self._count += 1
        args = tuple(self.follow(a) for a in scalar.args)
        if all(a.op == "const" for a in args) and scalar.op not in LIBRARY:
            value = self.env.reader.evaluate(Scalar(scalar.op, scalar.type, args, scalar.payload), ())
            if value is not None and not value.shape:
                return Scalar("const", scalar.type, payload=value[()])
        same = all(a is b for a, b in zip(args, scalar.args, strict=True))
        found = scalar if same else Scalar(scalar.op, scalar.type, args, scalar.payload)
        if any(id(a) in self.quantized for a in args):
            self._mark(found)
        return found

    def _mark(self, scalar: Scalar) -> Scalar:
        self.quantized.add(id(scalar))
        self._followed.setdefault(id(scalar), (scalar, scalar))  # keeps it, so that its id stays its own
        return scalar

    def _leaf(self, leaf: Scalar) -> Scalar:
        value, index = leaf.payload
        reader = self.env.reader
        array = reader.constants.read(value)
        if array is not None:
            if array.size != 1:
                return leaf if is_plain(index) else constant_over(leaf, self.extents, self.env) or leaf
            return Scalar("const", leaf.type, payload=_scalar_of(array, leaf.type))
        form = self.env.form(value)
        if isinstance(form, AccumForm):
            if not self.accumulators or form.decision.payload.blocked is not None:
                return leaf
            if value == form.decision.node.result:
                return self._mark(self.follow(self._accumulated(form, index)))
        if isinstance(form, StoredForm):
            compute = arithmetic(value, self.env)
            if compute != "":
                self.exact = self.exact and compute is not None
                self.forms.append(form)
                return self._mark(dequantized(form, index, self.extents, compute or form.params.expressed))
        if self._count > LONGEST:
            return leaf
        expanded = reader.expand(leaf, self.extents)
        if expanded is None or not is_repeatable(expanded, self.env):
            return leaf
        found = self.follow(expanded)
        if id(found) in self.quantized:
            self.through.append(value)
            return found
        return found if found.op == "const" else leaf

    def _accumulated(self, form: AccumForm, index: Index) -> Scalar:
        """The float value of accumulators, on the corrected accumulators as integers."""
        planned: PlannedContraction = form.decision.payload
        own = out_extents(planned.extents, planned.out_loops)
        to_dims = loops_to_dims(planned.out_loops, len(planned.extents))
        x = Scalar("stored", f"i{planned.bits}", payload=(corrected(form.decision, self.env), index))
        x = self._mark(Scalar("sitofp", form.element, (x,)))
        for side in (planned.lhs, planned.rhs):
            scale = side.params.scale
            if scale.scalar != 1.0:
                over = Param(compose(scale.index, to_dims, own), scale.data, scale.value, scale.element)
                x = Scalar("mul", form.element, (x, parameter(over.over(index, self.extents), form.element)))
        for step in form.steps:  # what the sum starts from, and what makes a mean of it
            operand = step.operand
            if operand is None:
                continue
            if operand.number is not None:
                other = number(operand.number, form.element)
            elif operand.scalar is not None:
                array, place = operand.scalar.payload
                place = compose(place, index, self.extents)
                other = cast(Scalar("array", operand.scalar.type, payload=(array, place)), form.element)
            else:
                place = compose(operand.index, index, self.extents)
                other = cast(Scalar("elem", operand.element, payload=(operand.value, place)), form.element)
            x = Scalar(step.kind, form.element, (x, other))
        return x


class CorrectedAccumulators(Fusion):
    """Accumulators less what the zero points add to them, as an integer tensor; made where an expression reads it."""

    id = "qfuse.corrected"
    listed = False

    def build(self, decision: Decision, context: Any) -> Any:
        """By the target's emitter."""
        return context.emitter.corrected(decision.needs[0], context)


def corrected(decision: Decision, env: Environment) -> Made:
    """The corrected accumulators of a planned contraction, the same for all that read them."""
    found = env.corrected.get(decision)
    if found is None:
        made = Decision(
            CorrectedAccumulators(), decision.node, "bit-exact", needs=(decision,), payload=decision.payload
        )
        found = env.corrected[decision] = Made(made)
    return found


def constant_over(scalar: Scalar, extents: Extents, env: Environment) -> Scalar | None:
    """An expression of constants over dimensions of these extents, as a number or an array along those it varies along.

    None where it is not constant, of another type than f32 or f64, or has too many elements.
    """
    held = {"f32": np.float32, "f64": np.float64}.get(scalar.type)
    array = None if held is None else env.reader.evaluate_over(scalar, extents)
    if array is None or array.size > _MOST_CONSTANTS:
        return None
    array = array.astype(held)
    if array.size == 1:
        return Scalar("const", scalar.type, payload=array.reshape(-1)[0])
    varying = tuple(d for d, n in zip(identity(len(extents)), array.shape, strict=True) if n != 1)
    return Scalar("array", scalar.type, payload=(array.squeeze(), varying))


def constant_operand_over(scalar: Scalar, extents: Extents, env: Environment) -> StepOperand | None:
    """`constant_over` as the operand of a step, or None."""
    found = constant_over(scalar, extents, env)
    if found is None or found.op == "const":
        return None if found is None else StepOperand(number=float(found.payload), element=scalar.type)
    return StepOperand(element=scalar.type, scalar=found)


def is_repeatable(scalar: Scalar, env: Environment) -> bool:
    """Whether an expression has only operations that can be spelled, on floats, conditions and constants."""
    for node in nodes(scalar):
        if node.op == "elem":
            if node.type not in (*_FLOATS, "i1") and env.reader.constants.value(node.payload[0]) is None:
                return False
        elif node.op not in SPELLED and node.op not in ("const", "ssa"):
            return False
    return True


def _scalar_of(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], type_: str) -> object:
    held = array.reshape(-1)[0]
    return held if type_ in _FLOATS else held.item()


def arithmetic(value: Value, env: Environment) -> str | None:
    """The float type that a dequantized value's product with the scale is computed in.

    None when that is not known, and empty when a rounding follows that the value's form does not have.
    """
    decision = env.decisions.get(value)
    node = None if decision is None else decision.node
    if isinstance(node, Dequantize):
        return _product_type(value, node.params, env.reader)
    if isinstance(node, LayoutNode):
        found = {arithmetic(s, env) for s in node.layout.sources}
        return found.pop() if len(found) == 1 else None
    if isinstance(node, Reduction):
        return arithmetic(node.operand, env)
    return "" if isinstance(node, Elementwise) else None


def _product_type(value: Value, params: QuantParams, reader: ScalarReader) -> str | None:
    spelled = reader.of(value)
    if spelled is None:
        return params.expressed
    for _ in range(16):
        if spelled.op in ("extf", "truncf"):
            spelled = spelled.args[0]
        elif spelled.op == "elem":
            inner = reader.expand(spelled, params.extents)
            if inner is None:
                return None
            spelled = inner
        else:
            break
    known = spelled.op in ("mul", "sub", "sitofp", "uitofp") and spelled.type in _FLOATS
    return spelled.type if known and params.storage.bits <= 16 else None


def dequantized(form: StoredForm, index: Index, extents: Extents, compute: str) -> Scalar:
    """`scale * (q - zero_point)` of the form's element at `index`, computed in the float type `compute`."""
    params = form.params.over(index, extents)
    storage = params.storage
    x = Scalar("stored", storage.mlir, payload=(form.q, compose(form.index, index, extents)))
    signed = storage.signed
    if not params.symmetric:
        wide = "i32" if storage.bits < 32 else "i64"
        if storage.bits < int(wide[1:]):
            x = Scalar("extsi" if signed else "extui", wide, (x,))
        x = Scalar("subi", wide, (x, parameter(params.zero_point, wide)))
        signed = True
    x = Scalar("sitofp" if signed else "uitofp", compute, (x,))
    if params.scale.scalar != 1.0:
        x = Scalar("mul", compute, (x, parameter(params.scale, compute)))
    return cast(x, params.expressed)


def parameter(param: Param, type_: str) -> Scalar:
    """A scale or zero point as a value of a type."""
    if param.data is not None:
        if param.scalar is not None:
            return number(param.scalar, type_) if type_ in _FLOATS else number(int(param.scalar), type_)
        held = {"f64": np.float64, "i32": np.int32, "i64": np.int64}.get(type_, np.float32)
        printed = type_ if type_ in ("f64", "i32", "i64") else "f32"
        return cast(Scalar("array", printed, payload=(param.data.astype(held), param.index)), type_)
    return cast(Scalar("elem", param.element, payload=(param.value, param.index)), type_, param.signed)


def cast(x: Scalar, type_: str, signed: bool = True) -> Scalar:
    """A number as one of another type, both floats or both integers."""
    if x.type == type_:
        return x
    if type_ in _FLOATS:
        widths = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
        return Scalar("extf" if widths[type_] > widths[x.type] else "truncf", type_, (x,))
    if x.type in _FLOATS:
        return Scalar("fptosi", type_, (x,))
    if int(x.type[1:]) > int(type_[1:]):
        return Scalar("trunci", type_, (x,))
    return Scalar("extsi" if signed else "extui", type_, (x,))
