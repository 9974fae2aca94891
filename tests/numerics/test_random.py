"""Random contractions: any granularity, layout, shape, epilogue and output, against the reference."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.numerics.harness import (
    IREE_CPU,
    MIXED,
    VARIANTS,
    Batch,
    Case,
    Variant,
    assert_fused,
    assert_interpreted,
    assert_numbers,
)
from tests.strategies import Spec, build, specs

KINDS = ("random", "extremes", "low")


def case_of(spec: Spec, name: str) -> Case:
    """A case; with powers of two throughout, stored outputs are exact unless blocks are summed in float."""
    exact = spec.dyadic and spec.output != "float" and "minmax" not in spec.steps
    return Case(build(spec, name), exact=exact, kinds=KINDS)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(specs(), st.sampled_from((*VARIANTS, *MIXED)))
def test_any_contraction(spec: Spec, variant: Variant) -> None:
    """It fuses in full, a second run changes nothing, and the interpreted numbers hold."""
    batch = Batch([case_of(spec, "random")], variant)
    assert_fused(batch, "random")
    assert_interpreted(batch, "random")


@settings(max_examples=1, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(specs(), min_size=16, max_size=16))
def test_any_contractions_in_iree(drawn: list[Spec]) -> None:
    """The same in one program of IREE."""
    batch = Batch([case_of(spec, f"random_{i}") for i, spec in enumerate(drawn)], IREE_CPU)
    for name in batch.cases:
        assert_numbers(batch, name)
