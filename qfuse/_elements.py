# pyright: basic
"""Values of elements attributes as numpy arrays, from raw bytes and from printed text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

#: numpy's type of each element type that has a buffer interface.
NUMPY_DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def decode(blob: bytes, element: str, shape: Sequence[int | None]) -> np.ndarray[Any, Any] | None:
    """Little-endian elements of printed type `element`; None when the bytes do not fit the shape or cannot be read."""
    if element == "bf16" and len(blob) % 2 == 0:
        raw = np.frombuffer(blob, np.uint16).astype(np.uint32) << 16
        values: np.ndarray[Any, Any] = raw.view(np.float32)
    elif element in ("i2", "i4"):
        values = _sign_extend(np.frombuffer(blob, np.uint8), int(element[1:]))
    elif element == "i1":
        return None
    elif element in NUMPY_DTYPES and len(blob) % np.dtype(NUMPY_DTYPES[element]).itemsize == 0:
        values = np.frombuffer(blob, NUMPY_DTYPES[element])
    else:
        return None
    sizes = [extent or 0 for extent in shape]
    count = math.prod(sizes)
    if values.size == 1 and count != 1:
        return np.broadcast_to(values.reshape((1,) * len(sizes)), sizes)
    return values.reshape(sizes) if values.size == count else None


def _sign_extend(raw: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    shift = np.uint8(8 - bits)
    return (raw << shift).astype(np.uint8).view(np.int8) >> shift.astype(np.int8)


def parse_dense_text(text: str, element: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """Element types without a buffer interface (i4, bf16, index): read the printed form."""
    is_integer = element == "index" or (element[0] == "i" and element[1:].isdigit() and int(element[1:]) <= 64)
    if element != "bf16" and not is_integer:
        return None
    body = text[text.index("<") + 1 : text.rindex(">", 0, text.rindex(":"))]
    if body.startswith('"0x'):
        return decode(bytes.fromhex(body[3:-1]), element, shape)
    tokens = body.replace("[", " ").replace("]", " ").replace(",", " ").split()
    if element == "bf16":
        array = nearest_bf16(np.array([_float_token(token) for token in tokens], np.float32))
    else:
        is_small = element != "index" and int(element[1:]) <= 8
        array = np.array([int(token) for token in tokens], np.int8 if is_small else np.int64)
    return np.broadcast_to(array.reshape((1,) * len(shape)), shape) if array.size == 1 else array.reshape(shape)


def _float_token(token: str) -> float:
    if not token.startswith("0x"):
        return float(token)
    return float((np.array([int(token, 16)], np.uint32) << 16).view(np.float32)[0])


def nearest_bf16(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The nearest bf16 numbers (ties to even), as f32: numpy has no bf16."""
    values = np.asarray(array, np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)
