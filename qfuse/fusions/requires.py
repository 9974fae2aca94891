"""What planned operations ask of a machine: kinds, sizes, layouts and clamps, for a target to compare.

Loops are told apart by which operands read them. Of a contraction:

    in lhs and rhs, summed over: K      in both, kept: B      in lhs only: M      in rhs only: N

of a convolution, whose first operand is read at sums of an output position and a position in the window:

    summed in the window: R    position of the output: P    summed elsewhere: C    both, kept: G    weight only: O
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

import numpy as np

from qfuse.emit.spec import PlannedContraction
from qfuse.errors import UsageError
from qfuse.graph import AccumForm, Decision, Environment, Existing, Folded, Moved, QValue, Refusal, Step, StoredForm
from qfuse.indexing import Extents, Index, as_dim, dims_of_index
from qfuse.matchers.contraction import loop_extent
from qfuse.matchers.nodes import Contraction, Convolution, Quantize, Reduction
from qfuse.qparams import Param, QuantParams
from qfuse.requirements import Operand, Requirements

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


class LoopRoles:
    """What each loop of a contraction or convolution is for; letters as in the head of this file."""

    def __init__(self, node: Contraction) -> None:
        self._node = node
        lhs, rhs = dims_of_index(node.lhs_index), dims_of_index(node.rhs_index)
        reduction = set(node.reduction)
        window = isinstance(node, Convolution)
        slid = self._slid(reduction, rhs) if window else set[int]()
        letters = "CGNO" if window else "KBMN"
        self.of: dict[int, str] = {}
        for loop in range(len(node.extents)):
            if loop in slid:
                self.of[loop] = "R" if loop in reduction else "P"
            elif loop in reduction:
                self.of[loop] = letters[0]
            else:
                both, left = loop in lhs and loop in rhs, loop in lhs
                self.of[loop] = letters[1] if both else letters[2] if left else letters[3]

    def _slid(self, reduction: set[int], rhs: frozenset[int]) -> set[int]:
        """Output and window positions: what is read in sums, unless the weight varies with the output's (groups do)."""
        sums = [dims_of_index((e,)) for e in self._node.lhs_index if as_dim(e) is None]
        return {d for dims in sums if not (dims - reduction) & rhs for d in dims}

    def loops(self, letter: str) -> tuple[int, ...]:
        """Loops of one letter, in order."""
        return tuple(loop for loop, found in self.of.items() if found == letter)

    def extent(self, *letters: str) -> int | None:
        """Product of the extents of all loops of these letters, None when one is dynamic."""
        return loop_extent(self._node.extents, tuple(d for letter in letters for d in self.loops(letter)))

    def greatest(self, letter: str) -> int | None:
        """Greatest extent of the loops of a letter."""
        found = [self._node.extents[d] for d in self.loops(letter)]
        return None if None in found else max((n or 0 for n in found), default=1)

    @cached_property
    def kind(self) -> str:
        """`contraction`, `convolution` or `depthwise`: one with groups of one input channel."""
        if not isinstance(self._node, Convolution):
            return "contraction"
        grouped = self.extent("G") != 1 and bool(self.loops("G"))
        return "depthwise" if grouped and self.extent("C") == 1 else "convolution"

    def layout(self, index: Index, weight: bool = False) -> str:
        """A letter for each dimension of an operand that is read at `index`; loops that never move are left out."""
        convolution = isinstance(self._node, Convolution)
        found: list[str] = []
        for expr in index:
            loops = [d for d in sorted(dims_of_index((expr,))) if d in self.of]
            names = {self.of[d] for d in loops}
            if names & {"P", "R"}:
                letter = "P"
            elif not names:
                continue
            else:
                letter = "C" if "C" in names else self.of[loops[0]]
                if convolution:
                    letter = {"C": "I" if weight else "C", "O": "O" if weight else "C"}.get(letter, letter)
            if not found or letter == "P" or found[-1] != letter:
                found.append(letter)
        spatial = iter(_SPATIAL.get(found.count("P"), "P" * found.count("P")))
        return "".join(next(spatial) if letter == "P" else letter for letter in found)

    @property
    def sizes(self) -> Mapping[str, int | None]:
        """Extents by the names that targets use."""
        if not isinstance(self._node, Convolution):
            return {letter: self.extent(letter) for letter in "BMNK"}
        stride, dilation = self._steps()
        return {
            "batch": self.extent("N"),
            "groups": self.extent("G"),
            "in_channels": self.extent("C"),
            "out_channels": self.extent("O"),
            "reduction": self.extent("C", "R"),
            "spatial": self.greatest("P"),
            "window": self.greatest("R"),
            "stride": stride,
            "dilation": dilation,
        }

    def _steps(self) -> tuple[int, int]:
        """Greatest factors of output positions and of window positions."""
        found = {"P": 1, "R": 1}
        for expr in self._node.lhs_index:
            for atom, factor in expr.terms:
                letter = self.of.get(atom.position, "") if atom.kind == "d" else ""
                if as_dim(expr) is None and letter in found:
                    found[letter] = max(found[letter], abs(factor))
        return found["P"], found["R"]


