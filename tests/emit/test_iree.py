"""The target iree-cpu: operands of one signed type, quantizes that round by additions, barriers; compiled and run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.integrations.iree import Program, compile_module
from qfuse.matchers.nodes import Quantize

pytest.importorskip("iree.compiler")
pytest.importorskip("iree.runtime")

Array = np.ndarray[Any, Any]

M, K, N = 16, 32, 16
FLAGS = ("--iree-opt-level=O2", "--iree-opt-data-tiling", "--iree-llvmcpu-target-cpu=host")
LIMITS = {"s8": (-128, 127), "u8": (0, 255), "s16": (-32768, 32767), "u16": (0, 65535), "s4": (-8, 7), "u4": (0, 15)}


def bits(storage: str) -> str:
    """The signless type of a storage type."""
    return "i" + storage[1:]


def elementwise(name: str, inputs: Sequence[tuple[str, str, str]], out: str, body: str, shape: str) -> str:
    """A parallel generic; `inputs` are (value, type, map results), the body reads %in0, %in1, ... and yields %r."""
    maps = ", ".join(f"affine_map<(d0, d1) -> ({places})>" for _, _, places in inputs)
    kinds = [t.removesuffix(">").rsplit("x", 1)[-1].removeprefix("tensor<") for _, t, _ in inputs]
    arguments = ", ".join(f"%in{i}: {kind}" for i, kind in enumerate(kinds))
    return f"""
    %{name}_e = tensor.empty() : tensor<{shape}x{out}>
    %{name} = linalg.generic {{indexing_maps = [{maps}, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}} ins({", ".join(v for v, _, _ in inputs)} :
      {", ".join(t for _, t, _ in inputs)}) outs(%{name}_e : tensor<{shape}x{out}>) {{
    ^bb0({arguments}, %out: {out}):
      {body}
      linalg.yield %r : {out}
    }} -> tensor<{shape}x{out}>"""


def quantize(storage: str, zero: int, scaled: str, shape: str = f"{M}x{K}") -> str:
    """A static quantize of %x to %qa in one generic; `scaled` computes %v from %in0."""
    low, high = LIMITS[storage]
    cast = "fptosi" if storage.startswith("s") else "fptoui"
    body = f"""{scaled}
      %n = math.roundeven %v : f32
      %z = arith.constant {float(zero)} : f32
      %a = arith.addf %n, %z : f32
      %lo = arith.constant {float(low)} : f32
      %b = arith.maximumf %a, %lo : f32
      %hi = arith.constant {float(high)} : f32
      %c = arith.minimumf %b, %hi : f32
      %r = arith.{cast} %c : f32 to {bits(storage)}"""
    return elementwise("qa", [("%x", f"tensor<{shape}xf32>", "d0, d1")], bits(storage), body, shape)


def divided(scale: float, by: str = "divf") -> str:
    """%v as a quotient or as a product."""
    return f"""%s = arith.constant 0x{np.float32(scale).view(np.uint32):08X} : f32
      %v = arith.{by} %in0, %s : f32"""


def chain(storage: str, shape: str, places: str) -> str:
    """A quantize of %x to %qa by run-time %scales and %zeros, each step an operation of its own."""
    low, high = LIMITS[storage]
    small, whole = f"tensor<{shape}x%s>", f"tensor<{M}x{K}xf32>"
    kind, cast = bits(storage), "fptosi" if storage.startswith("s") else "fptoui"
    below = "%p = arith.cmpf ult, %in0, %lo : f32\n%r = arith.select %p, %lo, %in0 : f32"
    above = "%p = arith.cmpf ugt, %in0, %hi : f32\n%r = arith.select %p, %hi, %in0 : f32"
    inverse = "%one = arith.constant 1.0 : f32\n%r = arith.divf %one, %in0 : f32"

    def step(name: str, body: str, *sources: str, out: str = "f32", like: str = f"{M}x{K}") -> str:
        return elementwise(name, [(source, whole, "d0, d1") for source in sources], out, body, like)

    scaled = [("%x", whole, "d0, d1"), ("%inv", small % "f32", places)]
    moved = [("%rnd", whole, "d0, d1"), ("%zeros", small % "i64", places)]
    add = "%f = arith.sitofp %in1 : i64 to f32\n%r = arith.addf %in0, %f : f32"
    return (
        elementwise("inv", [("%scales", small % "f32", "d0, d1")], "f32", inverse, shape)
        + elementwise("mul", scaled, "f32", "%r = arith.mulf %in0, %in1 : f32", f"{M}x{K}")
        + step("rnd", "%r = math.roundeven %in0 : f32", "%mul")
        + elementwise("add", moved, "f32", add, f"{M}x{K}")
        + step("low", f"%lo = arith.constant {float(low)} : f32\n{below}", "%add")
        + step("high", f"%hi = arith.constant {float(high)} : f32\n{above}", "%low")
        + step("qa", f"%r = arith.{cast} %in0 : f32 to {kind}", "%high", out=kind)
    )


def dequantize(
    name: str, source: str, storage: str, shape: str, scale: float, zero: int | tuple[str, str, str] = 0
) -> str:
    """A dequantize; `zero` is a constant, or (value, type, map) of a run-time tensor."""
    extend = "extsi" if storage.startswith("s") else "extui"
    inputs = [(source, f"tensor<{shape}x{bits(storage)}>", "d0, d1")]
    subtract = "%in1"
    head = ""
    if isinstance(zero, tuple):
        inputs.append(zero)
    else:
        head, subtract = f"%z = arith.constant {zero} : i64", "%z"
    body = f"""{head}
      %w = arith.{extend} %in0 : {bits(storage)} to i64
      %d = arith.subi %w, {subtract} : i64
      %f = arith.sitofp %d : i64 to f32
      %s = arith.constant {scale} : f32
      %r = arith.mulf %f, %s : f32"""
    return elementwise(name, inputs, "f32", body, shape)


MATMUL = f"""
    %zero = arith.constant 0.0 : f32
    %y_e = tensor.empty() : tensor<{M}x{N}xf32>
    %y_f = linalg.fill ins(%zero : f32) outs(%y_e : tensor<{M}x{N}xf32>) -> tensor<{M}x{N}xf32>
    %y = linalg.matmul ins(%a, %b : tensor<{M}x{K}xf32>, tensor<{K}x{N}xf32>)
      outs(%y_f : tensor<{M}x{N}xf32>) -> tensor<{M}x{N}xf32>"""


def module(arguments: str, body: str, results: Sequence[tuple[str, str]]) -> str:
    """A module with one function."""
    kinds = ", ".join(t for _, t in results)
    values = ", ".join(v for v, _ in results)
    return f"module {{ func.func @main({arguments}) -> ({kinds}) {{{body}\n    return {values} : {kinds}\n  }} }}"


def constant(name: str, values: Array, storage: str) -> str:
    """A constant integer tensor."""
    shape = "x".join(map(str, values.shape))
    return f"\n    %{name} = arith.constant dense<{values.tolist()}> : tensor<{shape}x{bits(storage)}>"


def parsed(text: str, package: str = "torch_mlir") -> Any:
    """A module of a binding whose context knows no unregistered dialects."""
    return Bindings(package).parse_source(text, "test.mlir", allow_unregistered=False)


def run(module_: Any, *inputs: Array) -> tuple[Array, ...]:
    """What IREE computes."""
    return Program(compile_module(module_, flags=FLAGS))(*inputs)


def contractions(module_: Any) -> list[tuple[str, str]]:
    """Element types of the operands of every structured operation that sums products."""
    bindings = Bindings.of(module_)
    found = []
    for block in bindings.blocks(module_.operation):
        for op in (o.operation for o in block.operations):
            if "reduction" not in str(op) or not op.name.startswith("linalg.") or "arith.muli" not in str(op):
                continue
            found.append(tuple(bindings.element_name(v.type) for v in list(op.operands)[:2]))
    return found


# -- quantizes ---------------------------------------------------------------------------------------------------


def interesting(scale: float, zero: int) -> Array:
    """Ties, their neighbours, bounds, extremes, infinities and random numbers, in the shape of %x."""
    ties = (np.arange(-140, 141, dtype=np.float32) - np.float32(zero) + np.float32(0.5)) * np.float32(scale)
    near = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
    limits = np.float32([0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, np.inf, -np.inf, 2**22, -(2**22), 2**23 + 1, 2**31])
    rng = np.random.default_rng(0)
    values = np.concatenate([limits, rng.permutation(np.concatenate([ties, *near]))])
    return np.resize(values, 2 * M * K).astype(np.float32).reshape(2, M, K)


def quantized(x: Array, scale: Any, zero: Any, storage: str, reciprocal: bool = False) -> Array:
    """The stored integers that the IR asks for, in f32 arithmetic."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = x * (np.float32(1) / np.float32(scale)) if reciprocal else x / np.float32(scale)
        moved = np.rint(scaled) + np.float32(zero)
    low, high = LIMITS[storage]
    values = np.clip(moved, low, high).astype(np.int64)
    return values.astype(f"int{storage[1:]}")


A, B = f"tensor<{M}x{K}x%s>", f"tensor<{K}x{N}x%s>"


def static(storage: str, zero: int, scaled: str) -> str:
    """quantize, dequantize, contraction; %qa and the contraction are returned."""
    body = (
        quantize(storage, zero, scaled)
        + dequantize("a", "%qa", storage, f"{M}x{K}", 0.5, zero)
        + dequantize("b", "%qb", "s8", f"{K}x{N}", 0.25)
        + MATMUL
    )
    arguments = f"%x: {A % 'f32'}, %qb: {B % 'i8'}"
    return module(arguments, body, [("%qa", A % bits(storage)), ("%y", f"tensor<{M}x{N}xf32>")])


@pytest.mark.parametrize(
    ("storage", "zero", "scale", "by"),
    [
        ("s8", 0, 0.25, "divf"),
        ("s8", -9, 0.0306812618, "divf"),
        ("s8", -128, 0.0306812618, "mulf"),
        ("s8", 127, 3.0, "divf"),
        ("u8", 137, 0.25, "mulf"),
        ("u8", 0, 0.1, "divf"),
        ("s16", 5, 0.1, "divf"),
    ],
)
def test_a_respelled_quantize_is_bit_exact(storage: str, zero: int, scale: float, by: str) -> None:
    """Ties, extremes and infinities give the same integers, before and after, as in numpy."""
    factor = scale if by == "divf" else float(np.float32(1) / np.float32(scale))
    text = static(storage, zero, divided(factor, by))
    fused = parsed(text)
    report = qfuse.fuse(fused, target="iree-cpu")
    respelled = [e for e in report.applied if e["fusion"] == "qfuse.respell-quantize"]
    assert [e["exactness"] for e in respelled] == ["bit-exact"]
    assert "math.roundeven" not in str(fused)
    before, after = (Program(compile_module(m, flags=FLAGS)) for m in (parsed(text), fused))
    b = np.random.default_rng(1).integers(-128, 128, (K, N)).astype(np.int8)
    for x in interesting(scale, zero):
        expected = quantized(x, scale, zero, storage, by == "mulf")
        np.testing.assert_array_equal(before(x, b)[0], expected)
        np.testing.assert_array_equal(after(x, b)[0], expected)


RUN_TIME = {"one element": ("1x1", "0, 0", (1, 1)), "per token": (f"{M}x1", "d0, 0", (M, 1))}


def dynamic(storage: str, granularity: str, weight: str) -> str:
    """The same with run-time parameters, each step of the quantize an operation, and a weight with a zero point."""
    shape, places, _ = RUN_TIME[granularity]
    body = (
        chain(storage, shape, places)
        + dequantize("a", "%qa", storage, f"{M}x{K}", 0.5, ("%zeros", f"tensor<{shape}xi64>", places))
        + dequantize("b", "%qb", weight, f"{K}x{N}", 0.25, 3)
        + MATMUL
    )
    arguments = f"%x: {A % 'f32'}, %scales: tensor<{shape}xf32>, %zeros: tensor<{shape}xi64>, %qb: {B % bits(weight)}"
    return module(arguments, body, [("%qa", A % bits(storage)), ("%y", f"tensor<{M}x{N}xf32>")])


@pytest.mark.parametrize("operands", ["i8", "i16"])
@pytest.mark.parametrize("granularity", RUN_TIME)
@pytest.mark.parametrize(("storage", "weight"), [("s8", "s8"), ("u8", "s8"), ("u8", "u8"), ("s16", "s8")])
def test_run_time_parameters(storage: str, weight: str, granularity: str, operands: str) -> None:
    """The chain becomes one exact operation; the contraction's numbers are the sums of the integers."""
    fused = parsed(dynamic(storage, granularity, weight))
    report = qfuse.fuse(fused, target="iree-cpu", operands=operands)
    assert [e["fusion"] for e in report.applied] == ["qfuse.respell-quantize", "qfuse.contraction"]
    assert len(set(contractions(fused)[0])) == 1
    assert "math.roundeven" not in str(fused)
    rng = np.random.default_rng(2)
    shape = RUN_TIME[granularity][2]
    low, high = LIMITS[storage]
    z = rng.integers(low // 2, high // 2 + 1, shape) + (0 if storage.startswith("s") else high // 4)
    s = rng.choice([0.25, 0.5, 2.0], shape).astype(np.float32)
    b = rng.integers(*LIMITS[weight], (K, N))
    x = interesting(0.5, 0)[0]
    q, y = run(fused, x, s, z.astype(np.int64), b.astype(f"int{weight[1:]}"))
    expected = quantized(x, s, z, storage, reciprocal=True)
    np.testing.assert_array_equal(q, expected)
    stored = expected.view(f"uint{storage[1:]}") if storage.startswith("u") else expected
    exact = (stored.astype(np.int64) - z) @ (b - 3) * 0.125
    np.testing.assert_allclose(y, exact, rtol=2**-22)


def test_a_run_time_zero_point_of_any_size() -> None:
    """A zero point far outside the storage type saturates as in the IR."""
    fused = parsed(dynamic("s8", "one element", "s8"))
    qfuse.fuse(fused, target="iree-cpu")
    program = Program(compile_module(fused, flags=FLAGS))
    x, b = interesting(0.5, 0)[1], np.zeros((K, N), np.int8)
    for zero in (2**22 + 1, -(2**23) - 1, 2**40):
        q, _ = program(x, np.float32([[0.5]]), np.int64([[zero]]), b)
        np.testing.assert_array_equal(q, quantized(x, 0.5, zero, "s8", reciprocal=True))


def test_nan_becomes_the_low_bound() -> None:
    """The IR leaves NaN undefined; the respelled quantize does not."""
    x = np.full((M, K), np.nan, np.float32)
    b = np.zeros((K, N), np.int8)
    for storage, zero in (("s8", -9), ("u8", 137)):
        fused = parsed(static(storage, zero, divided(0.1)))
        qfuse.fuse(fused, target="iree-cpu")
        assert (run(fused, x, b)[0] == LIMITS[storage][0]).all()


@pytest.mark.parametrize("operands", ["i8", "i16"])
@pytest.mark.parametrize("package", ["torch_mlir", "iree.compiler"])
@pytest.mark.parametrize("text", [static("u8", 137, divided(0.1)), dynamic("u8", "per token", "s8")])
def test_a_second_run_applies_nothing(text: str, package: str, operands: str) -> None:
    """What was respelled is recognised, and left alone."""
    fused = parsed(text, package)
    qfuse.fuse(fused, target="iree-cpu", operands=operands)
    once = str(fused)
    for target in ("iree-cpu", "linalg"):
        again = qfuse.fuse(fused, target=target)
        assert again.applied == [], again.text()
        assert again.summary["integer_ops"] == 1
        assert str(fused) == once


@pytest.mark.parametrize("storage", ["s8", "u8", "s16"])
def test_a_respelled_quantize_reads_back(storage: str, recognize: Any) -> None:
    """The same parameters are found in both spellings."""
    zero = 137 if storage == "u8" else -9
    text = static(storage, zero, divided(0.1))
    fused = parsed(text)
    qfuse.fuse(fused, target="linalg", rounding="magic")
    old, new = (next(n for n in recognize(t) if isinstance(n, Quantize)).params for t in (text, str(fused)))
    assert str(old) == str(new) == f"{storage} per-tensor asymmetric"
    assert (old.quant_min, old.quant_max) == (new.quant_min, new.quant_max) == LIMITS[storage]
    assert old.equals(new)


def test_a_quantize_that_no_contraction_reads_is_left_alone() -> None:
    """Nothing is respelled for its own sake."""
    text = module(f"%x: {A % 'f32'}", quantize("s8", 3, divided(0.1)), [("%qa", A % "i8")])
    before = parsed(text)
    assert qfuse.fuse(before, target="iree-cpu").applied == []
    assert str(before) == str(parsed(text))


# -- contractions ------------------------------------------------------------------------------------------------

PAIRS = [(a, b) for a, b in itertools.product(["s8", "u8", "s16", "u16"], ["s8", "u8", "s4", "u4"])]


@pytest.mark.parametrize("operands", ["i8", "i16"])
@pytest.mark.parametrize("zeros", [(0, 0), (5, 3)], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize(("lhs", "rhs"), PAIRS)
def test_operands_have_one_signed_type(lhs: str, rhs: str, zeros: tuple[int, int], operands: str) -> None:
    """Every pairing, constant on the right: the element types agree, and so do the numbers with numpy."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(LIMITS[s][0], LIMITS[s][1] + 1, n) for s, n in ((lhs, (M, K)), (rhs, (K, N))))
    a[0], b[:, 0] = LIMITS[lhs][0], LIMITS[rhs][0]
    a[1], b[:, 1] = LIMITS[lhs][1], LIMITS[rhs][1]
    body = (
        constant("qb", np.where(b >= 1 << (int(rhs[1:]) - 1), b - (1 << int(rhs[1:])), b), rhs)
        + dequantize("a", "%qa", lhs, f"{M}x{K}", 0.5, zeros[0])
        + dequantize("b", "%qb", rhs, f"{K}x{N}", 0.25, zeros[1])
        + MATMUL
    )
    fused = parsed(module(f"%qa: {A % bits(lhs)}", body, [("%y", f"tensor<{M}x{N}xf32>")]))
    qfuse.fuse(fused, target="iree-cpu", operands=operands)
    width = "i16" if operands == "i16" or lhs.endswith("16") else "i8"
    assert contractions(fused) == [(width, width)]
    exact = (a - zeros[0]) @ (b - zeros[1]) * 0.125
    np.testing.assert_allclose(run(fused, a.astype(f"int{lhs[1:]}"))[0], exact, rtol=2**-22)


@pytest.mark.parametrize("spelling", ["generic", "named"])
def test_i16_operands_have_their_zero_points_subtracted(spelling: str) -> None:
    """Nothing is left to correct: no row sum, no column sum, the accumulators times the scale."""
    fused = parsed(static("u8", 137, divided(0.1)))
    qfuse.fuse(fused, target="iree-cpu", operands="i16", spelling=spelling)
    text = str(fused)
    assert "arith.constant 137 : i16" in text
    assert "arith.subi %in, %" not in text.partition("arith.muli")[2]


def test_a_shared_operand_is_converted_once() -> None:
    """Two contractions read one shifted tensor behind one barrier."""
    twice = MATMUL + "\n" + MATMUL.replace("%y", "%w").replace("%zero", "%null").replace("(%a, %b", "(%a, %c")
    body = (
        quantize("u8", 137, divided(0.1))
        + dequantize("a", "%qa", "u8", f"{M}x{K}", 0.5, 137)
        + dequantize("b", "%qb", "s8", f"{K}x{N}", 0.25)
        + dequantize("c", "%qc", "s8", f"{K}x{N}", 0.25)
        + twice
    )
    arguments = f"%x: {A % 'f32'}, %qb: {B % 'i8'}, %qc: {B % 'i8'}"
    y = f"tensor<{M}x{N}xf32>"
    fused = parsed(module(arguments, body, [("%y", y), ("%w", y)]))
    qfuse.fuse(fused, target="iree-cpu")
    assert contractions(fused) == [("i8", "i8"), ("i8", "i8")]
    assert str(fused).count("arith.xori") == str(fused).count("util.optimization_barrier") == 1


# -- barriers ----------------------------------------------------------------------------------------------------


def test_only_integers_that_are_computed_get_a_barrier() -> None:
    """The quantized input does, the argument does not; the context is made to hold it."""
    fused = parsed(static("s8", -9, divided(0.1)))
    assert not fused.context.allow_unregistered_dialects
    qfuse.fuse(fused, target="iree-cpu")
    assert str(fused).count("util.optimization_barrier") == 1
    assert fused.context.allow_unregistered_dialects
    fused.operation.verify()


def test_a_reshape_stands_behind_a_barrier() -> None:
    """IREE would pull it into the contraction that computes its operand, whose loops it then splits."""
    wide = f"tensor<2x{M // 2}x{K}xf32>"
    body = (
        quantize("s8", -9, divided(0.1))
        + dequantize("flat", "%qa", "s8", f"{M}x{K}", 0.5, -9)
        + f"""
    %a = tensor.expand_shape %flat [[0, 1], [2]] output_shape [2, {M // 2}, {K}] : {A % "f32"} into {wide}"""
        + dequantize("b", "%qb", "s8", f"{K}x{N}", 0.25)
        + f"""
    %zero = arith.constant 0.0 : f32
    %y_e = tensor.empty() : tensor<2x{M // 2}x{N}xf32>
    %y_f = linalg.fill ins(%zero : f32) outs(%y_e : tensor<2x{M // 2}x{N}xf32>) -> tensor<2x{M // 2}x{N}xf32>
    %y = linalg.contract indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>,
      affine_map<(b, m, n, k) -> (b, m, n)>] ins(%a, %b : {wide}, tensor<{K}x{N}xf32>)
      outs(%y_f : tensor<2x{M // 2}x{N}xf32>) -> tensor<2x{M // 2}x{N}xf32>"""
    )
    arguments = f"%x: {A % 'f32'}, %qb: {B % 'i8'}"
    fused = parsed(module(arguments, body, [("%y", f"tensor<2x{M // 2}x{N}xf32>")]))
    assert qfuse.fuse(fused, target="iree-cpu").summary["integer_ops"] == 1
    barriers = [line.split(" = ")[0].strip() for line in str(fused).splitlines() if "optimization_barrier" in line]
    assert any(f"tensor.expand_shape {name} " in str(fused) for name in barriers)
    x, b = interesting(0.1, -9)[0], np.random.default_rng(5).integers(-128, 128, (K, N))
    exact = (quantized(x, 0.1, -9, "s8").astype(np.int64) + 9) @ b * 0.125
    np.testing.assert_allclose(run(fused, x, b.astype(np.int8))[0].reshape(M, N), exact, rtol=2**-22)


def test_dynamic_shapes_get_no_barrier() -> None:
    """IREE cannot see extents through it."""
    text = static("s8", -9, divided(0.1)).replace(f"<{M}x", "<?x")
    for kind in (f"tensor<?x{n}x{element}>" for n in (K, N) for element in ("i8", "f32")):
        text = text.replace(f"tensor.empty() : {kind}", f"tensor.empty(%rows) : {kind}")
    rows = f"%dim = arith.constant 0 : index\n%rows = tensor.dim %x, %dim : tensor<?x{K}xf32>\n"
    fused = parsed(text.replace("%qa_e =", f"{rows}%qa_e =", 1))
    assert qfuse.fuse(fused, target="iree-cpu").summary["integer_ops"] == 1
    assert "util." not in str(fused)
    x = np.random.default_rng(4).standard_normal((5, K)).astype(np.float32)
    q, _ = run(fused, x, np.ones((K, N), np.int8))
    np.testing.assert_array_equal(q, quantized(x, 0.1, -9, "s8"))


@pytest.mark.parametrize(("written", "contractions_"), [("u8", 1), ("s8", 0)])
def test_matchers_see_through_barriers(written: str, contractions_: int) -> None:
    """The quantize behind a barrier is known: its signedness must be that of the dequantize."""
    body = (
        quantize(written, 3, divided(0.1))
        + f'\n%kept = "util.optimization_barrier"(%qa) : ({A % "i8"}) -> {A % "i8"}'
        + dequantize("a", "%kept", "u8", f"{M}x{K}", 0.5, 3)
        + dequantize("b", "%qb", "s8", f"{K}x{N}", 0.25)
        + MATMUL
    )
    text = module(f"%x: {A % 'f32'}, %qb: {B % 'i8'}", body, [("%y", f"tensor<{M}x{N}xf32>")])
    report = qfuse.fuse(Bindings("torch_mlir").parse_source(text, "test.mlir"))
    assert report.summary["integer_ops"] == contractions_
    assert ("storage is written as s8" in report.text()) == (written == "s8")


def test_the_target_linalg_stays_portable() -> None:
    """No operation of IREE, and no option that it would ignore."""
    fused = parsed(static("u8", 137, divided(0.1)))
    qfuse.fuse(fused)
    assert "util." not in str(fused)
    assert not fused.context.allow_unregistered_dialects
    with pytest.raises(qfuse.UsageError, match="option operands takes one of i8, got 'i16'"):
        qfuse.fuse(fused, operands="i16")
