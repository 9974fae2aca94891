"""Functions of one dequantized value become tables.

    %x = dequantize %q         %t = constant table of 256 integers
    %y = sigmoid %x      ->    %r = %t[%q]
    %r = quantize %y

The chain between is evaluated for every integer that can be stored, in the float types it is written in, so any chain
will do: gelu, silu, elu, exp, rsqrt, or several of them. With the option `epilogue=fixed-point` every chain of one
input becomes a table; else those with an operation that integers do not have.

Needs one set of constant parameters for the tensor and at most 8 bits. With `lookup16=true` 16 bits as well: a table of
513 points, and straight lines between them in integers. Where the machine has such tables they are its own, and taken
where they are within a step and the chain has no other form in integers, or where they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfuse.emit.elementwise import Between, PlannedLookup, Points
from qfuse.emit.expression import nodes, rebuilt
from qfuse.fusions.base import Fusion
from qfuse.fusions.elementwise import Root, facts, find_root, refuse_common
from qfuse.fusions.fixed_elementwise import plan_fixed
from qfuse.fusions.points import MOST_FINER, POINTS, Tabulated, find_points
from qfuse.fusions.requires import of_elements, of_stored
from qfuse.graph import Array, Decision, Environment, Made, Refusal, StoredForm
from qfuse.matchers.functions import LIBRARY
from qfuse.matchers.nodes import Node, Quantize
from qfuse.matchers.scalar import Scalar
from qfuse.qparams import StorageType
from qfuse.requirements import Operand, Requirements

_DTYPES: Mapping[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32}


class FuseLookup(Fusion):
    """Any chain of float operations of one dequantized input, between its dequantize and a quantize."""

    id = "qfuse.lookup"
    nodes = (Quantize,)
    counted = True
    exactness = ("bit-exact", "within-n-lsb")
    doc = "functions of one dequantized tensor (sigmoid, tanh, gelu, silu, exp, ...) become tables"

    def match(self, node: Node) -> bool:
        """Quantize nodes."""
        return isinstance(node, Quantize)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses parameters that vary or are known at run time only, and wide storage."""
        assert isinstance(node, Quantize)
        root = find_root(node, env)
        if root is None:
            return None
        stored = _only_input(root)
        if stored is None:
            return None
        form = root.traced.forms[0]
        if not _is_wanted(root, form, env):
            return None
        env.elementwise[node.result] = root.traced.through
        refusal = refuse_common(root, env)
        if refusal is None:
            refusal = _varies(root, form)
        held = None if refusal is not None else _held(root, form, env)
        if refusal is None and held is None:
            refusal = _too_wide(root, form, env)
        if refusal is not None:
            return refusal
        if held is not None:
            table = _machine_points(root, held, env)
        else:
            table = _points(root, env) if form.params.storage.bits > 8 else _table(root, env)
        if table is None:
            return Refusal("the function cannot be evaluated: an operation in it is not known")
        if isinstance(table, Refusal):
            return table
        exact = not table.functions and table.between is None and table.points is None
        payload = PlannedLookup(node, stored, table.values, root.extents, root.moves, table.between, table.points)
        exactness = "bit-exact" if exact else f"within-{max(table.steps, 1)}-lsb"
        decision = Decision(self, node, exactness, needs=(form.q,), payload=payload, detail=_facts(root, table))
        decision.replacement = Made(decision)
        needs = Requirements(
            "lookup", (of_stored(form, env), Operand("result", node.params)), operations=root.operations,
            sizes=of_elements(node.params.extents), entries=table.values.size,
        )  # fmt: skip
        decision.requires = (needs,)
        return decision

    def build(self, decision: Decision, context: object) -> object:
        """The table and what reads it, by the target's emitter."""
        return context.emitter.lookup(decision.payload, context)  # type: ignore[attr-defined]


def _only_input(root: Root) -> Scalar | None:
    """The one stored element that the expression is a function of, or None; parameters do not count as inputs."""
    found: list[Scalar] = []
    for node in nodes(root.traced.scalar):
        if node.op == "ssa" or (node.op == "elem" and not _is_parameter(node, root)):
            return None
        if node.op == "stored":
            found.append(node)
    first = found[0]
    if not root.traced.forms or first.payload[0] is not root.traced.forms[0].q:
        return None
    return first if all(n.payload == first.payload for n in found) and root.traced.unreadable is None else None


def _is_parameter(leaf: Scalar, root: Root) -> bool:
    """Whether a tensor holds scales or zero points: that these vary, or are not known, is a reason to give."""
    value, index = leaf.payload
    every = [p for q in (root.node.params, *(f.params for f in root.traced.forms)) for p in (q.scale, q.zero_point)]
    if any(p.value is not None and p.value == value for p in every):
        return True
    own = root.node.params
    return bool(index) and index in (own.scale.index, own.zero_point.index)


