"""Windows of sums and means: how many elements each has, and sums of sums as one sum.

sum over w (sum over h x)                 =  sum over h, w  x
mean that leaves out padding at i         =  sum at i / (elements of the window at i)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qfuse.emit.spec import PlannedContraction
from qfuse.graph import Array, Environment, Form, Refusal, Step, StepOperand, StoredForm
from qfuse.indexing import Extents, Linear, as_dim, compose, constant, dim, dims_of, identity, positions
from qfuse.matchers.contraction import loop_extent
from qfuse.matchers.nodes import Reduction
from qfuse.matchers.scalar import Scalar

#: Steps of a sum that commute with a further sum.
_LINEAR = ("mul", "div")


def divided(node: Reduction, element: str, env: Environment) -> Step | Refusal:
    """The division that makes a mean of a sum: by one number, or by the elements of each window."""
    if not any(map(any, node.padding)):
        return Step("div", StepOperand(number=float(loop_extent(node.extents, node.reduction) or 1)))
    counts = _counts(node, env.bindings.extents(node.operand.type))
    if isinstance(counts, Refusal):
        return counts
    varying = [d for d, n in enumerate(counts.shape) if n != 1]
    if not varying:
        return Step("div", StepOperand(number=float(counts.reshape(-1)[0])))
    dims = identity(counts.ndim)
    held = counts.squeeze().astype(np.float64 if element == "f64" else np.float32)
    scalar = Scalar("array", "f64" if element == "f64" else "f32", payload=(held, tuple(dims[d] for d in varying)))
    return Step("div", StepOperand(element=element, scalar=scalar))


def _counts(node: Reduction, operand: Extents) -> Array | Refusal:
    """Elements of each window that are no padding, over the result's dimensions, extent 1 where they do not vary."""
    if None in (*node.extents, *operand):
        return Refusal("the mean leaves out padding and its shape is dynamic, so its divisors are not known")
    loops = [n or 0 for n in node.extents]
    counts = np.ones((1,) * len(loops), np.int64)
    counted: set[int] = set()
    for expr, extent in zip(node.index, operand, strict=True):
        reduced = dims_of(expr) & set(node.reduction)
        if not reduced:
            continue
        if reduced & counted:
            return Refusal("the mean leaves out padding along a diagonal")
        counted |= reduced
        place = np.broadcast_to(
            positions(expr, loops), [loops[d] if d in dims_of(expr) else 1 for d in range(len(loops))]
        )
        inside = (place >= 0) & (place < (extent or 0))
        counts = counts * inside.sum(axis=tuple(reduced), keepdims=True)
    order = [as_dim(e) for e in node.out_index]
    rest = [d for d in range(counts.ndim) if d not in order]
    counts = counts.transpose([*rest, *(d for d in order if d is not None)])
    counts = counts.reshape(counts.shape[len(rest) :])
    for axis in range(counts.ndim):
        first = counts.take([0], axis=axis)
        counts = first if bool((counts == first).all()) else counts
    if not counts.all():
        return Refusal("a window of the mean has no element")
    return counts


def as_one_sum(node: Reduction, form: Form | None) -> tuple[Reduction, StoredForm, tuple[Step, ...]] | None:
    """A sum of stored integers, or of sums of them, as one sum: that, the integers, and factors in between.

    None where the operand is neither, or where something that is not linear stands in between.
    """
    if isinstance(form, StoredForm):
        return node, form, ()
    inner = None if form is None else form.decision.payload
    if form is None or not isinstance(inner, PlannedContraction) or not inner.unit or inner.blocked is not None:
        return None
    before = inner.node
    if (
        not isinstance(before, Reduction)
        or before.kind == "bilinear"
        or any(map(any, before.padding))
        or any(map(any, node.padding))
    ):
        return None
    if any(s.kind not in _LINEAR or s.operand is None or s.operand.number is None for s in form.steps):
        return None
    at = node.index
    for layout in reversed(form.moves):
        if layout.index is None or layout.kind in ("pad", "concat", "gather"):
            return None
        at = compose(layout.index, at, node.extents)
    extents = (*node.extents, *(before.extents[d] for d in before.reduction))
    added = range(len(node.extents), len(extents))
    places: list[Linear] = [constant(0)] * len(before.extents)
    for loop, expr in zip(map(as_dim, before.out_index), at, strict=True):
        places[loop or 0] = expr
    for loop, place in zip(before.reduction, added, strict=True):
        places[loop] = dim(place)
    merged = replace(
        node, operand=before.operand, index=compose(before.index, tuple(places), extents), extents=extents,
        reduction=(*node.reduction, *added), padding=(),
    )  # fmt: skip
    return merged, inner.lhs.form, form.steps
