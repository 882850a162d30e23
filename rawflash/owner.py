"""Who started a run, so that a later start can tell a run whose process is gone (kill -9, power cut) from one that is running.

An owner is a text without host name: a digest of the machine's boot, the process id, and the process's start time. Owners of
another boot or another machine cannot be judged from here and are left alone.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

__all__ = ["is_gone", "this_process"]


@cache
def _boot() -> str:
    """Digest of this boot of this machine; "" where the system does not tell."""
    try:
        return hashlib.sha256(Path("/proc/sys/kernel/random/boot_id").read_bytes()).hexdigest()[:12]
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; "" when there is no such process, or nobody has yet collected its end."""
    try:
        entries = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
        return "" if entries[0] == "Z" else entries[19]
    except (OSError, IndexError):
        return ""


def this_process() -> str:
    """The owner text of the calling process; "" where it could not be judged later."""
    return f"{_boot()}-{os.getpid()}-{_started(os.getpid())}" if _boot() else ""


def is_gone(owner: str) -> bool:
    """True when `owner` was a process of this boot of this machine that has ended. False whenever that is not certain."""
    boot, _, process = owner.partition("-")
    pid, _, started = process.partition("-")
    if not boot or boot != _boot() or not pid.isdecimal() or not started:
        return False
    return _started(int(pid)) != started