def _is_wanted(root: Root, form: StoredForm, env: Environment) -> bool:
    """Whether a table is asked for, or the expression has no integer form: of 16 bits it is not asked for."""
    if _has_function(root):
        return True
    if env.options.epilogue == "float":
        return False
    if form.params.storage.bits <= 8 or env.options.lookup16:
        return True
    if _held(root, form, env) is None:
        return False
    return isinstance(plan_fixed(root.traced.source, root.node, root.node.params, root.extents, env), Refusal)


def _has_function(root: Root) -> bool:
    """Whether an expression has an operation without an integer form."""
    scalar = root.traced.scalar
    quantized = {id(n) for n in nodes(scalar) if n.op == "stored" or any(_holds_stored(a) for a in n.args)}
    return any(
        n.op in LIBRARY or n.op == "sqrt" or (n.op == "div" and id(n.args[1]) in quantized) for n in nodes(scalar)
    )


def _holds_stored(scalar: Scalar) -> bool:
    return any(n.op == "stored" for n in nodes(scalar))


def _varies(root: Root, form: StoredForm) -> Refusal | None:
    for what, params in (("input", form.params), ("result", root.node.params)):
        if not params.scale.is_constant or not params.zero_point.is_constant:
            return Refusal(f"a lookup table needs constant parameters, those of the {what} are known at run time only")
        if params.scale.scalar is None or params.zero_point.scalar is None:
            return Refusal(
                f"a lookup table needs one set of parameters, the {what} is {params.granularity}",
                "quantize per tensor",
            )
    return None


@dataclass(frozen=True)
class _Held:
    """Types in which a table of the machine's is read, and how much less integers are in them."""

    storage: StorageType
    offset: int
    result: StorageType
    result_offset: int


def _held(root: Root, form: StoredForm, env: Environment) -> _Held | None:
    """How a function of 16 bits, or with a result of 16, is read from a table of the machine's; else None."""
    params = root.node.params
    source = env.vocabulary.tabulated(form.params.storage, form.low, form.high)
    result = env.vocabulary.tabulated(params.storage, params.quant_min, params.quant_max)
    if source is None or result is None or max(source[0].bits, result[0].bits) <= 8:
        return None
    return _Held(*source, *result)


def _too_wide(root: Root, form: StoredForm, env: Environment) -> Refusal | None:
    bits, out = form.params.storage.bits, root.node.params.storage.bits
    own = env.vocabulary.tabulated(form.params.storage, form.low, form.high) is not None
    if bits <= 8:
        return None
    if bits > 16 and not own:
        return Refusal(f"a lookup table takes at most 16 bits, the input has {bits}", "quantize the input to 8 bits")
    asked = own or env.options.lookup16
    if own or out > 16:
        hint = "quantize the result to 16 bits" + ("" if asked else ", and use lookup16=true")
        return Refusal(f"a lookup table between points gives at most 16 bits, the result has {out}", hint)
    if not asked:
        return Refusal(f"a lookup table takes at most 8 bits, the input has {bits}", "use lookup16=true")
    return None


# -- the table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Table:
    """What is looked up.

    Attributes:
        values: entries, by the bits of the stored integer; or the points that `between` reads.
        steps: greatest distance from the reference.
        functions: names of the operations that libraries differ in.
        between: see `PlannedLookup`.
        points: see `PlannedLookup`.
    """

    values: Array
    steps: int
    functions: tuple[str, ...]
    between: Between | None = None
    points: Points | None = None

    @property
    def entries(self) -> int:
        """How many entries or points there are in all."""
        return self.values.size if self.points is None else self.points.entries


def _table(root: Root, env: Environment) -> _Table | None:
    """A result for each integer that can be stored, as the arithmetic of the IR gives it."""
    form = root.traced.forms[0]
    storage = form.params.storage
    raw = np.arange(1 << storage.bits)
    held = np.where(raw >= 1 << (storage.bits - 1), raw - (1 << storage.bits), raw).astype(np.int8)
    written, precise = (_evaluated(root, s, held, env) for s in (root.traced.scalar, _in_f64(root.traced.scalar)))
    if written is None or precise is None:
        return None
    values = raw if not storage.signed else held
    occurring = (values >= form.low) & (values <= form.high)
    steps = int(np.abs(written - precise)[occurring].max(initial=0))
    width = next(w for w in _DTYPES if root.node.params.storage.bits <= w)
    return _Table(written.astype(_DTYPES[width]), steps, _functions(root))


