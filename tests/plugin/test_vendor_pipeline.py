"""The vendor's example: installed by pip, its kernels built by the system's compiler, and run on real models."""

from __future__ import annotations

import ast
import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir, runtime

import qfuse

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vendor_pipeline"
BUILDS = ("native", "portable")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernels as shared libraries, with this machine's vector instructions and without."""
    if shutil.which("make") is None or shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    built: dict[str, Path] = {}
    for name in BUILDS:
        folder = tmp_path_factory.mktemp(name)
        command = ["make", "-C", str(EXAMPLE / "kernels"), f"BUILD={folder}"]
        done = subprocess.run(
            [*command, *(["PORTABLE=1"] if name == "portable" else [])], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        built[name] = folder / "libacme.so"
    return built


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The kernels as numpy computes them."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("acme_qfuse.reference")
    for name in [n for n in sys.modules if n.partition(".")[0] == "acme_qfuse"]:
        del sys.modules[name]


# -- the distribution ------------------------------------------------------------------------------------------------


def test_only_public_names_are_used() -> None:
    """Of qfuse nothing but `import qfuse` and names in its `__all__`."""
    used: set[str] = set()
    for path in EXAMPLE.rglob("*.py"):
        if ".venv" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {f"import {a.name}" for a in node.names if a.name.split(".")[0] == "qfuse"}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "qfuse":
                used |= {f"{node.module}.{a.name}" for a in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "qfuse":
                used.add(f"qfuse.{node.attr}")
    assert "import qfuse" in used
    assert used - {"import qfuse"} <= {f"qfuse.{name}" for name in qfuse.__all__}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what `make demo` needs, with nothing built."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("qfuse", "examples"):
        ignored = shutil.ignore_patterns("__pycache__", ".venv", "build")
        shutil.copytree(EXAMPLE.parents[1] / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(EXAMPLE.parents[1] / name, copy / name)
    return copy / "examples" / "vendor_pipeline"


def test_make_demo(checkout: Path, tmp_path: Path) -> None:
    """From a clean copy in an environment of its own: what ran where, equality with numpy, costs and speed.

    What qfuse and the example depend on is taken from the environment of the tests, without network.
    """
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    if shutil.which("make") is None or shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    environment = tmp_path / "venv"
    venv.create(environment)
    (own,) = environment.glob("lib/python*/site-packages")
    (own / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    command = ["make", "demo", f"PYTHON={sys.executable}", f"VENV={environment}", "DEMO_ARGS=--rounds 5"]
    command += ["IN_PLACE=", "PIP_ARGS=--no-index --no-deps --no-build-isolation --no-cache-dir"]
    cleared = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(command, cwd=checkout, env=cleared, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Result: passed" in done.stdout.splitlines()
    assert "target acme of acme-qfuse" in done.stdout
    assert done.stdout.count("equal bit for bit") == 3
    assert len(re.findall(r":\d+:\d+  kernel acme_q", done.stdout)) == 9
    reason = r"linalg\.conv_2d_nchw_fchw: target acme takes multiples of 16 for in_channels, it is 1 \((.*):\d+: "
    (file,) = re.findall(f"float: {reason}", done.stdout)
    assert Path(file).name == "acme.toml"
    assert (own / "acme_qfuse" / "acme.toml").is_file(), "a part of the distribution"
    assert len(re.findall(r"integers [\d.]+ ms, float [\d.]+ ms on Acme's machine: ", done.stdout)) == 3
    assert done.stdout.count(" x\n") == 9


def test_the_cost_override_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function of acme.qconv is what its convolutions cost; a slower one leaves them, and only them, in float."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    acme = importlib.import_module("acme_qfuse")
    registry = qfuse.FusionRegistry.discover().with_(*acme.fusions(), owner="acme")
    (target,) = acme.targets()

    def planned(chosen: qfuse.Target) -> qfuse.Report:
        path = str(EXAMPLE.parent / "digits" / "cnn.linalg.mlir")
        return qfuse.plan(ir.Module.parseFile(path, ir.Context()), chosen, registry, policy="profitable").report

    def kernels(report: qfuse.Report) -> list[str]:
        return [entry["fusion"] for entry in report.applied if entry["fusion"].startswith("acme.")]

    def costs(report: qfuse.Report) -> list[float]:
        return [r["integer_seconds"] for r in report.cost if "acme.qconv" in (*r["cut_integer"], *r["cut_float"])]

    override = target.costs["acme.qconv"]
    own, plain = planned(target), planned(replace(target, costs={}))
    slow = planned(replace(target, costs={"acme.qconv": lambda work: 1e3 * override(work)}))
    assert kernels(own) == kernels(plain) == ["acme.qconv", "acme.qconv", "acme.qmatmul"]
    assert kernels(slow) == ["acme.qmatmul"]
    assert costs(own) != costs(plain)
    assert all(region["unknown"] is None for region in own.cost)
    reasons = [entry["reason"] for entry in slow.missed if "float is cheaper here" in entry["reason"]]
    assert len(reasons) >= 2
    times = [
        [float(n) * {"us": 1, "ms": 1e3, "s": 1e6}[u] for n, u in re.findall(r"([\d.]+) (us|ms|s)\b", r)]
        for r in reasons
    ]
    assert all(found[-1] < found[0] for found in times), "what is chosen is cheaper than integers"


def test_transposes_between_adjacent_kernels_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block's two convolutions in a row pass the image on as NHWC; nothing that was built is left unused."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    kernels = importlib.import_module("acme_qfuse.kernels")
    registry = qfuse.FusionRegistry.discover().with_(kernels.QMATMUL, kernels.QCONV, owner="acme")
    module = ir.Module.parseFile(str(EXAMPLE / "models" / "resnet_block.linalg.mlir"), ir.Context())
    qfuse.fuse(module, "linalg", registry, epilogue="fixed-point")
    body = list(module.body.operations)[-1].operation.regions[0].blocks[0].operations
    names = [o.operation.name for o in body if o.operation.name in ("func.call", "linalg.transpose")]
    transpose, call = "linalg.transpose", "func.call"
    assert names == [transpose, call, call, transpose, transpose, call, transpose]
    results = [o.operation.results[0] for o in body if o.operation.name == transpose]
    assert all(len(list(result.uses)) for result in results)


def fused_cnn(folder: Path, old: str, new: str) -> qfuse.Report:
    """The digits CNN, fused for a copy of acme.toml in which `old` stands as `new`."""
    text = (EXAMPLE / "acme_qfuse" / "acme.toml").read_text(encoding="utf-8")
    assert old in text
    path = folder / "acme.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    module = ir.Module.parseFile(str(EXAMPLE.parent / "digits" / "cnn.linalg.mlir"), ir.Context())
    return qfuse.fuse(module, path)


def test_a_restriction_turns_back_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    """One line of acme.toml decides about the convolution of one input channel; the reason quotes it."""
    line = "multiple_of = { in_channels = 16 }"
    restricted, free = fused_cnn(tmp_path, line, line), fused_cnn(tmp_path, line, "multiple_of = { in_channels = 1 }")
    assert free.missed == []
    (missed,) = restricted.missed
    text = (EXAMPLE / "acme_qfuse" / "acme.toml").read_text(encoding="utf-8")
    number = text[: text.index(line)].count("\n") + 1
    assert missed["op"] == "linalg.conv_2d_nchw_fchw"
    assert missed["reason"] == (
        "target acme takes multiples of 16 for in_channels, it is 1 "
        f"({tmp_path / 'acme.toml'}:{number}: in_channels = 16)"
    )
    before, after = ({e["location"] for e in r.applied} for r in (free, restricted))
    turned_back = {e["location"] for e in free.applied if e["fusion"] == "qfuse.convolution"} - after
    assert len(turned_back) == 1
    # Besides the convolution only the requantize of its accumulators is gone.
    assert len(before - after) == 2


def test_a_forbidden_kernel_leaves_the_layer_to_the_built_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named with its line where it would have been called; other kernels are called as before."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    acme = importlib.import_module("acme_qfuse")
    registry = qfuse.FusionRegistry.discover().with_(*acme.fusions(), owner="acme")
    text = (EXAMPLE / "acme_qfuse" / "acme.toml").read_text(encoding="utf-8")
    path = tmp_path / "acme.toml"
    path.write_text('forbidden = ["acme.qconv"]\n' + text, encoding="utf-8")
    module = ir.Module.parseFile(str(EXAMPLE.parent / "digits" / "cnn.linalg.mlir"), ir.Context())
    report = qfuse.fuse(module, path, registry)
    declined = [e["declined"] for e in report.applied if e.get("declined")]
    where = f'({path}:1: forbidden = ["acme.qconv"])'
    assert declined == [[f"acme.qconv: target acme does not use fusion acme.qconv {where}"]] * 2
    assert [e["kernel"] for e in report.applied if "kernel" in e] == ["acme_qmatmul_s8"]


# -- the kernels -----------------------------------------------------------------------------------------------------


def returned(array: np.ndarray) -> Any:
    """A pointer to a descriptor that is overwritten."""
    return ctypes.byref(runtime.make_nd_memref_descriptor(array.ndim, ctypes.c_int8)())


def call(library: Path, name: str, arguments: list[Any], result: np.ndarray) -> None:
    """A kernel as lowered MLIR calls it."""
    held = [a if isinstance(a, int) else runtime.get_ranked_memref_descriptor(a) for a in (*arguments, result)]
    passed = [ctypes.c_int32(a) if isinstance(a, int) else ctypes.byref(a) for a in held]
    getattr(ctypes.CDLL(str(library)), f"_mlir_ciface_{name}")(returned(result), *passed)


def integers(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "random":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.choice(np.array([-128, 127], np.int8), shape) if kind == "extremes" else np.full(shape, -128, np.int8)


def scales(rng: np.random.Generator, kind: str, n: int) -> list[np.ndarray]:
    """Bias, multiplier and shift; of kind `ties` every odd sum is half way between two results."""
    bias = rng.integers(-(1 << 16), 1 << 16, n).astype(np.int32)
    if kind == "ties":
        return [bias, np.full(n, 1 << 30, np.int32), np.full(n, 31, np.int8)]
    return [bias, rng.integers(1 << 30, 1 << 31, n).astype(np.int32), rng.integers(33, 50, n).astype(np.int8)]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("kind", ["random", "extremes", "low", "ties"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 16, 1), (5, 48, 10), (7, 64, 131), (3, 4096, 67)])
def test_qmatmul_is_the_reference(
    build: str, kind: str, m: int, k: int, n: int, libraries: dict[str, Path], reference: Any
) -> None:
    rng = np.random.default_rng([m, k, n])
    data = "random" if kind == "ties" else kind
    lhs, rhs = integers(rng, data, (m, k)), integers(rng, data, (n, k))
    arguments = [lhs, rhs, *scales(rng, kind, n), -7, -100, 120]
    result = np.zeros((m, n), np.int8)
    call(libraries[build], "acme_qmatmul_s8", arguments, result)
    assert np.array_equal(result, reference.qmatmul(*arguments, result))
    assert kind == "low" or len(np.unique(result)) > 1 or result.size == 1


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("kind", ["random", "extremes", "ties"])
@pytest.mark.parametrize(
    ("window", "stride", "dilation", "pads"),
    [((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), ((1, 1), (2, 2), (1, 1), (0, 0, 0, 0)),
     ((3, 2), (2, 1), (1, 2), (2, 0, 1, 3)), ((5, 5), (1, 3), (2, 1), (4, 4, 2, 2))],
)  # fmt: skip
def test_qconv_is_the_reference(
    build: str,
    kind: str,
    window: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    pads: tuple[int, int, int, int],
    libraries: dict[str, Path],
    reference: Any,
) -> None:
    rng = np.random.default_rng([*window, *stride])
    data = "random" if kind == "ties" else kind
    lhs, rhs = integers(rng, data, (2, 9, 8, 16)), integers(rng, data, (6, *window, 16))
    sizes = [
        (extent + before + behind - (size - 1) * step - 1) // by + 1
        for extent, before, behind, size, step, by in zip(
            (9, 8), pads[::2], pads[1::2], window, dilation, stride, strict=True
        )
    ]
    result = np.zeros((2, *sizes, 6), np.int8)
    arguments = [lhs, rhs, *scales(rng, kind, 6), -3, 11, -128, 127, *stride, *dilation, *pads]
    call(libraries[build], "acme_qconv_s8", arguments, result)
    assert np.array_equal(result, reference.qconv(*arguments, result))
    assert len(np.unique(result)) > 1


def test_the_portable_build_has_no_vector_instructions(libraries: dict[str, Path]) -> None:
    library = ctypes.CDLL(str(libraries["portable"]))
    library.acme_instructions.restype = ctypes.c_char_p
    assert library.acme_instructions() == b"portable C"
