"""Damaged modules never bring `qfuse-opt` down: no signal, no traceback, and what it writes can be read again."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from tests.cli import mutations
from tests.pipeline import samples

SOURCES = {
    "linear": samples.LINEAR,
    "unsigned": samples.module(samples.linear_function(low=0, high=255, cast="arith.fptoui")),
    "per-axis": samples.PER_AXIS,
    "per-axis-requantized": samples.PER_AXIS_REQUANTIZED,
    "weight-only": samples.WEIGHT_ONLY,
}
EACH = 25


def test_damaged_modules_are_refused_or_fused(tmp_path: Path) -> None:
    """Exit codes are 0 or 1, the process lives to the end. Seeds are fixed: a failure can be repeated."""
    for name, text in SOURCES.items():
        for seed in range(EACH):
            damaged = mutations.mutate(text, random.Random(f"{name} {seed}"))
            (tmp_path / f"{name}-{seed:03}.mlir").write_text(damaged, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, mutations.__file__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1]}: {done.stderr}"
    assert len(lines) == EACH * len(SOURCES)
    assert [line for line in lines if line.split(" ", 1)[1] not in ("0", "1")] == []
    assert {line.split(" ", 1)[1] for line in lines} == {"0", "1"}
