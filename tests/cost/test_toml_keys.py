"""Positions of keys: every key of a document has one, on the line that it is written on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfuse.cost.toml_keys import Path, positions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENT = r'''# a comment [not.a.table]
name = "acme"   # and one behind
"quoted key".'other one' = 1
a . b . "c" = { x = 1, y.z = [1, 2] }

[table]
text = """
[not.a.table]
x = 1
"""
literal = \'\'\'
y = 2\'\'\'
list = [ "a]", # ] and }
  'b}', { deep = true },
  [ 3,
    4 ],
]
"\u0061\t\"" = 2
last = 1979-05-27 07:32:00 # a date with a blank

  [table.inner]
    key = -inf
[[many]]
n = 1
[[many]]
n = 2
[many.sub]
m = """four quotes""""
[[many.parts]]
o = 3
[above.first]
p = 4
[above]
q = 5
'''.replace("\\'", "'")


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every path of a document's values."""
    parts: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    for part, inner in parts:
        yield (*path, part)
        yield from paths(inner, (*path, part))


def test_a_document_with_every_construct() -> None:
    """Each path has a position, and no other has one."""
    found = positions(DOCUMENT)
    assert set(found) == set(paths(tomllib.loads(DOCUMENT)))
    lines = DOCUMENT.split("\n")
    for path, position in found.items():
        assert position.text.removesuffix(" ...") in lines[position.line - 1], path


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [
        (("name",), 2, 'name = "acme"'),
        (("quoted key", "other one"), 3, "\"quoted key\".'other one' = 1"),
        (("a", "b", "c"), 4, 'a . b . "c" = { x = 1, y.z = [1, 2] }'),
        (("a", "b", "c", "y", "z"), 4, "y.z = [1, 2]"),
        (("a", "b", "c", "y", "z", 1), 4, "2"),
        (("table",), 6, "[table]"),
        (("table", "text"), 7, 'text = """ ...'),
        (("table", "literal"), 11, "literal = ''' ..."),
        (("table", "list", 0), 13, '"a]"'),
        (("table", "list", 2, "deep"), 14, "deep = true"),
        (("table", "list", 3, 1), 16, "4"),
        (("table", 'a\t"'), 18, r'"\u0061\t\"" = 2'),
        (("table", "last"), 19, "last = 1979-05-27 07:32:00"),
        (("table", "inner", "key"), 22, "key = -inf"),
        (("many", 0, "n"), 24, "n = 1"),
        (("many", 1, "n"), 26, "n = 2"),
        (("many", 1, "sub", "m"), 28, 'm = """four quotes""""'),
        (("many", 1, "parts", 0, "o"), 30, "o = 3"),
        (("above",), 33, "[above]"),
        (("above", "first", "p"), 32, "p = 4"),
    ],
    ids=str,
)
def test_where_a_key_is(path: Path, line: int, text: str) -> None:
    """Its line, and the statement without the comment behind it."""
    found = positions(DOCUMENT)[path]
    assert (found.line, found.text) == (line, text)


def test_an_empty_document() -> None:
    """No keys."""
    assert positions("") == {}
    assert positions("# only this") == {}


# -- generated documents -----------------------------------------------------------------------------------------------

KEYS = st.text("ab_-1", min_size=1, max_size=3) | st.text(max_size=4)
SCALARS = st.integers(-9, 9) | st.booleans() | st.text(max_size=6) | st.just(1.5)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def written_key(key: str, style: int) -> str:
    """A key as it can be written: bare where that is allowed, else quoted."""
    if key and style % 2 == 0 and all(c in "ab_-1" for c in key):
        return key
    if style % 3 == 0 and not any(c == "'" or ord(c) < 32 or ord(c) == 127 for c in key):
        return f"'{key}'"
    return written_text(key)


def written_text(text: str) -> str:
    """A basic string, whatever is in it."""
    shown = "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{shown}"'


def written(value: Any, styles: Iterator[int]) -> str:
    """A value as TOML: arrays over several lines with comments at times."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        style = next(styles) % 3
        if style == 1 and '"""' not in value and all(32 <= ord(c) < 127 for c in value) and "\\" not in value:
            return f'"""\n{value}"""' if not value.endswith('"') else written_text(value)
        return written_text(value)
    if isinstance(value, list):
        gap = (" ", "\n  ", " # ] a comment\n")[next(styles) % 3]
        return "[" + gap + f",{gap}".join(written(v, styles) for v in value) + gap + "]"
    if isinstance(value, dict):
        inside = [f"{written_key(k, next(styles))} = {written(v, styles)}" for k, v in value.items()]
        return "{ " + ", ".join(inside) + " }"
    return str(value)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Tables of keys with values, some in arrays of tables, some with dotted keys."""
    numbers = draw(st.lists(st.integers(0, 5), min_size=1, max_size=20))
    styles = _cycle(numbers)
    lines: list[str] = []
    for number, table in enumerate(draw(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=4))):
        if number:
            kind = next(styles) % 3
            lines.append("[[many]]" if kind == 0 else f"[t{number}]" if kind == 1 else f"[t.'{number}']")
        for position, (key, value) in enumerate(table.items()):
            dotted = f"d{number}-{position} . " if next(styles) % 4 == 0 else ""
            lines.append(f"{dotted}{written_key(key, next(styles))}={written(value, styles)} # = {position}")
        lines.append("")
    return "\n".join(lines)


def _cycle(numbers: Sequence[int]) -> Iterator[int]:
    while True:
        yield from numbers


@settings(max_examples=400, deadline=None)
@given(documents())
def test_every_key_of_a_generated_document_has_a_position(text: str) -> None:
    """The same paths as the standard reader's, each on a line that holds its last part."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a key that is written twice, such as many or t
    found = positions(text)
    assert set(found) == set(paths(document))
    lines = text.split("\n")
    for position in found.values():
        assert position.text.removesuffix(" ...") in lines[position.line - 1]
