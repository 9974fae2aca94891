"""Where each key of a TOML document stands: the standard reader gives values without lines.

The scanner takes text that the standard reader has accepted, so it only has to find keys and the ends of values.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
#: What separates entries: blanks, ends of lines, comments.
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PLAIN = re.compile(r"[^,\]}#\r\n]*")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"""(?:"{0,2})(?!")', re.DOTALL),
    re.compile(r"'''.*?'''(?:'{0,2})(?!')", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\])*"'),
    re.compile(r"'[^']*'"),
)
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|([btnfre"\\]))')
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class Position:
    """Where a key, a table or an element of an array is written.

    Attributes:
        line: from 1.
        text: what is written there, of several lines the first.
    """

    line: int
    text: str


def positions(text: str) -> Mapping[Path, Position]:
    """The position of every key, table and array element of a valid TOML document, by path from the root.

    Elements of arrays, and tables of an array of tables, have their number in the path.
    """
    return _Scanner(text).document()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._found: dict[Path, Position] = {}
        self._tables: dict[Path, int] = {}  # how many tables an array of tables has so far

    def document(self) -> dict[Path, Position]:
        prefix: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                prefix = self._header()
            else:
                self._entry(prefix)
            self._skip(_GAP)
        return self._found

    def _header(self) -> Path:
        start = self._at
        repeated = self._text.startswith("[[", start)
        self._at += 2 if repeated else 1
        self._skip(_SPACE)
        key = self._key()
        self._at += 2 if repeated else 1
        path: Path = ()
        for position, part in enumerate(key):
            path = (*path, part)
            last = position == len(key) - 1
            if last and repeated:
                self._note(path, start)
                self._tables[path] = self._tables.get(path, 0) + 1
            elif not last:
                self._note(path, start, again=False)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        self._note(path, start)
        return path

    def _entry(self, prefix: Path) -> None:
        start = self._at
        path = prefix
        key = self._key()
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value((*path, *key))
        for part in key:
            path = (*path, part)
            self._note(path, start, again=False)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            quote = self._text[self._at]
            if quote in "\"'":
                written = self._skip(_STRINGS[2 if quote == '"' else 3])[1:-1]
                parts.append(_unescaped(written) if quote == '"' else written)
            else:
                parts.append(self._skip(_BARE))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return parts
            self._at += 1
            self._skip(_SPACE)

    def _value(self, path: Path) -> None:
        first = self._text[self._at]
        if first not in "[{":
            pattern = next((s for s in _STRINGS if s.match(self._text, self._at)), _PLAIN)
            self._skip(pattern)
            return
        self._at += 1
        self._skip(_GAP)
        number = 0
        while self._text[self._at] not in "]}":
            start = self._at
            if first == "{":
                self._entry(path)
            else:
                self._value((*path, number))
                self._note((*path, number), start)
                number += 1
            self._skip(_GAP)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_GAP)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"no valid TOML at line {self._line(self._at)}")
        self._at = found.end()
        return found.group()

    def _line(self, at: int) -> int:
        return bisect_right(self._starts, at)

    def _note(self, path: Path, start: int, again: bool = True) -> None:
        """Keeps where a path is written: at its first mention, or with `again` at the latest."""
        if not again and path in self._found:
            return
        first, *more = self._text[start : self._at].rstrip().split("\n")
        self._found[path] = Position(self._line(start), first.rstrip() + (" ..." if more else ""))


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match.group(1) or match.group(2) or match.group(3)
        return _ESCAPED[match.group(4)] if code is None else chr(int(code, 16))

    return _ESCAPE.sub(one, text)
