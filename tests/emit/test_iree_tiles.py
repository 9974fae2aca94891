"""`operands=vnni` of the target iree-cpu: matmuls of bytes in tiles, compiled, and run where the CPU has them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import qfuse
from qfuse._mlir import Bindings
from qfuse.emit import iree_tiles
from qfuse.integrations.iree import DEFAULT_FLAGS, CompileError, Program, compile_module, host_has_vnni

pytest.importorskip("iree.compiler")
pytest.importorskip("iree.runtime")

Array = np.ndarray[Any, Any]

HAS_VNNI = host_has_vnni()
LIMITS = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}
LINEAR = {"m": 24, "n": 48, "k": 36}
FLAGS = [flag for flag in DEFAULT_FLAGS if "target-cpu=" not in flag]


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles also where they win nothing, so that small shapes show what they compute."""
    monkeypatch.setattr(iree_tiles, "LEAST_DEPTH", 1)
    monkeypatch.setattr(iree_tiles, "LEAST_DEPTH_ACROSS", 1)
    monkeypatch.setattr(iree_tiles, "MOST_WASTE", 2)


class Operand(NamedTuple):
    """A dequantized operand: the loops that it is read at, its storage type, zero point, and whether it is constant."""

    loops: str
    storage: str = "s8"
    zero: int = 0
    is_constant: bool = False


def contraction(extents: dict[str, int], operands: tuple[Operand, Operand], out: str, values: list[Array]) -> str:
    """A module with a float contraction of two dequantized operands, per tensor; scales 0.5 and 0.25."""
    loops = ", ".join(extents)

    def at(names: str) -> str:
        return f"affine_map<({loops}) -> ({', '.join(names)})>"

    def tensor(names: str, element: str) -> str:
        return f"tensor<{''.join(f'{extents[n]}x' for n in names)}{element}>"

    body, arguments = "", []
    for name, operand, scale, array in zip("ab", operands, (0.5, 0.25), values, strict=True):
        kind = f"i{operand.storage[1:]}"
        stored, floats = tensor(operand.loops, kind), tensor(operand.loops, "f32")
        if operand.is_constant:
            half = 1 << (int(kind[1:]) - 1)
            body += f"\n%q{name} = arith.constant dense<{((array + half) % (2 * half) - half).tolist()}> : {stored}"
        else:
            arguments.append(f"%q{name}: {stored}")
        own = ", ".join(operand.loops)
        same = f"affine_map<({own}) -> ({own})>"
        extend = "extsi" if operand.storage[0] == "s" else "extui"
        body += f"""
          %{name}_e = tensor.empty() : {floats}
          %{name} = linalg.generic {{indexing_maps = [{same}, {same}],
            iterator_types = [{", ".join('"parallel"' for _ in operand.loops)}]}}
            ins(%q{name} : {stored}) outs(%{name}_e : {floats}) {{
          ^bb0(%in: {kind}, %o: f32):
            %w = arith.{extend} %in : {kind} to i32
            %z = arith.constant {operand.zero} : i32
            %d = arith.subi %w, %z : i32
            %f = arith.sitofp %d : i32 to f32
            %s = arith.constant {scale} : f32
            %r = arith.mulf %f, %s : f32
            linalg.yield %r : f32
          }} -> {floats}"""
    kinds = ", ".join('"parallel"' if n in out else '"reduction"' for n in extents)
    y, floats = tensor(out, "f32"), ", ".join(tensor(o.loops, "f32") for o in operands)
    return f"""module {{ func.func @main({", ".join(arguments)}) -> {y} {{{body}
      %zero = arith.constant 0.0 : f32
      %y_e = tensor.empty() : {y}
      %y_f = linalg.fill ins(%zero : f32) outs(%y_e : {y}) -> {y}
      %y = linalg.generic {{indexing_maps = [{at(operands[0].loops)}, {at(operands[1].loops)}, {at(out)}],
        iterator_types = [{kinds}]}} ins(%a, %b : {floats}) outs(%y_f : {y}) {{
      ^bb0(%l: f32, %r: f32, %o: f32):
        %p = arith.mulf %l, %r : f32
        %s = arith.addf %o, %p : f32
        linalg.yield %s : f32
      }} -> {y}
      return %y : {y} }} }}"""


