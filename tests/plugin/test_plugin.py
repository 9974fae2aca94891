"""A vendor's distribution, installed: qfuse finds its fusions and targets, from Python and from the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import qfuse
from qfuse import cli, pipeline
from tests.conftest import Parse
from tests.pipeline import samples

SOURCE = Path(__file__).with_name("toy_vendor")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which pip has installed toy-vendor; without network, by the build backend that is there."""
    pytest.importorskip("pip")
    pytest.importorskip("hatchling", reason="the plugin's build backend is not installed")
    source = tmp_path_factory.mktemp("source") / "toy_vendor"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def on_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """`site` at the head of sys.path; what qfuse remembers of the installed is forgotten before and after."""
    monkeypatch.syspath_prepend(str(site))
    pipeline._installed.cache_clear()
    yield site
    pipeline._installed.cache_clear()
    sys.modules.pop("toy_vendor", None)


def impostor(directory: Path, name: str, group: str) -> None:
    """Another distribution whose entry point leads to the toy vendor's function."""
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    function = group.removeprefix("qfuse.")
    (info / "entry_points.txt").write_text(f"[{group}]\nclone = toy_vendor:{function}\n", encoding="utf-8")


@pytest.mark.usefixtures("on_path")
def test_an_installed_plugin_is_discovered() -> None:
    """With the distribution's name as owner."""
    registry = qfuse.FusionRegistry.discover()
    assert registry.problems == []
    used = [fusion.id for fusion in registry.fusions if not fusion.opt_in]
    assert used[used.index("qfuse.dequantize") + 1] == "toy.qmatmul"  # by benefit
    assert registry.owner("toy.qmatmul") == "toy-vendor"
    assert registry.owner("toy-npu") == "toy-vendor"
    assert registry.owner("linalg") == "qfuse"


@pytest.mark.usefixtures("on_path")
def test_an_installed_plugin_is_used_without_being_asked_for(parse: Parse) -> None:
    """`fuse` takes what is installed."""
    module = parse(samples.LINEAR)
    report = qfuse.fuse(module, "toy-npu")
    assert report.target == "toy-npu"
    assert "toy.qmatmul" in {entry["fusion"] for entry in report.applied}
    assert '"toy.qmatmul"' in str(module)


@pytest.mark.usefixtures("on_path")
def test_an_installed_plugin_can_be_disabled(parse: Parse) -> None:
    """By its id, like a built-in."""
    module = parse(samples.LINEAR)
    report = qfuse.fuse(module, disable="toy.qmatmul")
    assert "qfuse.requantize" in {entry["fusion"] for entry in report.applied}
    assert "toy.qmatmul" not in str(module)


@pytest.mark.usefixtures("on_path")
def test_listings_show_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON."""
    assert cli.main(["list", "fusions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("toy.qmatmul")]
    doc = "quantized matmul and requantize -> the toy NPU's kernel"
    assert line.split(maxsplit=4)[1:] == ["toy-vendor", "Quantize", "within-n-lsb", doc]
    assert cli.main(["list", "targets", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["toy-npu"]["owner"] == "toy-vendor"


def test_the_command_line_uses_an_installed_plugin(site: Path, tmp_path: Path) -> None:
    """In a process of its own that has the directory on its path."""
    source = tmp_path / "linear.mlir"
    source.write_text(samples.LINEAR, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "qfuse.cli", str(source), "--target", "toy-npu", "--remarks"],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"toy.qmatmul"(%arg0, %arg1)' in done.stdout
    assert f"{source}:36:10: remark: toy.qmatmul: linalg.generic: " in done.stderr


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("qfuse.fusions", "fusion 'toy.qmatmul' is registered twice: by other-vendor and by toy-vendor"),
        ("qfuse.targets", "target 'toy-npu' is registered twice: by other-vendor and by toy-vendor"),
    ],
)
def test_two_installed_distributions_with_one_name(
    group: str,
    message: str,
    on_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error that names both, one line and exit code 1 on the command line."""
    assert on_path.is_dir()
    impostor(tmp_path, "other-vendor", group)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(qfuse.RegistryError) as caught:
        qfuse.FusionRegistry.discover()
    assert str(caught.value) == message
    source = tmp_path / "linear.mlir"
    source.write_text(samples.LINEAR, encoding="utf-8")
    assert cli.opt_main([str(source)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"qfuse-opt: error: {message}\n"


def test_a_plugin_that_cannot_be_imported_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The entry point is there, its module is not: said on stderr, and the module is fused."""
    impostor(tmp_path, "gone-vendor", "qfuse.fusions")
    monkeypatch.syspath_prepend(str(tmp_path))
    pipeline._installed.cache_clear()
    try:
        source = tmp_path / "linear.mlir"
        source.write_text(samples.LINEAR, encoding="utf-8")
        assert cli.opt_main([str(source)]) == 0
    finally:
        pipeline._installed.cache_clear()
    captured = capsys.readouterr()
    assert "linalg.matmul" not in captured.out
    (line,) = captured.err.splitlines()
    assert line.startswith("qfuse: warning: fusion plugin 'clone' of gone-vendor failed to load: ModuleNotFoundError(")
