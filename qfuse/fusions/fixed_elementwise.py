"""Elementwise expressions of dequantized values in integers only.

Every value is an integer times a real scale. Where scales agree, or are multiplied, the integers are added, compared
and multiplied as they are, exactly. Where they do not, both sides are rescaled to one grid: the step of the result,
divided by a power of two that leaves as many guard bits as i32 holds. What each rescale rounds is added up.

    (qa - za) * sa + (qb - zb) * sb   ->   rescale(rescale(qa - za) + rescale(qb - zb)) + z
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from qfuse.emit.expression import nodes
from qfuse.fixed_point import (
    Multiplier,
    fits,
    greatest_scale,
    is_power_of_two,
    is_within_shift,
    rounded_up,
    tie_distance,
)
from qfuse.fusions.fixed_terms import I64, NotIntegerError, Term, constant_values, leaf, stored_term
from qfuse.graph import Array, Environment, Refusal
from qfuse.indexing import Extents, compose, identity
from qfuse.matchers.nodes import Quantize
from qfuse.matchers.pieces import two_pieces
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import Param, QuantParams, over_extents

#: Magnitudes of integers between rescales stay below this.
_LIMIT = float(1 << 31)
#: Guard bits of the common grid, at most and at least.
_GUARD = (20, 4)
#: Relative error of scales that were multiplied and divided in f64.
_ROUNDED = 2.0**-48
_LARGER = "a larger scale of the result"
_BEYOND = ("an intermediate value exceeds i32 at the step of the result", _LARGER)


@dataclass(frozen=True, eq=False)
class FixedExpression:
    """A stored result in integers, and how far it may be from the reference.

    Attributes:
        scalar: the stored result.
        distance: greatest distance from a half-integer at which results may differ, in steps of the output.
        steps: greatest difference in steps.
        guard: bits of the common grid below the output's step; None when there is none.
    """

    scalar: Scalar
    distance: float
    steps: int
    guard: int | None

    @property
    def exactness(self) -> str:
        """The class of the rewrite."""
        return f"within-{self.steps}-lsb" if self.steps else "bit-exact"


def plan_fixed(
    source: Scalar, node: Quantize, params: QuantParams, extents: Extents, env: Environment
) -> FixedExpression | Refusal:
    """What `node` quantizes, an expression over `extents`, in integers; `params` are its own over the same."""
    scale = _over(params.scale, extents)
    zero = _over(params.zero_point, extents)
    if scale is None or zero is None:
        return Refusal("an elementwise operation in integers needs constant parameters of the result")
    step = scale.astype(np.float64)
    refused = NotIntegerError(*_BEYOND)
    for guard in range(_GUARD[0], _GUARD[1] - 1, -1):
        try:
            return _Planner(step, extents, env, guard).result(source, node, params, zero)
        except NotIntegerError as error:
            refused = error
        if refused.reason != _BEYOND[0]:
            break
    return Refusal(f"the elementwise operation has no integer form: {refused.reason}", refused.hint, in_float=True)


def _over(param: Param, extents: Extents) -> Array | None:
    return over_extents(param.data, param.index, extents) if param.data is not None and param.data.size else None


class _Planner:
    def __init__(self, step: Array, extents: Extents, env: Environment, guard: int) -> None:
        self.rank = len(extents)
        self.extents = extents
        self.env = env
        self.step = step
        self.grid = step * 2.0**-guard
        self.guard = guard
        self.guarded = False
        self._known: dict[int, Term | Array] = {}

    def result(self, source: Scalar, node: Quantize, params: QuantParams, zero: Array) -> FixedExpression:
        """The quantize of an expression."""
        value = self.term(source)
        if not isinstance(value, Term):
            raise NotIntegerError("it is a constant")
        rescaled = self.rescale(value, self.step)
        to_even = self.env.options.scaling == "half-even" and not node.zero_point_first
        exact = rescaled.error == 0 and (rescaled is value or to_even)
        distance = max(rescaled.error - (0.0 if rescaled is value else 0.5), 0.0)
        steps = 0 if exact else 1 + int(distance)
        x = rescaled.integer
        if zero.any():
            x = Scalar("addi", I64, (x, self.constant(zero)))
        x = Scalar("maxsi", I64, (x, leaf(params.quant_min)))
        x = Scalar("minsi", I64, (x, leaf(params.quant_max)))
        scalar = Scalar("trunci", params.storage.mlir, (x,))
        return FixedExpression(scalar, rounded_up(distance), steps, self.guard if self.guarded else None)

    # -- expressions -------------------------------------------------------------------------------------------

    def term(self, scalar: Scalar) -> Term | Array:
        """A float expression as a term, or as its constant values."""
        found = self._known.get(id(scalar))
        if found is None:
            found = self._known[id(scalar)] = self._term(scalar)
        return found

    def _term(self, scalar: Scalar) -> Term | Array:
        if not any(n.op == "stored" for n in nodes(scalar)):
            return constant_values(scalar, self.extents, self.env)
        if scalar.op in ("extf", "truncf"):
            return self.term(scalar.args[0])
        if scalar.op in ("sitofp", "uitofp"):
            return stored_term(scalar.args[0], scalar.op == "sitofp", self.rank, self.env)
        if scalar.op == "select":
            return self._select(scalar)
        operation: Callable[..., Term | Array] | None = {
            "add": self._add, "sub": self._subtract, "mul": self._multiply, "div": self._divide, "neg": self._negate,
            "max": self._maximum, "min": self._minimum, "absf": self._absolute,
        }.get(scalar.op)  # fmt: skip
        if operation is None:
            hint = "quantize its operand" if len(scalar.args) == 1 else ""
            raise NotIntegerError(f"{scalar.op} of a dequantized value", hint)
        return operation(*(self.term(a) for a in scalar.args))

    # -- operations --------------------------------------------------------------------------------------------

    def _add(self, a: Term | Array, b: Term | Array) -> Term:
        return self._sum("addi", *self._aligned(a, b))

    def _subtract(self, a: Term | Array, b: Term | Array) -> Term:
        return self._add(a, -b) if not isinstance(b, Term) else self._sum("subi", *self._aligned(a, b))

    def _sum(self, name: str, a: Term, b: Term) -> Term:
        if a.bound + b.bound >= _LIMIT:
            a, b = self._on_grid(a), self._on_grid(b)
        bound, error = a.bound + b.bound, a.error + b.error
        if bound >= _LIMIT:
            raise NotIntegerError(*_BEYOND)
        return Term(Scalar(name, I64, (a.integer, b.integer)), a.scale, bound, error)

    def _negate(self, a: Term | Array) -> Term | Array:
        if not isinstance(a, Term):
            return -a
        return replace(a, integer=Scalar("subi", I64, (leaf(0), a.integer)))

    def _absolute(self, a: Term | Array) -> Term:
        assert isinstance(a, Term)
        negated = self._negate(a)
        assert isinstance(negated, Term)
        return replace(a, integer=Scalar("maxsi", I64, (a.integer, negated.integer)))

    def _multiply(self, a: Term | Array, b: Term | Array) -> Term | Array:
        if isinstance(a, Term) and isinstance(b, Term):
            return self._product(a, b)
        term, factor = (a, b) if isinstance(a, Term) else (b, a)
        assert isinstance(term, Term)
        assert not isinstance(factor, Term)
        return self._scaled(term, factor)

    def _product(self, a: Term, b: Term) -> Term:
        """A product; one that exceeds i32 is divided by a power of two, and rounded."""
        scale, bound = a.scale * b.scale, a.bound * b.bound
        error = a.error * b.bound + b.error * a.bound + a.error * b.error
        if bound < _LIMIT:
            return Term(Scalar("muli", I64, (a.integer, b.integer)), scale, bound, error)
        if max(a.bound, b.bound) >= _LIMIT:
            raise NotIntegerError(_BEYOND[0], "quantize the operands to 16 bits")
        shift = int(np.frexp(bound)[1]) - 30
        integer = Scalar("mulshift", I64, (a.integer, b.integer, leaf(shift)), self.env.options.scaling)
        part = 2.0**-shift
        return Term(integer, scale / part, bound * part + 1.0, error * part + 0.5)

    def _divide(self, a: Term | Array, b: Term | Array) -> Term | Array:
        if isinstance(b, Term):
            raise NotIntegerError("a division by a dequantized value", "quantize the divisor, and its reciprocal")
        assert isinstance(a, Term)
        with np.errstate(divide="ignore"):
            return self._scaled(a, 1.0 / b)

    def _scaled(self, term: Term, factor: Array) -> Term | Array:
        """A term times constants. Where these are 0 its scale is, and with it the multiplier of the next rescale."""
        if not np.isfinite(factor).all():
            raise NotIntegerError("a constant factor is not finite")
        if not factor.any():
            return np.zeros((1,) * self.rank)
        if (factor <= 0).all():
            negated = self._negate(term)
            assert isinstance(negated, Term)
            term, factor = negated, -factor
        if (factor < 0).any():
            signs = self.constant(np.sign(factor).astype(np.int64))
            term, factor = replace(term, integer=Scalar("muli", I64, (term.integer, signs))), np.abs(factor)
        return replace(term, scale=term.scale * factor)

    def _maximum(self, a: Term | Array, b: Term | Array) -> Term:
        return self._extreme("maxsi", a, b)

    def _minimum(self, a: Term | Array, b: Term | Array) -> Term:
        return self._extreme("minsi", a, b)

    def _extreme(self, name: str, a: Term | Array, b: Term | Array) -> Term:
        left, right = self._aligned(a, b)
        bound, error = max(left.bound, right.bound), max(left.error, right.error)
        return Term(Scalar(name, I64, (left.integer, right.integer)), left.scale, bound, error)

    def _select(self, scalar: Scalar) -> Term | Array:
        condition = scalar.args[0]
        if condition.op != "elem":
            pieces = two_pieces(scalar)
            if pieces is None:
                raise NotIntegerError(f"a choice by {condition.op} of dequantized values")
            return self.term(pieces)
        left, right = self._aligned(self.term(scalar.args[1]), self.term(scalar.args[2]))
        bound, error = max(left.bound, right.bound), max(left.error, right.error)
        return Term(Scalar("select", I64, (condition, left.integer, right.integer)), left.scale, bound, error)

    # -- grids -------------------------------------------------------------------------------------------------

    def _aligned(self, a: Term | Array, b: Term | Array) -> tuple[Term, Term]:
        """Two values as integers of one scale."""
        if isinstance(a, Term) and isinstance(b, Term):
            if np.array_equal(a.scale, b.scale):
                return a, b
            return self._on_grid(a), self._on_grid(b)
        if isinstance(a, Term):
            assert not isinstance(b, Term)
            moved = a if a.scale.all() and not b.any() else self._on_grid(a)
            return moved, self._whole(b, moved.scale)
        assert isinstance(b, Term)
        second, first = self._aligned(b, a)
        return first, second

    def _on_grid(self, term: Term) -> Term:
        self.guarded = True
        return self.rescale(term, self.grid)

    def _whole(self, number: Array, scale: Array) -> Term:
        """A constant as the nearest integers of a scale; infinities become bounds that nothing reaches."""
        if np.isnan(number).any():
            raise NotIntegerError("a constant is not a number")
        exact = np.clip(number / scale, -_LIMIT, _LIMIT)
        whole = np.rint(exact)
        error = float(np.abs(exact - whole).max(initial=0.0))
        finite = np.abs(exact)[np.isfinite(np.broadcast_to(number, exact.shape))]
        bound = float(finite.max(initial=0.0))
        return Term(self.constant(whole.astype(np.int64)), scale, bound, error)

    def rescale(self, term: Term, scale: Array) -> Term:
        """The same value in steps of another scale."""
        ratio = term.scale / scale
        if np.array_equal(ratio, np.ones(ratio.shape)):
            return term
        bound = term.bound * float(ratio.max(initial=0.0)) + 1.0
        if bound >= _LIMIT:
            raise NotIntegerError(*_BEYOND)
        if not is_within_shift(ratio, term.bound):
            raise NotIntegerError(*_BEYOND)
        integer, multiplier = self._multiplied(term.integer, ratio)
        error = float((term.error * ratio).max(initial=0.0)) + 0.5
        real = np.where(ratio > 0, ratio, multiplier.real)  # 0 is exact
        distances = tie_distance(multiplier, real, term.bound, self.env.options.scaling, _ROUNDED)
        error += float(distances.max(initial=0.0))
        if multiplier.bits == 0 and bool((multiplier.shift <= 0).all()):
            error -= 0.5
        integer = Scalar(
            "rescale", I64, (integer, self.constant(multiplier.mantissa), self.constant(multiplier.shift)),
            (self.env.options.scaling, multiplier.bits),
        )  # fmt: skip
        return Term(integer, scale, bound, error)

    def _multiplied(self, integer: Scalar, ratio: Array) -> tuple[Scalar, Multiplier]:
        """What is rescaled by these ratios, some of which may be 0, and the multiplier."""
        known = ratio > 0
        if known.all():
            return integer, self._multiplier(ratio)
        multiplier = self._multiplier(np.where(known, ratio, ratio.max()))
        if multiplier.bits:
            return integer, replace(multiplier, mantissa=np.where(known, multiplier.mantissa, 0))
        return Scalar("muli", I64, (integer, self.constant(known.astype(np.int64)))), multiplier

    def _multiplier(self, ratio: Array) -> Multiplier:
        bits = 31
        if self.env.options.epilogue == "power-of-two":
            if not is_power_of_two(ratio):
                raise NotIntegerError("the scales are not powers of two apart", "use epilogue=fixed-point")
            bits = 0
        if not fits(ratio, bits):
            raise NotIntegerError(
                f"a scale is {float(ratio.max()):.6g} of another, which must be less than {greatest_scale(bits):.0f}",
                _LARGER,
            )
        return Multiplier.of(ratio, bits)

    def constant(self, array: Array) -> Scalar:
        """Integers over the dimensions: a number where they are uniform."""
        flat = array.reshape(-1)
        if flat.size and bool((flat == flat[0]).all()):
            return leaf(int(flat[0]))
        kept = [i for i, n in enumerate(array.shape) if n != 1]
        dims = identity(self.rank)
        held = array.reshape([array.shape[i] for i in kept]).astype(np.int64)
        return Scalar("array", I64, payload=(held, compose(tuple(dims[i] for i in kept), dims, self.extents)))
