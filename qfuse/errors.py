"""Errors that qfuse raises on purpose; anything else that escapes is a bug."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence


class QfuseError(Exception):
    """Base of all errors that a caller can cause; the message is one line."""


class InputError(QfuseError):
    """The input is not something qfuse can work on (unparsable, not a module, wrong type)."""


class UsageError(QfuseError):
    """An unknown target, fusion or option name, or an option value of the wrong kind; lists what is known."""


class RegistryError(QfuseError):
    """Two fusions or targets of one name, or something that is no fusion, target or emitter."""


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """The message for a name that is not known: the nearest one, then all."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}known are {', '.join(known) or 'none'}"


def noted(error: BaseException, note: str) -> None:
    """Adds a line to what is shown of an exception that is passed on; Python 3.10 has no such lines."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
