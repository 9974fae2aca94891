"""Acme's part of qfuse: two kernels as fusions, and the target that they run on. Found through entry points."""

import qfuse
from acme_qfuse.kernels import QCONV, QMATMUL
from acme_qfuse.target import load


def fusions() -> list[qfuse.Fusion]:
    """What the entry point qfuse.fusions names."""
    return [QMATMUL, QCONV]


def targets() -> list[qfuse.Target]:
    """What the entry point qfuse.targets names."""
    return [load()]
