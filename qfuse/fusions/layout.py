"""Layout operations move to the integer side of a dequantize, or behind an epilogue.

    layout(dequantize(q, params))  ->  dequantize(layout(q), moved params)

Nothing is built unless a consumer asks for the moved integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qfuse.fusions.base import Fusion
from qfuse.graph import AccumForm, Decision, Environment, Moved, QValue, Refusal, StoredForm
from qfuse.indexing import Extents, Index, as_dim, compose, dims_of_index, identity
from qfuse.matchers.layout import Layout, is_projection
from qfuse.matchers.nodes import LayoutNode, Node
from qfuse.qparams import Param


class MoveLayout(Fusion):
    """transpose, reshape, cast, broadcast, slice, pad, concat of equal parameters, gather."""

    id = "qfuse.layout"
    nodes = (LayoutNode,)
    exactness = ("bit-exact",)
    doc = "layout operations on dequantized values are done on the integers instead"
    listed = False

    def match(self, node: Node) -> bool:
        """Layout nodes."""
        return isinstance(node, LayoutNode)

    def check(self, node: Node, env: Environment) -> Decision | Refusal | None:
        """Refuses moves under which the parameters cannot follow."""
        assert isinstance(node, LayoutNode)
        layout = node.layout
        forms = [env.form(s) for s in layout.sources]
        if all(f is None for f in forms):
            return None
        first = forms[0]
        if isinstance(first, AccumForm):
            return self._behind(node, first, env) if len(forms) == 1 else None
        stored = [f for f in forms if isinstance(f, StoredForm)]
        if len(stored) != len(forms):
            return Refusal("not every input of the layout operation is dequantized", "quantize all of them")
        moved = _stored(node, layout, stored, env)
        if not isinstance(moved, StoredForm):
            return moved
        return Decision(self, node, "bit-exact", form=moved)

    def _behind(self, node: LayoutNode, form: AccumForm, env: Environment) -> Decision | None:
        layout = node.layout
        if not _follows(layout, form, env):
            return None
        extents = env.bindings.extents(node.result.type)
        to_value: Index | None = None
        if form.to_value is not None and layout.inverse is not None:
            to_value = compose(layout.inverse, form.to_value, _accumulator_extents(form, env))
        moved = AccumForm(form.decision, form.steps, (*form.moves, layout), to_value, extents, form.element)
        return Decision(self, node, "bit-exact", form=moved)

    def build(self, decision: Decision, context: object) -> object:
        """Never called: moved integers are made when a consumer needs them."""
        raise AssertionError("layout decisions have nothing to build")


def _follows(layout: Layout, form: AccumForm, env: Environment) -> bool:
    """Whether a layout operation may be done on the integers that an epilogue makes, instead of on its float value.

    Rounding an element commutes with moving it. What drops elements is moved only when nothing else reads the value:
    the epilogue would be computed once for each reader. A pad must be by 0.0, which the zero point stands for.
    """
    if layout.kind in ("transpose", "reshape", "cast", "broadcast", "reverse"):
        return True
    if layout.kind == "pad":
        number = env.reader.constants.scalar(layout.pad_value)
        return number is not None and float(number[0]) == 0.0 and not _pads(form)
    return layout.kind in ("slice", "gather") and len(list(layout.sources[0].uses)) == 1


def _pads(form: AccumForm) -> bool:
    return any(move.kind == "pad" for move in form.moves)


def _accumulator_extents(form: AccumForm, env: Environment) -> tuple[int | None, ...]:
    return env.bindings.extents(form.decision.node.result.type)


def _stored(
    node: LayoutNode, layout: Layout, forms: Sequence[StoredForm], env: Environment
) -> StoredForm | Refusal | None:
    extents = env.bindings.extents(node.result.type)
    first = forms[0]
    low, high = min(f.low for f in forms), max(f.high for f in forms)
    varying = dims_of_index(first.params.scale.index) | dims_of_index(first.params.zero_point.index)
    if layout.kind == "concat":
        return _concat(node, layout, forms, env)
    if layout.kind == "pad":
        return _pad(layout, first, env, extents)
    if layout.index is None:
        if varying:
            return Refusal(
                f"the parameters vary ({first.params.granularity}) and where the layout operation takes its elements"
                " from is not known statically"
            )
        params = first.params.over((), extents)
    else:
        params = first.params.over(layout.index, extents)
        if any(_is_cut(p, extents, env) for p in (params.scale, params.zero_point)):
            return Refusal(
                "the parameters are known only at run time and the layout operation takes the first of their elements",
                "slice before the dequantize",
            )
        if is_projection(layout.index) and layout.kind in ("transpose", "broadcast"):
            return StoredForm(first.q, compose(first.index, layout.index, extents), params, low, high)
    q: QValue = Moved(layout, ((first.q, first.index),), first.params.storage)
    return StoredForm(q, identity(len(extents)), params, low, high)


def _is_cut(param: Param, extents: Extents, env: Environment) -> bool:
    """Whether a run-time parameter would be read along a dimension at fewer places than it has, which no map says."""
    if param.data is not None or param.value is None or not param.index:
        return False
    own = env.bindings.extents(param.value.type)
    read = [None if d is None else extents[d] for d in map(as_dim, param.index)]
    return any(n is not None and has is not None and n < has for n, has in zip(read, own, strict=True))


def _pad(layout: Layout, form: StoredForm, env: Environment, extents: tuple[int | None, ...]) -> StoredForm | Refusal:
    number = env.reader.constants.scalar(layout.pad_value)
    zero = form.params.zero_point
    if number is None:
        return Refusal("the pad value is not a constant", "pad with a constant")
    if dims_of_index(zero.index):
        return Refusal("the zero point varies in a padded tensor", "use one zero point for the tensor")
    fill = zero if zero.scalar is None else int(zero.scalar)
    if float(number[0]) != 0.0:
        on_grid = _on_grid(float(number[0]), form)
        if on_grid is None:
            return Refusal("the pad value is not on the grid of the padded tensor", "pad with 0.0")
        fill = on_grid
    varying = dims_of_index(form.params.scale.index)
    if varying & set(layout.padded) or (layout.index is None and varying):
        return Refusal("the scale varies along a padded dimension")
    params = form.params.over(layout.index or identity(len(extents)), extents)
    q = Moved(layout, ((form.q, form.index),), form.params.storage, fill=fill)
    known = (fill, fill) if isinstance(fill, int) else (form.params.storage.min, form.params.storage.max)
    return StoredForm(q, identity(len(extents)), params, min(form.low, known[0]), max(form.high, known[1]))


def _on_grid(number: float, form: StoredForm) -> int | None:
    """The stored integer that stands for a number exactly, or None."""
    scale, zero = form.params.scale.scalar, form.params.zero_point.scalar
    if scale is None or zero is None or not np.isfinite(number):
        return None
    stored = int(np.rint(number / scale) + zero)
    storage = form.params.storage
    exact = np.float32(stored - int(zero)) * np.float32(scale) == np.float32(number)
    return stored if exact and storage.min <= stored <= storage.max else None


def _concat(node: LayoutNode, layout: Layout, forms: Sequence[StoredForm], env: Environment) -> StoredForm | Refusal:
    extents = env.bindings.extents(node.result.type)
    first = forms[0]
    if any(not first.params.equals(f.params) for f in forms[1:]):
        return Refusal("the concatenated tensors have different quantization parameters")
    if layout.axis in dims_of_index(first.params.scale.index) | dims_of_index(first.params.zero_point.index):
        return Refusal("the parameters vary along the concatenated dimension")
    params = first.params.over(identity(len(extents)), extents)
    q = Moved(layout, tuple((f.q, f.index) for f in forms), first.params.storage)
    low, high = min(f.low for f in forms), max(f.high for f in forms)
    return StoredForm(q, identity(len(extents)), params, low, high)
