"""Batches of fused functions, each fused and compiled once a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.numerics.harness import Batch, Case, Variant


@pytest.fixture(scope="session")
def batches() -> Callable[[Mapping[str, Case], Variant | None], Batch]:
    """Gives the batch of these cases under a variant (None: unfused), always the same one."""
    made: dict[tuple[int, str], Batch] = {}

    def batch(cases: Mapping[str, Case], variant: Variant | None) -> Batch:
        key = (id(cases), str(variant))
        if key not in made:
            made[key] = Batch(list(cases.values()), variant)
        return made[key]

    return batch
