"""Which scale a multiplication by its reciprocal stands for.

Several floats have the same reciprocal in f32, and frontends take the reciprocal before or after rounding the scale.
Where a dequantize of the module has a scale that the reciprocal belongs to, that one is meant: a quantize and its
dequantize then have equal parameters. Otherwise it is the f32 that is nearest to one over the reciprocal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qfuse.qparams import Param

_Array = np.ndarray[Any, Any]
#: Relative distance of `scale * inverse` from 1 when each of the two was rounded to f32.
_TWO_ROUNDINGS = 2.0**-23


class KnownScales:
    """The constant scales of a module's dequantizes."""

    def __init__(self) -> None:
        """None yet."""
        self._by_inverse: dict[tuple[tuple[int, ...], float], list[_Array]] = {}

    def add(self, scale: Param) -> None:
        """Notes a scale; one that is known only at run time is not kept."""
        data = scale.data
        if data is None or not data.size or data.dtype.kind != "f":
            return
        with np.errstate(over="ignore", divide="ignore"):  # the inverse of a denormal is infinite
            first = np.float32(1.0) / data.reshape(-1)[0].astype(np.float32)
        for key in (np.nextafter(first, np.float32(0)), first, np.nextafter(first, np.float32(np.inf))):
            known = self._by_inverse.setdefault((data.shape, float(key)), [])
            if not any(np.array_equal(data, other) for other in known):
                known.append(data)

    def of_inverse(self, inverse: _Array, own: Sequence[_Array]) -> _Array:
        """The scale that `inverse` is the reciprocal of, one of `own` before all others."""
        exact = inverse.astype(np.float64)
        known = self._by_inverse.get((inverse.shape, float(inverse.reshape(-1)[0])), ())
        for scale in (*own, *known):
            if scale.shape == inverse.shape and bool(
                (np.abs(scale.astype(np.float64) * exact - 1.0) <= _TWO_ROUNDINGS).all()
            ):
                return scale.astype(np.float32)
        return (1.0 / exact).astype(np.float32)
