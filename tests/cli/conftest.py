"""Runs `qfuse-opt` in the test's process and gives what a shell would see."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qfuse import cli


@dataclass(frozen=True)
class Outcome:
    """Of one run.

    Attributes:
        code: exit code.
        out: standard output.
        err: standard error.
    """

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on standard error; fails when it is not one line, or a traceback."""
        assert "Traceback" not in self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.rstrip("\n")


Opt = Callable[..., Outcome]


@pytest.fixture
def opt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opt:
    """`opt(*arguments, stdin=...)`: the outcome of `qfuse-opt` in an empty directory of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | os.PathLike[str], stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        try:
            code: Any = cli.opt_main([os.fspath(a) for a in arguments])
        except SystemExit as stop:  # what argparse does on wrong usage
            code = stop.code
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
