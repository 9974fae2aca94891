"""Kernels that take nearly every quantized contraction and convolution of signed bytes, described, and in numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import qfuse
from qfuse import KernelCall, KernelFusion, KernelValue
from qfuse.fixed_point import Multiplier, apply
from tests.strategies import Array

V = KernelValue
_CLAMP = (V("result_zero_point"), V("result_min"), V("result_max"))


def registry(scaling: str, folded: bool) -> qfuse.FusionRegistry:
    """Everything installed, and kernels whose requantize rounds like that, with the zero point folded or not."""
    bias, name = "folded_bias" if folded else "bias", scaling.replace("-", "_")

    def channels(letters: str) -> tuple[KernelValue, ...]:
        zeros = (V("lhs_zero_point"), V("rhs_zero_point"))
        return (V(bias, letters, "i32"), V("multiplier", letters, "i32"), V("shift", letters, "i8"), *zeros, *_CLAMP)

    window = (V("strides"), V("dilations"), V("padding"))
    kind = "folded" if folded else "plain"
    matmul = KernelCall(
        f"matmul_{name}_{kind}", (V("lhs", "bmk"), V("rhs", "bnk"), *channels("bn")), "bmn",
    )  # fmt: skip
    convolutions = [
        KernelFusion(
            id=f"test.conv-{letters}",
            computes="convolution",
            scaling=scaling,
            call=KernelCall(
                f"conv_{letters}_{name}_{kind}",
                (V("lhs", f"gn{letters}c"), V("rhs", f"go{letters}c"), *channels("go"), *window),
                f"gn{letters}o",
            ),
        )
        for letters in ("w", "hw")
    ]
    fusions = [KernelFusion(id="test.matmul", scaling=scaling, call=matmul), *convolutions]
    return qfuse.FusionRegistry.discover().with_(*fusions, owner="tests")


def run(name: str, operands: list[Any]) -> Array:
    """A call of one of these kernels."""
    what, *rest = name.split("_")
    kind, scaling = rest[-1], "-".join(rest[:-1] if what == "matmul" else rest[1:-1])
    lhs, rhs, bias, multiplier, shift, lhs_zero, rhs_zero, zero, low, high, *window, out = operands
    a, b = lhs.astype(np.int64), rhs.astype(np.int64) - int(rhs_zero)
    if kind == "plain":
        a = a - int(lhs_zero)
    if what == "matmul":
        sums = np.einsum("bmk,bnk->bmn", a, b)
        per_channel = (slice(None), None)
    else:
        sums = _convolved(a, b, list(map(int, window)), out.shape, 0 if kind == "plain" else int(lhs_zero))
        per_channel = (slice(None), None, *[None] * (sums.ndim - 3))
    scale = Multiplier(multiplier[per_channel].astype(np.int64), shift[per_channel].astype(np.int64))
    scaled = apply(sums + bias[per_channel].astype(np.int64), scale, scaling)
    return np.clip(scaled + int(zero), int(low), int(high)).astype(np.int8)


def _convolved(a: Array, b: Array, numbers: list[int], shape: tuple[int, ...], fill: int) -> Array:
    """Groups, batches, positions, channels."""
    n = len(numbers) // 4
    strides, dilations, pads = numbers[:n], numbers[n : 2 * n], numbers[2 * n :]
    around = [(0, 0), (0, 0), *zip(pads[::2], pads[1::2], strict=True), (0, 0)]
    padded = np.pad(a, around, constant_values=fill)
    sums = np.zeros(shape, np.int64)
    for place in itertools.product(*(range(size) for size in b.shape[2:-1])):
        window = tuple(
            slice(at * by, at * by + (count - 1) * step + 1, step)
            for at, by, count, step in zip(place, dilations, shape[2:-1], strides, strict=True)
        )
        read = padded[(slice(None), slice(None), *window)]
        weights = b[(slice(None), slice(None), *place)]
        sums += np.einsum("gn...c,goc->gn...o", read, weights)
    return sums
