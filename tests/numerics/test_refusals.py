"""What is not fused: the reason is exact and the module's text is the same as before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qfuse
from tests.numerics.harness import GENERIC, IREE_CPU, NAMED, Batch, Case, Variant, assert_interpreted
from tests.strategies import Function, Grid, Value

X = Grid(scale=0.02, zero=-7)
W = Grid(scale=0.01)
OUT = Grid(scale=0.05)
M, K, N = 4, 12, 6
K_SCALES = Grid(axes=(1,), scale=0.01 + 0.001 * np.arange(K))
K_ZEROS = Grid(axes=(1,), scale=np.full(K, 0.01), zero=np.arange(K))


def linear(name: str, x: Grid | None, w: Grid | None, shape: tuple[int, int, int] = (M, K, N)) -> Case:
    """`[m, k]` by the transpose of `[n, k]`; float tensors where there is no grid."""
    f = Function(name)
    m, k, n = shape

    def operand(grid: Grid | None, rows: int, constant: bool) -> Value:
        if grid is not None:
            return f.dequantize((f.weight if constant else f.argument)((rows, k), grid))
        values = lambda rng: rng.normal(size=(rows, k))  # noqa: E731
        return f.float_constant(values(f.rng)) if constant else f.float_argument((rows, k), values)

    y = f.matmul(operand(x, m, False), f.transpose(operand(w, n, True), (1, 0)))
    return Case(f.results(f.quantize(y, OUT)))


def two_blocked_loops() -> Case:
    """Groups along two reduction loops."""
    f = Function("two_blocked_loops")
    a = f.dequantize(f.argument((M, 4, 6), Grid(axes=(0, 1), group=2, scale=np.full((M, 2), 0.1) + np.arange(2) / 9)))
    b = f.dequantize(f.argument((4, 6, N), Grid(axes=(2, 1), group=3, scale=np.full((N, 2), 0.1) + np.arange(2) / 9)))
    return Case(f.results(f.contract(a, b, "mkl,kln->mn", "generic")))


def copied_along_k(side: str) -> Case:
    """An operand that is the same for all of the reduction; the other has a zero point."""
    f = Function(f"copied_along_k_{side}")
    copied = f.dequantize(f.argument((M,), X))
    if side == "lhs":
        a, b = f.broadcast(copied, (M, K), (0,)), f.dequantize(f.argument((K, N), X))
    else:
        a, b = f.dequantize(f.argument((N, K), X)), f.broadcast(copied, (K, M), (1,))
    return Case(f.results(f.quantize(f.matmul(a, b), OUT)))


def other_sign(read: Grid, written: Grid) -> Case:
    """Integers written with one signedness and read with the other."""
    f = Function("other_sign")
    q = f.quantize(f.float_argument((M, K), lambda rng: rng.normal(size=(M, K))), written)
    return Case(f.results(f.matmul(f.dequantize(q, grid=read), f.dequantize(f.weight((K, N), W)))))


VARIES = "quantize along another dimension, or in groups"
BOTH = "quantize both operands (weight-only quantization stays in float)"
REFUSED: list[tuple[Case, str, str]] = [
    (linear("k_scales_lhs", K_SCALES, W), "the scale of lhs varies along the reduction without blocks", VARIES),
    (linear("k_scales_rhs", X, K_SCALES), "the scale of rhs varies along the reduction without blocks", VARIES),
    (linear("k_zeros_lhs", K_ZEROS, W), "the zero point of lhs varies along the reduction without blocks", VARIES),
    (linear("weight_only", None, W), "operand 0 (lhs) is not dequantized", BOTH),
    (linear("activation_only", X, None), "operand 1 (rhs) is not dequantized", BOTH),
    (two_blocked_loops(), "parameters vary in blocks along two reduction loops", ""),
    (copied_along_k("lhs"), "a reduction loop is not read by both operands", ""),
    (copied_along_k("rhs"), "a reduction loop is not read by both operands", ""),
]


# What is rewritten besides contractions is not the subject here.
ONLY = {"disable": "qfuse.respell-quantize"}
VARIANTS = (GENERIC, *(replace(v, options={**v.options, **ONLY}) for v in (NAMED, IREE_CPU)))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize(("case", "reason", "hint"), REFUSED, ids=[c.name for c, _, _ in REFUSED])
def test_no_fuse(case: Case, reason: str, hint: str, variant: Variant) -> None:
    """The contraction is left in float with its reason, nothing is applied, the text is unchanged."""
    fused = Batch([case], variant).fused(case.name)
    assert [(e["reason"], e["hint"]) for e in fused.report.missed] == [(reason, hint)]
    assert fused.report.applied == []
    assert fused.report.summary["integer_ops"] == 0
    assert fused.after == fused.before


def test_no_fuse_when_the_signs_contradict() -> None:
    """u8 values above 127, read as signed, mean something else; refused where they are read."""
    case = other_sign(Grid(scale=0.02), Grid(signed=False, scale=0.02))
    fused = Batch([case], GENERIC).fused("other_sign")
    assert [e["reason"] for e in fused.report.missed] == [
        "storage is written as u8 [0, 255] and read as s8",
        "operand 0 (lhs) is not dequantized",
    ]
    assert fused.after == fused.before


def test_signs_that_agree_on_the_values_fuse() -> None:
    """u8 clamped to [0, 127] reads the same signed."""
    batch = Batch([other_sign(Grid(scale=0.02), Grid(signed=False, scale=0.02, high=127))], GENERIC)
    fused = batch.fused("other_sign")
    assert fused.report.missed == []
    assert fused.report.summary["integer_ops"] == 1
    assert_interpreted(batch, "other_sign")


TARGETS: list[tuple[qfuse.Target, Case, str]] = [
    (
        qfuse.Target("signed", storage=frozenset({"s8"})),
        linear("unsigned", Grid(signed=False, scale=0.02, zero=3), W),
        "target signed takes storage s8, lhs is u8 (field storage)",
    ),
    (
        qfuse.Target("plain", granularities={"lhs": frozenset({"per-tensor"})}),
        linear("token", Grid(axes=(0,), scale=0.01 + 0.01 * np.arange(M)), W),
        "target plain takes per-tensor for lhs, it is per-axis(0) (field granularities.lhs)",
    ),
    (
        qfuse.Target("symmetric", asymmetric=frozenset({"lhs"})),
        linear("zero_rhs", X, Grid(scale=0.01, zero=5)),
        "target symmetric takes no zero point on rhs (field asymmetric)",
    ),
]


@pytest.mark.parametrize(("target", "case", "reason"), TARGETS, ids=[t.name for t, _, _ in TARGETS])
def test_no_fuse_when_the_target_does_not_take_it(target: qfuse.Target, case: Case, reason: str) -> None:
    """A target's restrictions are reasons too."""
    fused = Batch([case], Variant(target.name, target)).fused(case.name)
    assert [e["reason"] for e in fused.report.missed] == [reason]
    assert fused.report.applied == []
    assert fused.after == fused.before