def kind_of(node: Contraction | Reduction) -> str:
    """The kind of operation of a contraction, convolution or reduction."""
    if isinstance(node, Contraction):
        return LoopRoles(node).kind
    return "sum" if node.kind in ("sum", "mean", "bilinear") else "maximum"


def allowed(decision: Decision, env: Environment) -> Decision | Refusal | None:
    """A decision, or why the target does not allow it; None for one that is not missed where it is not made."""
    fusion = decision.fusion
    reason = env.target.refuses_fusion(fusion.id) if fusion.listed or fusion.id in env.target.forbidden else None
    if reason is not None:
        return None if decision.on_demand else Refusal(reason, f"let the target use {fusion.id}")
    for needs in requirements_of(decision, env) if env.target.is_limited else ():
        reason = env.target.refuses(needs)
        if reason is not None and not isinstance(cast("object", reason), str):
            raise UsageError(f"refuses of target {env.target.name} returned {reason!r}, not a reason or None")
        if reason is not None:
            return Refusal(reason, "use another target, or what this one takes")
    return decision


def requirements_of(decision: Decision, env: Environment) -> tuple[Requirements, ...]:
    """What a decision asks of the machine: what it says itself, else what follows from its node."""
    node = decision.node
    if decision.requires or not isinstance(node, Contraction | Reduction | Quantize):
        return decision.requires
    if isinstance(node, Contraction):
        return () if node.integer else (_of_contraction(node, decision, env),)
    if isinstance(node, Reduction):
        return (_of_reduction(node, env),)
    planned = [d.node for d in decision.needs if isinstance(d, Decision)]
    return tuple(of_result(n, node.params) for n in planned if isinstance(n, Contraction | Reduction))


def _of_contraction(node: Contraction, decision: Decision, env: Environment) -> Requirements:
    roles = LoopRoles(node)
    planned = decision.payload if isinstance(decision.payload, PlannedContraction) else None
    names = ("lhs", "rhs") if roles.kind == "contraction" else ("input", "weight")
    operands: list[Operand] = []
    for position, (name, value) in enumerate(zip(names, (node.lhs, node.rhs), strict=True)):
        form = env.form(value)
        if not isinstance(form, StoredForm):
            continue
        index = (node.lhs_index, node.rhs_index)[position]
        if planned is not None:
            index = (planned.lhs, planned.rhs)[position].index
        constant = is_constant(form.q, env)
        operands.append(Operand(name, form.params, constant, roles.layout(index, weight=position == 1)))
    return Requirements(roles.kind, tuple(operands), sizes=roles.sizes)


def _of_reduction(node: Reduction, env: Environment) -> Requirements:
    form = env.form(node.operand)
    operands = (of_stored(form, env),) if isinstance(form, StoredForm) else ()
    return Requirements(kind_of(node), operands, sizes=_sizes_of(node))


def of_poolings(form: AccumForm, params: QuantParams) -> tuple[Requirements, ...]:
    """What the poolings of a form need that is quantized with these parameters."""
    return tuple(
        Requirements("maximum", (Operand("input", params),), sizes=_sizes_of(move.node)) for move in form.poolings
    )


