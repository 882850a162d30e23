"""What one call of rawflash.run.main knows: Hydra gives no other way to hand things to a task or a callback, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rawflash.sweep import Sweep

__all__ = ["Abort", "Session"]


class Session:
    """`arguments` of the command line; the exit `code` and the `error` of an invocation; the `sweep` that is open; `debug`."""

    arguments: tuple[str, ...] = ()
    code = 0
    error: Exception | None = None
    sweep: Sweep | None = None
    debug = False


class Abort(BaseException):
    """Leaves Hydra at once; the error is in the session. (Hydra turns an Exception of a callback into a warning.)"""