def zero_point_first() -> Case:
    """quantized_decomposed's per-token quantize adds the zero point before it rounds."""
    f = Function("zero_point_first")
    y = f.matmul(f.dequantize(f.argument((M, K), X)), f.dequantize(f.weight((K, N), W)))
    q = f.quantize(y, Grid(scale=0.05, zero=3))
    text = "\n".join(f.lines)
    divided, rounded, added = (
        next(i for i, line in enumerate(f.lines) if op in line) for op in ("arith.divf", "math.roundeven", "arith.addf")
    )
    assert divided < rounded < added, text
    quotient = f.lines[divided].split("=")[0].strip()
    offset = f.lines[added].rsplit(",", 1)[1].split(":")[0].strip()
    last = f.lines[added].split("=")[0].strip()
    first = f.lines[rounded].split("=")[0].strip()
    f.lines[rounded] = f"      {first} = arith.addf {quotient}, {offset} : f32"
    f.lines[added] = f"      {last} = math.roundeven {first} : f32"
    return Case(f.results(q))


def test_no_requantize_when_the_zero_point_is_added_before_rounding() -> None:
    """Ties then round to the other neighbour: the quantize stays in float, the contraction is integer."""
    case = zero_point_first()
    batch = Batch([case], GENERIC)
    fused = batch.fused(case.name)
    assert [e["reason"] for e in fused.report.missed] == [
        "the zero point is added before rounding, which a requantize does not do"
    ]
    assert [e["fusion"] for e in fused.report.applied] == ["qfuse.contraction"]


def function_between() -> Case:
    """A float function between two contractions, whose quantize is read by the second."""
    f = Function("function_between")
    y = f.matmul(f.dequantize(f.argument((M, K), X)), f.dequantize(f.weight((K, N), W)))
    x = f.exp_like(y)
    # x * x + x would join the epilogue: exp(x * x) does not
    (place,) = (i for i, line in enumerate(f.lines) if "arith.addf" in line)
    added = f.lines[place]
    f.lines[place] = f"{added.split('=')[0]}= math.exp {added.split('arith.addf')[1].split(',')[0].strip()} : f32"
    q = f.quantize(x, OUT)
    return Case(f.results(f.matmul(f.dequantize(q), f.dequantize(f.weight((N, M), W)))))


@pytest.mark.parametrize("rounding", ["roundeven", "magic"])
def test_a_respelled_quantize_does_not_hide_what_it_reads(rounding: str) -> None:
    """Written anew or not, the function before the quantize is float, and the report says so."""
    case = function_between()
    variant = replace(GENERIC, name=f"linalg-{rounding}", options={**GENERIC.options, "rounding": rounding})
    report = Batch([case], variant).fused(case.name).report
    respelled = [e for e in report.applied if e["fusion"] == "qfuse.respell-quantize"]
    assert len(respelled) == (rounding == "magic")
    assert len(report.missed) == report.summary["float_ops_left"] == 1
    assert report.missed[0]["reason"].endswith("on accumulators")


def parts(name: str, *offsets: int) -> Case:
    """Columns of one contraction, from each of these offsets on, quantized one by one."""
    f = Function(name)
    y = f.matmul(f.dequantize(f.argument((M, K), X)), f.dequantize(f.weight((K, N), W)))
    sliced = [f.slice(y, (0, o), (M, 2), (1, 1)) for o in offsets]
    return Case(f.results(*(f.quantize(s, replace(OUT, zero=o)) for o, s in zip(offsets, sliced, strict=True))))


def test_parts_of_accumulators() -> None:
    """Columns from the first on are read no differently from others: not as if they were all."""
    case = parts("parts", 0, 2, 4)
    variant = replace(GENERIC, name="fixed-parts", options={**GENERIC.options, "epilogue": "fixed-point"})
    batch = Batch([case], variant)
    reasons = [e["reason"] for e in batch.fused(case.name).report.missed if e["op"] == "linalg.generic"]
    places = ("(d0, d1) of a larger tensor", "(d0, 2 + d1)", "(d0, 4 + d1)")
    assert reasons == [
        f"an operand of the elementwise operation is read at {place}, which is not a list of dimensions"
        for place in places
    ]
    assert_interpreted(batch, case.name)
