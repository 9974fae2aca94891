"""Tensors of static shape in another shape, as `tensor.collapse_shape` and `tensor.expand_shape`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from qfuse._builder import Builder
from qfuse._mlir import Value

_Runs = list[tuple[list[int], list[int]]]


def reshape(builder: Builder, value: Value, extents: Sequence[int]) -> Value:
    """`value` with its row-major elements in the shape `extents`: itself, or merged and split."""
    own = [n or 0 for n in builder.bindings.extents(value.type)]
    runs = _runs(own, list(extents))
    merged = [prod([own[i] for i in sources]) for sources, _ in runs]
    if len(merged) != len(own):
        value = _regrouped(builder, "tensor.collapse_shape", value, merged, [s for s, _ in runs])
    if len(merged) != len(extents):
        value = _regrouped(builder, "tensor.expand_shape", value, extents, [r for _, r in runs])
    return value


def _runs(own: Sequence[int], wanted: Sequence[int]) -> _Runs:
    """Dimensions of both shapes that hold the same elements, as few together as possible; none is left out."""
    runs: _Runs = []
    i = j = 0
    while i < len(own) and j < len(wanted):
        sources, results = [i], [j]
        i, j = i + 1, j + 1
        while (a := prod([own[s] for s in sources])) != (b := prod([wanted[r] for r in results])):
            if a < b:
                sources.append(i)
                i += 1
            else:
                results.append(j)
                j += 1
        runs.append((sources, results))
    runs[-1][0].extend(range(i, len(own)))
    runs[-1][1].extend(range(j, len(wanted)))
    return runs


def _regrouped(
    builder: Builder, name: str, value: Value, extents: Sequence[int], groups: Sequence[Sequence[int]]
) -> Value:
    element = builder.bindings.element_name(value.type)
    attributes = {"reassociation": builder.attribute(str([list(g) for g in groups]))}
    if name == "tensor.expand_shape":
        attributes["static_output_shape"] = builder.attribute(f"array<i64: {', '.join(map(str, extents))}>")
    return builder.create(name, [builder.tensor(tuple(extents), element)], [value], attributes).results[0]
