"""Numbers that papers print: experiments/published.yaml, each with its citation and how sure it is."""

from __future__ import annotations

import difflib
from functools import cache
from typing import Any

from rawflash.config import read_yaml
from rawflash.errors import UsageError
from rawflash.paths import experiments_dir

__all__ = ["published_entries", "published_entry"]


@cache
def published_entries() -> dict[str, dict[str, Any]]:
    """Every entry by id. An entry has at least id, paper, where and confidence."""
    return {entry["id"]: entry for entry in read_yaml(experiments_dir() / "published.yaml")["entries"]}


def published_entry(name: str) -> dict[str, Any]:
    """The entry called `name`. Raises UsageError with the closest name for one that is not there."""
    known = published_entries()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the known ones are {', '.join(known)}"
        raise UsageError(f"experiments/published.yaml has no entry {name!r}: {hint}")
    return known[name]
