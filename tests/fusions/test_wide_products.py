"""Products that exceed i32, in integers, with every rounding: against real arithmetic, run by IREE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fusions.ir import Function, fused, refused, run

Array = np.ndarray[Any, Any]
STEP, OUT = 2.0**-12, 2.0**-8
#: Whether storage is unsigned, and its zero point.
STORED = {"signed": (False, 0), "signed_far": (False, 20000), "unsigned": (True, 30000), "unsigned_zero": (True, 0)}
SCALINGS = ("single", "double", "gemmlowp", "half-even")


class Wide(Function):
    """Of two tensors of 16 bits: random, extremes, and ties of a shift by a power of two."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{what}_{kind}", (64, 64))
        self.unsigned, self.zero = STORED[kind]
        self.what = what
        x, y = (self.dequantize(self.argument("i16"), STEP, self.zero, "i16", unsigned=self.unsigned) for _ in range(2))
        value = self.binary("mulf", x, y)
        if what == "sum":
            value = self.binary("subf", value, x)
        self.returns(self.quantize(value, OUT, 0, "i16"), element="i16")

    def inputs(self) -> list[tuple[Any, ...]]:
        ties = (self.zero + 1 + 2 * np.arange(4096).reshape(64, 64) % 8000).astype(np.uint16).view(np.int16)
        power = np.full((64, 64), self.zero + 2**12, np.uint16).view(np.int16)
        return [*super().inputs()[1:], (ties, power), (power, ties)]

    def real(self, inputs: tuple[Any, ...]) -> Array:
        """In steps, not rounded."""
        held = [(a.view(np.uint16) if self.unsigned else a).astype(np.int64) - self.zero for a in inputs]
        values = held[0] * held[1] * (STEP * STEP)
        return np.clip((values - held[0] * STEP if self.what == "sum" else values) / OUT, -32768, 32767)


FUNCTIONS = [Wide(kind, what) for kind in STORED for what in ("product", "sum")]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_is_within_its_bound(scaling: str) -> None:
    made = {f.name: fused(f, epilogue="fixed-point", scaling=scaling) for f in FUNCTIONS}
    assert all("f32" not in str(module) for module, _ in made.values())
    results = run({name: module for name, (module, _) in made.items()}, FUNCTIONS)
    for f in FUNCTIONS:
        (entry,) = made[f.name][1].applied
        assert entry["tie_distance"] < 0.01
        assert entry["exactness"] == "within-1-lsb"
        for inputs, (got,) in zip(f.inputs(), results[f.name], strict=True):
            real = f.real(inputs)
            assert np.abs(got - real).max() <= 0.5 + entry["tie_distance"]
            assert np.abs(got - np.rint(real)).max() <= 1


def test_no_product_of_integers_that_exceed_i32_themselves() -> None:
    """It might exceed i64."""
    f = Function("wider")
    x, y = (f.dequantize(f.argument("i32"), 2.0**-20, 3, "i32") for _ in range(2))
    f.returns(f.quantize(f.binary("mulf", x, y), 2.0**-8, 0, "i16"), element="i16")
    reason = "an intermediate value exceeds i32 at the step of the result"
    assert refused(f, epilogue="fixed-point") == [f"the elementwise operation has no integer form: {reason}"]
