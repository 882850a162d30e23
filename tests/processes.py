"""Processes as /proc shows them: what a program started, and whether it is still there."""

from __future__ import annotations

import contextlib
from pathlib import Path


def family(pid: int) -> list[int]:
    """The processes that `pid` started, and theirs."""
    with contextlib.suppress(OSError):
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
        return [*children, *(grandchild for child in children for grandchild in family(child))]
    return []


def alive(pid: int) -> bool:
    """False for a process that has ended, also when nobody has yet collected its end."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