def _points(root: Root, env: Environment) -> _Table | None:
    """513 points of a function of 16 bits, finer than a step of the result."""
    form, params = root.traced.forms[0], root.node.params
    storage = form.params.storage
    every = np.arange(storage.min, storage.max + 1)
    held = every.astype(np.int16 if storage.bits == 16 or storage.signed else np.int32)
    precise = _in_f64(root.traced.scalar)
    reference = _evaluated(root, precise, held, env)
    real = _real(root, _in_f64(root.traced.source), held, env)
    if reference is None or real is None:
        return None
    spacing = storage.bits - 9
    fraction = 8 if params.storage.bits <= 8 else 4
    # A line ends where the next integer would be: the last one is continued to there.
    last = real[-1] + (real[-1] - real[-2])
    points = np.append(real[:: 1 << spacing], last)
    points = np.clip(points, params.quant_min - 1, params.quant_max + 1)
    table = np.rint(points * 2.0**fraction).astype(np.int32)
    between = Between(storage.min, storage.signed, spacing, fraction)
    found = np.clip(between.apply(table, every), params.quant_min, params.quant_max)
    occurring = (every >= form.low) & (every <= form.high)
    steps = int(np.abs(found - reference)[occurring].max(initial=0))
    return _Table(table, steps, _functions(root), between)


def _machine_points(root: Root, held: _Held, env: Environment) -> _Table | Refusal | None:
    """Points that the machine reads between, within a step of the function."""
    form, params = root.traced.forms[0], root.node.params
    half = 1 << (held.storage.bits - 1)
    every = np.arange(-half, half) + held.offset
    stored = every.astype(_DTYPES[form.params.storage.bits])
    reference = _evaluated(root, _in_f64(root.traced.scalar), stored, env)
    real = _real(root, _in_f64(root.traced.source), stored, env)
    if reference is None or real is None:
        return None
    less = held.result_offset
    target = Tabulated(real - less, reference - less, params.quant_min - less, params.quant_max - less)
    occurring = (every >= form.low) & (every <= form.high)
    empty = Points(held.offset, less, 16 - held.storage.bits, (), 0)
    found = find_points(empty, target, occurring)
    hint, most = "quantize the input to 8 bits", ((POINTS - 1) << MOST_FINER) + 1
    if found is None:
        return Refusal(f"a line of a table of {most} points is steeper than i16 holds", hint)
    points, steps = found
    if steps > 1:
        return Refusal(
            f"a table of {points.entries} points is up to {steps} steps of the result from the function", hint
        )
    return _Table(points.tables[0][0], steps, _functions(root), points=points)


def _functions(root: Root) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.op for n in nodes(root.traced.scalar) if n.op in LIBRARY))


def _with_input(scalar: Scalar, held: Array) -> Scalar:
    """An expression with the stored integers in place of its input."""

    def replace(leaf: Scalar) -> Scalar:
        return Scalar("const", leaf.type, payload=held) if leaf.op == "stored" else leaf

    return rebuilt(scalar, replace)


def _evaluated(root: Root, scalar: Scalar, held: Array, env: Environment) -> Array | None:
    """The stored result for each stored input, as int64; NaN gives the lower bound."""
    real = env.reader.evaluate(_with_input(scalar, held).args[0], held.shape)
    if real is None:
        return None
    params = root.node.params
    whole = np.where(np.isnan(real), params.quant_min, np.broadcast_to(real, held.shape).astype(np.float64))
    return np.clip(whole, params.quant_min, params.quant_max).astype(np.int64)


def _real(root: Root, scalar: Scalar, held: Array, env: Environment) -> Array | None:
    """The result in steps, with its zero point, before it is rounded; NaN gives the lower bound."""
    params = root.node.params
    real = env.reader.evaluate(_with_input(scalar, held), held.shape)
    if real is None or params.scale.scalar is None or params.zero_point.scalar is None:
        return None
    steps = np.broadcast_to(real, held.shape).astype(np.float64) / params.scale.scalar + params.zero_point.scalar
    return np.clip(np.where(np.isnan(steps), params.quant_min, steps), -(2.0**20), 2.0**20)


def _in_f64(scalar: Scalar) -> Scalar:
    """The same expression with every float in f64."""
    floats = ("f16", "bf16", "f32")
    known: dict[int, Scalar] = {}
    for node in nodes(scalar):
        args = tuple(known[id(a)] for a in node.args)
        if node.op in ("extf", "truncf"):
            known[id(node)] = args[0]
        elif node.op == "const" and node.type in floats:
            known[id(node)] = Scalar("const", "f64", payload=np.float64(node.payload))
        else:
            type_ = "f64" if node.type in floats else node.type
            known[id(node)] = Scalar(node.op, type_, args, node.payload) if node.args else node
    return known[id(scalar)]


def _facts(root: Root, table: _Table) -> dict[str, object]:
    shown: dict[str, object] = {**facts(root), "entries": table.entries}
    if table.functions:
        shown["reason"] = f"{', '.join(table.functions)}: the nearest number here, the target's library may differ"
    return shown
