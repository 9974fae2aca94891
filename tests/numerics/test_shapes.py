"""Every shape a contraction comes in: spellings, batch dimensions, dynamic extents, extents of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tests.numerics.harness import (
    IREE_CPU,
    NAMED,
    VARIANTS,
    Batch,
    Case,
    Variant,
    assert_fused,
    assert_interpreted,
    assert_numbers,
    parameters,
)
from tests.strategies import Function, Grid, Value

Batches = Callable[[Mapping[str, Case], Variant | None], Batch]

X = Grid(scale=0.021, zero=-7)
W = Grid(scale=0.0125, low=-127)
OUT = Grid(scale=0.06, zero=5)


def rows(extent: int, axis: int, zero: bool = False) -> Grid:
    """A per-axis grid."""
    scale = 0.01 + 0.003 * np.arange(extent)
    return Grid(axes=(axis,), scale=scale, zero=np.arange(extent) % 5 - 2 if zero else np.zeros(extent))


def end(f: Function, y: Value, quantized: bool = True) -> Case:
    """Ends in a quantize or in the float value."""
    return Case(f.results(f.quantize(y, OUT) if quantized else y))


def simple(
    name: str,
    loops: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    spelling: str,
    dynamic: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    grids: tuple[Grid, Grid] = (X, W),
    *,
    constant: bool = False,
    quantized: bool = True,
) -> Case:
    """One contraction of an argument by an argument or a constant."""
    f = Function(name)
    a = f.argument(left, grids[0], dynamic[0])
    b = f.weight(right, grids[1]) if constant else f.argument(right, grids[1], dynamic[1])
    return end(f, f.contract(f.dequantize(a), f.dequantize(b), loops, spelling), quantized)


ASYMMETRIC = Grid(scale=0.017, zero=9)

SPELLINGS = [
    simple("matmul", "mk,kn->mn", (4, 9), (9, 6), "matmul", constant=True),
    simple("matmul_ta", "km,kn->mn", (9, 4), (9, 6), "matmul", grids=(X, ASYMMETRIC)),
    simple("matmul_tb", "mk,nk->mn", (4, 9), (6, 9), "matmul", grids=(X, rows(6, 0, zero=True))),
    simple("matmul_generic", "mk,kn->mn", (4, 9), (9, 6), "generic", quantized=False),
    simple("matmul_out_t", "mk,kn->nm", (4, 9), (9, 6), "generic", grids=(X, rows(6, 1, zero=True))),
    simple("batch_matmul", "bmk,bkn->bmn", (3, 4, 9), (3, 9, 6), "batch_matmul", grids=(X, ASYMMETRIC)),
    simple("batch_matmul_ta", "bkm,bkn->bmn", (3, 9, 4), (3, 9, 6), "batch_matmul"),
    simple("batch_matmul_tb", "bmk,bnk->bmn", (3, 4, 9), (3, 6, 9), "batch_matmul", constant=True),
    simple("contract", "mk,kn->mn", (4, 9), (9, 6), "contract", grids=(X, ASYMMETRIC)),
    simple("contract_batch", "bmk,bnk->bmn", (2, 4, 9), (2, 6, 9), "contract", grids=(X, rows(6, 1, zero=True))),
    simple("contract_swapped", "kn,mk->mn", (9, 6), (4, 9), "contract", grids=(ASYMMETRIC, X)),
    simple("contract_out_t", "mk,kn->nm", (4, 9), (9, 6), "contract", grids=(X, ASYMMETRIC)),
    simple("contract_two_k", "mkl,kln->mn", (4, 3, 5), (3, 5, 6), "contract", grids=(X, ASYMMETRIC), constant=True),
    simple("contract_two_m", "abk,kn->abn", (2, 4, 9), (9, 6), "contract", grids=(X, ASYMMETRIC)),
    simple("contract_4d_3d", "abmk,akn->abmn", (2, 3, 4, 9), (2, 9, 6), "contract", grids=(X, ASYMMETRIC)),
    simple("outer", "mk,nk->mn", (4, 1), (6, 1), "generic", grids=(X, ASYMMETRIC)),
    simple("matvec", "mk,k->m", (4, 9), (9,), "reduce", grids=(X, ASYMMETRIC)),
    simple(
        "matvec_rows", "mk,k->m", (4, 9), (9,), "reduce", grids=(rows(4, 0, zero=True), ASYMMETRIC), quantized=False
    ),
    simple("vecmat", "k,kn->n", (9,), (9, 6), "reduce", grids=(X, rows(6, 1))),
    simple("dot", "k,k->", (9,), (9,), "reduce", grids=(X, ASYMMETRIC)),
    simple("matvec_generic", "mk,k->m", (4, 9), (9,), "generic"),
    simple("dot_generic", "k,k->", (9,), (9,), "generic", grids=(X, ASYMMETRIC), quantized=False),
    simple("matvec_named", "mk,k->m", (4, 9), (9,), "matvec", grids=(rows(4, 0, zero=True), ASYMMETRIC)),
    simple("vecmat_named", "k,kn->n", (9,), (9, 6), "vecmat", grids=(X, rows(6, 1, zero=True)), constant=True),
    simple("dot_named", "k,k->", (9,), (9,), "dot", grids=(X, ASYMMETRIC)),
    simple("matmul_reduce", "mk,kn->mn", (4, 9), (9, 6), "reduce", grids=(X, ASYMMETRIC)),
]

DYNAMIC = [
    simple("dyn_m", "mk,kn->mn", (4, 9), (9, 6), "matmul", ((0,), ()), constant=True),
    simple("dyn_m_rows", "mk,kn->mn", (4, 9), (9, 6), "matmul", ((0,), ()), (X, rows(6, 1, zero=True)), constant=True),
    simple("dyn_n", "mk,kn->mn", (4, 9), (9, 6), "matmul", ((), (1,)), (X, ASYMMETRIC)),
    simple("dyn_mn", "mk,nk->mn", (4, 9), (6, 9), "matmul", ((0,), (0,)), (X, ASYMMETRIC), quantized=False),
    simple("dyn_b", "bmk,bkn->bmn", (3, 4, 9), (3, 9, 6), "batch_matmul", ((0,), (0,)), (X, ASYMMETRIC)),
    simple("dyn_bmn", "bmk,bkn->bmn", (3, 4, 9), (3, 9, 6), "batch_matmul", ((0, 1), (0, 2)), (X, ASYMMETRIC)),
    simple("dyn_contract", "bmk,bnk->bmn", (3, 4, 9), (3, 6, 9), "contract", ((0, 1), (0, 1)), (X, ASYMMETRIC)),
    simple("dyn_matvec", "mk,k->m", (4, 9), (9,), "reduce", ((0,), ()), (X, ASYMMETRIC)),
]


def ones() -> list[Case]:
    """Extents of one."""
    one = Grid(axes=(0,), scale=np.array([0.03]), zero=np.array([3]))
    return [
        simple("k_is_1", "mk,kn->mn", (4, 1), (1, 6), "matmul", grids=(X, ASYMMETRIC)),
        simple("all_1", "mk,kn->mn", (1, 1), (1, 1), "matmul", grids=(X, ASYMMETRIC), constant=True),
        simple("all_1_rows", "mk,nk->mn", (1, 1), (1, 1), "matmul", grids=(one, one), constant=True),
        simple("all_1_batch", "bmk,bkn->bmn", (1, 1, 1), (1, 1, 1), "batch_matmul", grids=(X, ASYMMETRIC)),
        simple("m_is_1", "mk,kn->mn", (1, 9), (9, 6), "matmul", grids=(one, rows(6, 1, zero=True)), constant=True),
        simple("n_is_1", "mk,kn->mn", (4, 9), (9, 1), "matmul", grids=(X, ASYMMETRIC), constant=True),
        simple("dot_1", "k,k->", (1,), (1,), "reduce", grids=(X, ASYMMETRIC)),
    ]


def linear_3d(dynamic: bool) -> Case:
    """3-D x 2-D: collapse, matmul, bias, expand, quantize."""
    f = Function("linear_3d" + "_dyn" * dynamic)
    x = f.dequantize(f.argument((2, 3, 8), X, (0,) if dynamic else ()))
    w = f.transpose(f.dequantize(f.weight((6, 8), rows(6, 0))), (1, 0))
    y = f.matmul(f.collapse(x, [[0, 1], [2]]), w)
    y = f.binary("add", y, f.float_constant(np.linspace(-2, 2, 6)), [1])
    return end(f, f.expand(y, [[0, 1], [2]], (2, 3, 6), (x.sizes[0], None, None)))


def linear_1d() -> Case:
    """1-D x 2-D: expand to one row, matmul, collapse."""
    f = Function("linear_1d")
    x = f.expand(f.dequantize(f.argument((8,), X)), [[0, 1]], (1, 8))
    w = f.transpose(f.dequantize(f.weight((6, 8), rows(6, 0))), (1, 0))
    return end(f, f.collapse(f.matmul(x, w), [[0, 1]]))


def broadcast_batch(zero: bool, axis: bool) -> Case:
    """4-D x 3-D: copy generic over the missing batch, collapse, batch_matmul, expand (per-axis along the batch too)."""
    f = Function("broadcast_4d_3d" + "_z" * zero + "_axis" * axis)
    right = Grid(axes=(0, 2), scale=0.01 + 0.001 * np.arange(15).reshape(3, 5), zero=np.arange(15).reshape(3, 5) - 7)
    x = f.dequantize(f.argument((2, 3, 4, 8), X))
    w = f.dequantize(f.argument((3, 8, 5), right if axis else ASYMMETRIC if zero else W))
    wide = f.broadcast(w, (2, 3, 8, 5), (1, 2, 3))
    a, b = f.collapse(x, [[0, 1], [2], [3]]), f.collapse(wide, [[0, 1], [2], [3]])
    y = f.contract(a, b, "bmk,bkn->bmn", "batch_matmul")
    return end(f, f.expand(y, [[0, 1], [2], [3]], (2, 3, 4, 5)))


def broadcast_weight() -> Case:
    """A linear on a tensor that is not contiguous: batch_matmul with the weight copied over the batch."""
    f = Function("broadcast_weight")
    x = f.transpose(f.dequantize(f.argument((4, 2, 8), X)), (1, 0, 2))
    w = f.transpose(f.dequantize(f.weight((6, 8), rows(6, 0, zero=True))), (1, 0))
    y = f.contract(x, f.broadcast(w, (2, 8, 6), (1, 2)), "bmk,bkn->bmn", "batch_matmul")
    y = f.binary("add", y, f.float_constant(np.linspace(-2, 2, 6)), [2])
    return end(f, y)


def transposed_behind(quantized: bool) -> Case:
    """A transpose of a result whose extents are all dynamic: the epilogue writes the shape before it."""
    f = Function("dyn_transposed" + "_float" * (not quantized))
    x, w = f.dequantize(f.argument((4, 9), X, (0,))), f.dequantize(f.argument((6, 9), ASYMMETRIC, (0,)))
    y = f.transpose(f.contract(x, w, "mk,nk->mn", "generic"), (1, 0))
    return end(f, y, quantized)


def broadcast_dynamic() -> Case:
    """The weight copied over a dynamic batch."""
    f = Function("broadcast_dynamic")
    x = f.dequantize(f.argument((3, 4, 8), X, (0,)))
    w = f.dequantize(f.weight((8, 6), ASYMMETRIC))
    wide = f.broadcast(w, (3, 8, 6), (1, 2), (x.sizes[0], None, None))
    return end(f, f.contract(x, wide, "bmk,bkn->bmn", "batch_matmul"))


def partly_static(where: str) -> Case:
    """An extent that is static in one place and dynamic in another."""
    f = Function(f"partly_static_{where}")
    x = f.dequantize(f.argument((3, 4, 9), X, (0, 1) if where == "operand" else ()))
    w = f.dequantize(f.weight((3, 6, 9), ASYMMETRIC))
    init = (
        f.float_argument((3, 4, 6), lambda rng: rng.normal(size=(3, 4, 6)), dynamic=(0, 1)) if where == "init" else None
    )
    return end(f, f.contract(x, w, "bmk,bnk->bmn", "generic", init))


CASES = {
    case.name: case
    for case in [
        *SPELLINGS, *DYNAMIC, *ones(), linear_3d(False), linear_3d(True), linear_1d(),
        *(broadcast_batch(z, a) for z, a in ((False, False), (True, False), (True, True))),
        broadcast_weight(), broadcast_dynamic(), partly_static("operand"), partly_static("init"),
        transposed_behind(True), transposed_behind(False),
    ]
}  # fmt: skip

#: The reduction is dynamic: fused only with a bound.
DYNAMIC_K = {
    case.name: case
    for case in [
        simple("dyn_k", "mk,kn->mn", (4, 9), (9, 6), "matmul", ((1,), (0,)), (X, ASYMMETRIC)),
        simple("dyn_k_dot", "k,k->", (9,), (9,), "reduce", ((0,), (0,)), (X, ASYMMETRIC), quantized=False),
        simple(
            "dyn_all", "bmk,bkn->bmn", (2, 4, 9), (2, 9, 6), "batch_matmul", ((0, 1, 2), (0, 1, 2)), (X, ASYMMETRIC)
        ),
    ]
}
BOUNDED = {n: Case(c.function, options={"max_reduction": 4096}) for n, c in DYNAMIC_K.items()}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(CASES))
def test_shape(name: str, variant: Variant, batches: Batches) -> None:
    """It fuses and the numbers hold, interpreted."""
    batch = batches(CASES, variant)
    assert_fused(batch, name)
    assert_interpreted(batch, name)


@pytest.mark.parametrize("variant", [NAMED, IREE_CPU], ids=str)
@pytest.mark.parametrize("name", parameters(CASES))
def test_shape_in_iree(name: str, variant: Variant, batches: Batches) -> None:
    """The same, compiled."""
    assert_numbers(batches(CASES, variant), name)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(BOUNDED))
def test_dynamic_reduction_with_a_bound(name: str, variant: Variant, batches: Batches) -> None:
    """`max_reduction` makes a dynamic reduction safe."""
    batch = batches(BOUNDED, variant)
    assert_fused(batch, name)
    assert_interpreted(batch, name)
    assert_numbers(batch, name)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", parameters(DYNAMIC_K))
def test_no_fuse_when_the_reduction_is_dynamic(name: str, variant: Variant, batches: Batches) -> None:
    """Without a bound it is refused with that reason and the text is unchanged."""
    fused = batches(DYNAMIC_K, variant).fused(name)
    assert [(e["reason"], e["hint"]) for e in fused.report.missed] == [
        ("the reduction size is dynamic and no bound is given", "give one with the option max_reduction")
    ]
    assert fused.report.applied == []
    assert fused.after == fused.before


def test_the_bound_decides_the_accumulator(batches: Batches) -> None:
    """A bound of 4096 products of 8 bits fits i32."""
    for entry in batches(BOUNDED, IREE_CPU).fused("dyn_k").report.applied:
        if entry["fusion"] == "qfuse.contraction":
            assert entry["accumulator"] == "i32"