def _sizes_of(node: Reduction) -> dict[str, int | None]:
    kept = tuple(d for d in range(len(node.extents)) if d not in node.reduction)
    return {
        "elements": loop_extent(node.extents, kept),
        "inner": node.extents[kept[-1]] if kept else 1,
        "reduction": loop_extent(node.extents, node.reduction),
    }


def of_stored(form: StoredForm, env: Environment, role: str = "input") -> Operand:
    """An operand that is read as stored integers."""
    return Operand(role, form.params, is_constant(form.q, env))


def is_constant(q: QValue, env: Environment) -> bool:
    """Whether the values of an integer tensor are known now."""
    if isinstance(q, Moved):
        return all(is_constant(inner, env) for inner, _ in q.inputs) and not isinstance(q.fill, Param)
    if isinstance(q, Existing):
        return env.reader.constants.read(q.value) is not None
    return isinstance(q, Folded)


def of_elements(extents: Extents) -> dict[str, int | None]:
    """Sizes of an operation on every element of a tensor."""
    return {"elements": loop_extent(extents, tuple(range(len(extents)))), "inner": extents[-1] if extents else 1}


def of_result(
    node: Contraction | Reduction, params: QuantParams, epilogue: str | None = None, scaling: str | None = None,
    clamp: str | None = None,
) -> Requirements:  # fmt: skip
    """What turning the accumulators of a contraction or sum into stored integers needs."""
    layout = LoopRoles(node).layout(node.out_index) if isinstance(node, Contraction) else None
    result = Operand("result", params, layout=layout)
    return Requirements(kind_of(node), (result,), epilogue, scaling, clamp)


def of_rescaled(
    kind: str, forms: Sequence[StoredForm], node: Quantize, env: Environment, operations: tuple[str, ...] = ()
) -> Requirements:
    """What an operation from stored integers to stored integers needs."""
    operands = (*(of_stored(form, env) for form in forms), Operand("result", node.params))
    return Requirements(
        kind, operands, env.options.epilogue, scaling_of(env), clamp_of((), node.params, env), operations,
        of_elements(node.params.extents),
    )  # fmt: skip


def scaling_of(env: Environment) -> str | None:
    """How an epilogue in integers rounds; None for one in float."""
    return None if env.options.epilogue == "float" else env.options.scaling


def of_requantize(form: AccumForm, params: QuantParams, env: Environment) -> Requirements:
    """What a quantize of accumulators needs; `params` are those of its result."""
    node = form.decision.node
    assert isinstance(node, Contraction | Reduction), "accumulators are those of a sum"
    return of_result(node, params, env.options.epilogue, scaling_of(env), clamp_of(form.steps, params, env))


def clamp_of(steps: Sequence[Step], params: QuantParams, env: Environment) -> str:
    """What a result is clamped to: `storage`, `relu` or `range`.

    Clamps of the real value are clamps of the stored integer at  round(bound / scale) + zero point  as long as nothing
    is computed behind them.
    """
    low, high = params.quant_min, params.quant_max
    zero = params.zero_point.scalar
    clamped = False
    for step in steps:
        if step.kind not in ("max", "min"):
            if clamped:
                return "range"
            continue
        clamped = True
        bound = _stored_bound(step, params, env)
        if bound is None:
            return "range"
        low, high = (max(low, bound), high) if step.kind == "max" else (low, min(high, bound))
    storage = params.storage
    if high < storage.max:
        return "range"
    if low <= storage.min:
        return "storage"
    return "relu" if zero is not None and low == zero else "range"


def _stored_bound(step: Step, params: QuantParams, env: Environment) -> int | None:
    operand, zero, scale = step.operand, params.zero_point.scalar, params.scale.scalar
    if operand is None or zero is None:
        return None
    number = operand.number
    if number is None and operand.value is not None:
        array = env.reader.constants.read(operand.value)
        if array is not None and array.size and bool((array == array.flat[0]).all()):
            number = float(array.flat[0])
    if number == 0.0:
        return int(zero)
    if number is None or scale is None or np.isnan(number):
        return None
    return int(np.clip(np.rint(number / scale) + zero, params.storage.min, params.storage.max))
