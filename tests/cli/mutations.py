"""Damages the text of a module at random, and runs `qfuse-opt` on many texts in one process.

    python mutations.py DIRECTORY

runs every `*.mlir` in the directory and prints `name exit-code` a line; the line before a crash is the last.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
from pathlib import Path

from qfuse import cli

TYPES = ("i1", "i4", "i8", "i16", "i32", "i64", "index", "f16", "bf16", "f32", "f64")
NUMBERS = ("0", "1", "-1", "3", "127", "128", "255", "300", "-129", "2147483648", "4294967296")
FLOATS = ("0.0", "-0.0", "0.5", "1.0", "2.5", "1.0e38", "1.0e-45", "0x7FC00000")
OPERATIONS = (
    ("arith.extsi", "arith.extui"),
    ("arith.sitofp", "arith.uitofp"),
    ("arith.fptosi", "arith.fptoui"),
    ("arith.addf", "arith.subf"),
    ("arith.mulf", "arith.divf"),
    ("arith.maximumf", "arith.minimumf"),
    ("arith.maximumf", "arith.maxnumf"),
    ("arith.subi", "arith.muli"),
    ("math.roundeven", "math.floor"),
    ('"parallel"', '"reduction"'),
)
MAPS = ("d1, d0", "d0, 0", "d0 + d1, d1", "d0 mod 2, d1", "d0 floordiv 2, d1", "d1, d1", "3 - d0, d1")


def delete_line(text: str, rng: random.Random) -> str:
    """Without one line."""
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def delete_operation(text: str, rng: random.Random) -> str:
    """Without one operation; its first operand takes the place of its result."""
    found = list(re.finditer(r"^ *(%\w+) = \S+ (%\w+).*\n", text, re.MULTILINE))
    if not found:
        return text
    chosen = rng.choice(found)
    rest = text[: chosen.start()] + text[chosen.end() :]
    return re.sub(re.escape(chosen[1]) + r"\b", chosen[2], rest)


def change_number(text: str, rng: random.Random) -> str:
    """Another constant."""
    found = list(re.finditer(r"arith\.constant (?:(-?\d+\.\d+)|(-?\d+)) :", text))
    if not found:
        return text
    chosen = rng.choice(found)
    number = rng.choice(FLOATS if chosen[1] else NUMBERS)
    return f"{text[: chosen.start()]}arith.constant {number} :{text[chosen.end() :]}"


def change_type(text: str, rng: random.Random) -> str:
    """Another element type, throughout."""
    before, after = rng.choice(TYPES), rng.choice(TYPES)
    return re.sub(rf"(?<![%\w])((?:\d+x|\?x)*){before}\b", rf"\g<1>{after}", text)


def change_extent(text: str, rng: random.Random) -> str:
    """Another extent, throughout."""
    return re.sub(r"(?<=[<x])4(?=x)", rng.choice(("0", "1", "2", "3", "?", "16")), text)


def change_operation(text: str, rng: random.Random) -> str:
    """One operation becomes its neighbour in meaning."""
    before, after = rng.choice(OPERATIONS)
    if rng.random() < 0.5:
        before, after = after, before
    places = [found.start() for found in re.finditer(re.escape(before), text)]
    if not places:
        return text
    place = rng.choice(places)
    return text[:place] + after + text[place + len(before) :]


def change_map(text: str, rng: random.Random) -> str:
    """One identity map becomes another."""
    places = [found.start() for found in re.finditer(r"-> \(d0, d1\)>", text)]
    if not places:
        return text
    place = rng.choice(places)
    return f"{text[:place]}-> ({rng.choice(MAPS)})>{text[place + len('-> (d0, d1)>') :]}"


def change_operand(text: str, rng: random.Random) -> str:
    """One use of a value becomes the use of another."""
    found = list(re.finditer(r"%\w+", text))
    chosen, other = rng.choice(found), rng.choice(found)
    return text[: chosen.start()] + other[0] + text[chosen.end() :]


MUTATIONS = (
    delete_line,
    delete_operation,
    delete_operation,
    change_number,
    change_number,
    change_type,
    change_extent,
    change_operation,
    change_operation,
    change_map,
    change_operand,
)


def mutate(text: str, rng: random.Random) -> str:
    """One to three mutations."""
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(MUTATIONS)(text, rng)
    return text


def main(directory: str) -> int:
    """Runs all files of a directory; every exit code is printed at once."""
    for path in sorted(Path(directory).glob("*.mlir")):
        print(path.name, end=" ", flush=True)
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = cli.opt_main([str(path), "-o", str(path.with_suffix(".out")), "--remarks"])
        if code == 1 and errors.getvalue().count("\n") != 1:
            print(f"{code}, with other than one line on standard error: {errors.getvalue()!r}")
            continue
        if code == 0:
            with contextlib.redirect_stderr(errors):
                code = cli.opt_main([str(path.with_suffix(".out")), "-o", str(path.with_suffix(".again"))])
            if code:
                print(f"the output cannot be read again: {errors.getvalue()!r}")
                continue
        print(code, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
