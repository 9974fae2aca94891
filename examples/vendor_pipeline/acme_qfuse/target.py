"""The target: acme.toml."""

from __future__ import annotations

from pathlib import Path

import qfuse

FILE = Path(__file__).with_name("acme.toml")


def load() -> qfuse.Target:
    """The target that acme.toml describes."""
    return qfuse.Target.load(FILE)
