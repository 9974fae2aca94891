"""Random networks on described kernels: every layer is within its stated class, whatever its layout."""

from __future__ import annotations

import pytest

import qfuse
from tests.property.contract import TARGETS, examine
from tests.property.graphs import build, random_graph
from tests.property.kernels import registry


@pytest.mark.parametrize("target", ["kernels", "kernels-folded"])
def test_random_networks_on_kernels(target: str) -> None:
    for seed in range(25):
        built = build(random_graph(seed))
        outcome = examine(built, TARGETS[target], built.samples())
        assert outcome.violations == [], seed


def test_the_kernels_are_used() -> None:
    """In these networks matrix products, images, groups and windows with padding are all among what is called."""
    from torch_mlir import ir

    found: set[str] = set()
    for seed in range(25):
        module = ir.Module.parse(build(random_graph(seed)).function.text, ir.Context())
        report = qfuse.fuse(module, "integer-only", registry("single", folded=False))
        found |= {entry["kernel"] for entry in report.applied if "kernel" in entry}
    assert found >= {"matmul_single_plain", "conv_hw_single_plain"}
