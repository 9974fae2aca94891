"""Runs the `// RUN:` lines of the .mlir files beside this one: `qfuse-opt %s ... | filecheck %s`, in this process."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options

from qfuse import builtin, cli

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.mlir"))
WITHOUT_FILE = {
    "qfuse.dequantize",  # builds nothing: seen in the file of every other fusion
}


def run_lines(path: Path) -> list[str]:
    """The commands of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("// RUN:").strip() for line in lines if line.startswith("// RUN:")]


def qfuse_opt(arguments: list[str]) -> str:
    """What `qfuse-opt` prints; with `2>&1` standard error, too."""
    out, err = io.StringIO(), io.StringIO()
    merged = "2>&1" in arguments
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if merged else err):
        code = cli.opt_main([argument for argument in arguments if argument != "2>&1"])
    assert code == 0, f"exit code {code}: {err.getvalue() or out.getvalue()}"
    return out.getvalue()


def check(arguments: list[str], text: str, tmp_path: Path) -> None:
    """`filecheck` on `text`."""
    given = tmp_path / "input.txt"
    given.write_text(text, encoding="utf-8")
    prefixes = [a.removeprefix("--check-prefix=") for a in arguments if a.startswith("--check-prefix=")]
    (pattern,) = [argument for argument in arguments if not argument.startswith("--")]
    options = Options(pattern, str(given), check_prefixes=prefixes or ["CHECK"], enable_var_scope=True)
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages), contextlib.redirect_stdout(messages):
        code = Matcher.from_opts(options).run()
    assert code == 0, f"{messages.getvalue()}\n{text}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path: Path, tmp_path: Path) -> None:
    """Every RUN line of a file."""
    commands = run_lines(path)
    assert commands, f"{path.name} has no RUN line"
    for command in commands:
        first, second = (shlex.split(part.replace("%s", shlex.quote(str(path)))) for part in command.split(" | "))
        assert (first[0], second[0]) == ("qfuse-opt", "filecheck"), command
        check(second[1:], qfuse_opt(first[1:]), tmp_path)


def test_every_fusion_has_its_file() -> None:
    """`<fusion-id>.mlir` (and `<fusion-id>.tosa.mlir`), and no file is left of a fusion that is gone."""
    ids = {fusion.id for fusion in builtin.fusions()}
    assert {path.stem.removesuffix(".tosa") for path in FILES} == ids - WITHOUT_FILE


def test_a_mismatch_is_found(tmp_path: Path) -> None:
    """The runner can fail."""
    pattern = tmp_path / "x.mlir"
    pattern.write_text("// CHECK: arith.addi\n", encoding="utf-8")
    check([str(pattern)], "arith.addi\n", tmp_path)
    with pytest.raises(AssertionError):
        check([str(pattern)], "arith.subi\n", tmp_path)
