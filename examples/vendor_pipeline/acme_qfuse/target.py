"""The target: what may become integer on Acme's machine."""

from __future__ import annotations

import qfuse


def load() -> qfuse.Target:
    """s8, no zero point on weights, i32 accumulators, fixed-point epilogues."""
    return qfuse.Target(
        "acme",
        doc="Acme: s8, symmetric weights a channel, i32 accumulators, fixed-point epilogues",
        storage=frozenset({"s8"}),
        granularities={"lhs": frozenset({"per-tensor"}), "rhs": frozenset({"per-tensor", "per-axis"})},
        asymmetric=frozenset({"lhs"}),
        accumulators=(32,),
        split_reduction=False,
        epilogue="fixed-point",
    )