def integers(extents: dict[str, int], operands: tuple[Operand, Operand]) -> list[Array]:
    """Random stored integers; the first rows are the least and the greatest."""
    rng = np.random.default_rng(0)
    found = []
    for operand in operands:
        low, high = LIMITS[operand.storage]
        values = rng.integers(low, high + 1, [extents[n] for n in operand.loops])
        values[..., :1], values[..., -1:] = low, high
        found.append(values)
    return found


def check(extents: dict[str, int], lhs: Operand, rhs: Operand, out: str, *, tiled: bool = True) -> Any:
    """Fuses, compiles for a CPU with VNNI, and compares what is computed with numpy; returns the fused module."""
    operands = lhs, rhs
    values = integers(extents, operands)
    fused = Bindings("torch_mlir").parse_source(contraction(extents, operands, out, values), "test.mlir")
    report = qfuse.fuse(fused, target="iree-cpu", operands="vnni")
    assert report.summary["integer_ops"] == 1
    fused.operation.verify()
    assert ("inner_tiled" in str(fused)) == tiled
    cpu = "host" if HAS_VNNI or not tiled else "znver4"
    program = compile_module(fused, flags=[*FLAGS, f"--iree-llvmcpu-target-cpu={cpu}"])
    if HAS_VNNI or not tiled:
        (found,) = Program(program)(
            *(v.astype(np.int8) for v, o in zip(values, operands, strict=True) if not o.is_constant)
        )
        a, b = (v - o.zero for v, o in zip(values, operands, strict=True))
        exact = np.einsum(f"{lhs.loops},{rhs.loops}->{out}", a, b) * 0.125
        np.testing.assert_allclose(found, exact, rtol=2**-22)
    return fused


PAIRS = [(a, b, True) for a in ("s8", "u8") for b in LIMITS] + [
    (a, b, False) for a in ("s8", "u8") for b in ("s8", "u8")
]


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("zeros", [(0, 0), (5, 3)], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize(("lhs", "rhs", "is_constant"), PAIRS)
def test_every_pairing_of_bytes(lhs: str, rhs: str, is_constant: bool, zeros: tuple[int, int]) -> None:
    """Signed and unsigned, with and without zero points; nibbles only where they are constant, as IREE has it."""
    check(LINEAR, Operand("mk", lhs, zeros[0]), Operand("nk", rhs, zeros[1], is_constant), "mn")


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    ("m", "n", "k"), [(8, 32, 4), (128, 64, 64), (37, 50, 27), (5, 100, 130), (9, 16, 9), (50, 12, 7), (1, 200, 60)]
)
def test_shapes_that_do_not_fill_their_tiles(m: int, n: int, k: int) -> None:
    """What is padded is neither read nor written."""
    weight = Operand("nk", is_constant=True)
    check({"m": m, "n": n, "k": k}, Operand("mk", "u8", 7), weight, "mn")
    check({"n": n, "m": m, "k": k}, Operand("kn", zero=-3), Operand("km", "u8", 100), "nm")


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [
        ("btk", "nk", "btn"),  # a linear over tokens: two dimensions of rows
        ("bmk", "bnk", "bmn"),  # a batch of products
        ("bhmk", "bhnk", "bhmn"),  # attention: two batches
        ("bmhk", "bnhk", "bhmn"),  # the same, heads not first
        ("bhmn", "bhnk", "bhmk"),
        ("nk", "bkij", "bnij"),  # a pointwise convolution: the weight on the left
        ("mkl", "nkl", "mn"),  # two dimensions of products
        ("mk", "nk", "nm"),  # the result transposed
    ],
)
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "run-time"])
def test_dimensions_around_the_tiles(lhs: str, rhs: str, out: str, is_constant: bool) -> None:
    """Adjacent dimensions are one, others loops around the tiles."""
    sizes = {"b": 2, "h": 3, "t": 5, "m": 20, "n": 36, "k": 12, "i": 4, "j": 6, "l": 5}
    loops = dict.fromkeys(n for n in out + lhs if n in out)
    extents = {n: sizes[n] for n in [*loops, *(n for n in lhs if n not in out)]}
    is_left = lhs == "nk"
    check(
        extents,
        Operand(lhs, "s8", 4, is_left and is_constant),
        Operand(rhs, "s8", 0, not is_left and is_constant),
        out,
    )


