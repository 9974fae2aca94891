"""Targets as TOML files: keys with the lines that they stand on."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qfuse.cost.schema import KINDS, TARGET_KEYS, InvalidKeyError, limits_of
from qfuse.cost.toml_keys import Path, Position, positions
from qfuse.errors import UsageError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_RUN = "is an option of a run, not a key of a target: qfuse-opt --option {0}=..., qfuse.fuse(..., {0}=...)"
#: What is said of what stands in another place, or goes by another name.
_ELSEWHERE = {
    "costs": "cost functions are Python: dataclasses.replace(qfuse.Target.load(...), costs={...})",
    "limits": "limits are tables of their own: [contraction], [convolution], ...",
    "target": "the keys of a target stand at the top of the file, in no table",
    **{option: _RUN.format(option) for option in ("policy", "boundary", "lookup16", "max_reduction", "disable")},
    **dict.fromkeys(("matmul", "linear", "gemm"), "matrix products are called contraction"),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d"), "it is called convolution, and depthwise"),
}


@dataclass(frozen=True)
class Origin:
    """The file that a target was read from.

    Attributes:
        file: its name as it was given.
        positions: where its keys are written.
    """

    file: str
    positions: Mapping[Path, Position]

    def quoted(self, path: Path) -> str:
        """A key as it is written, with file and line; the table around it where it has the key's default."""
        found = self._nearest(path)
        return f"{self.file}: {dotted(path)}" if found is None else f"{self.file}:{found.line}: {found.text}"

    def error(self, path: Path, message: str) -> str:
        """A message about a key."""
        found = self._nearest(path)
        line = "" if found is None else f":{found.line}"
        return f"{self.file}{line}: {dotted(path)}: {message}"

    def _nearest(self, path: Path) -> Position | None:
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path)


def dotted(path: Path) -> str:
    """A key as text; numbers of elements are left out."""
    return ".".join(part for part in path if isinstance(part, str))


def read_document(file: str) -> dict[str, Any]:
    """The arguments of `Target` that a file gives.

    Raises:
        UsageError: not readable, not TOML, or a key of a limit that is not known or has a value of the wrong kind.
    """
    text = _text(file)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not a TOML file: {error}") from None
    origin = Origin(file, positions(text))
    stem = os.path.splitext(os.path.basename(file))[0]
    found: dict[str, Any] = {"name": stem, "origin": origin}
    limits: dict[str, Any] = {}
    for key, value in document.items():
        if key in KINDS:
            try:
                limits[key] = limits_of(key, value)
            except InvalidKeyError as error:
                raise UsageError(origin.error((key, *error.path), error.message)) from None
        elif key in TARGET_KEYS:
            found[key] = value
        else:
            message = unknown("key", key, (*TARGET_KEYS, *KINDS))
            raise UsageError(origin.error((key,), _ELSEWHERE.get(key, message)))
    return {**found, "limits": limits}


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8-sig") as opened:
            return opened.read()
    except OSError as error:
        raise UsageError(f"target file {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"target file {file}: not UTF-8: {error.reason} at byte {error.start}") from None