@pytest.mark.parametrize(
    ("extents", "lhs", "reason"),
    [
        ({"m": 1, "n": 3, "k": 256}, "s8", "mostly padding"),
        ({"m": 16, "n": 32, "k": iree_tiles.LEAST_DEPTH - 1}, "s8", "few products"),
        ({"m": 16, "n": 16, "k": 70000}, "s8", "the accumulators could overflow"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_not_tiled(extents: dict[str, int], lhs: str, reason: str) -> None:
    """Other products keep operands of one signed type."""
    check(extents, Operand("mk", lhs), Operand("nk"), "mn", tiled=False)


@pytest.mark.parametrize("loops", ["mk", "km"])
def test_the_least_depth(loops: str) -> None:
    """More products have to be summed up where the operand is transposed as it is packed."""
    least = iree_tiles.LEAST_DEPTH if loops == "mk" else iree_tiles.LEAST_DEPTH_ACROSS
    for k in (least - 1, least):
        check(
            {"m": 16, "n": 32, "k": k},
            Operand(loops, "u8", 9),
            Operand("nk", is_constant=True),
            "mn",
            tiled=k == least,
        )


@pytest.mark.usefixtures("everything")
def test_dynamic_shapes_are_not_tiled() -> None:
    """Extents must be known."""
    operands = Operand("mk"), Operand("nk")
    extents = {"m": 16, "n": 16, "k": 16}
    text = contraction(extents, operands, "mn", integers(extents, operands)).replace("16x16xi8", "?x16xi8")
    text = text.replace("(%qa:", "(%rows: index, %qa:").replace(
        "tensor.empty() : tensor<16x", "tensor.empty(%rows) : tensor<?x"
    )
    fused = Bindings("torch_mlir").parse_source(text.replace("16x16xf32", "?x16xf32"), "test.mlir")
    report = qfuse.fuse(fused, target="iree-cpu", operands="vnni")
    assert report.summary["integer_ops"] == 1
    assert "inner_tiled" not in str(fused)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("package", ["torch_mlir", "iree.compiler"])
def test_both_bindings_and_a_second_run(package: str) -> None:
    """IREE's operations verify in IREE's binding; nothing is left to do."""
    operands = Operand("mk", "s8", 3), Operand("nk", is_constant=True)
    text = contraction(LINEAR, operands, "mn", integers(LINEAR, operands))
    fused = Bindings(package).parse_source(text, "test.mlir", allow_unregistered=False)
    qfuse.fuse(fused, target="iree-cpu", operands="vnni")
    fused.operation.verify()
    once = str(fused)
    assert "inner_tiled" in once
    assert qfuse.fuse(fused, target="iree-cpu", operands="vnni").applied == []
    assert str(fused) == once
    compile_module(fused, flags=[*FLAGS, "--iree-llvmcpu-target-cpu=znver4"])


@pytest.mark.usefixtures("everything")
def test_other_cpus_refuse_the_program() -> None:
    """A CPU without the instruction is an error of the compiler, not a wrong number."""
    operands = Operand("mk"), Operand("nk", is_constant=True)
    fused = Bindings("torch_mlir").parse_source(
        contraction(LINEAR, operands, "mn", integers(LINEAR, operands)), "test.mlir"
    )
    qfuse.fuse(fused, target="iree-cpu", operands="vnni")
    with pytest.raises(CompileError):
        compile_module(fused, flags=[*FLAGS, "--iree-llvmcpu-target-cpu=znver3"])
