"""Ctrl-C, SIGTERM, SIGHUP and SIGUSR2 as one exception, raised where nothing half-done is left behind.

While `deferred()` holds, a signal is remembered and raised on leaving: a run that was just created must be known before the
program may stop, or nobody will end it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

__all__ = ["Stopped", "caught", "deferred", "retake"]

# SIGUSR2: SLURM takes a job away, as submitit asks it to say.
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2")
_MOMENT_S = 0.01


class Stopped(BaseException):
    """The program was asked to stop. Not an Exception, so that nobody takes it for a failed point. `kept`: where results lie."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self.kept: Path | None = None
        self.name = signal.Signals(signum).name
        super().__init__(f"stopped by {self.name}")

    @property
    def exit_code(self) -> int:
        """What a shell reports for a program that ended by this signal."""
        return 128 + self.signum


class _State:
    depth = 0
    waiting: int | None = None


def _handle(signum: int, frame: FrameType | None) -> None:
    if _State.depth:
        _State.waiting = signum
    else:
        raise Stopped(signum)


@contextlib.contextmanager
def caught() -> Iterator[None]:
    """Inside, these signals raise Stopped in the main thread; the handlers of before are put back on leaving."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(getattr(signal, name), _handle) for name in _SIGNALS}
    swallowed = sys.unraisablehook
    sys.unraisablehook = lambda told: _again(told.exc_value) if isinstance(told.exc_value, Stopped) else swallowed(told)
    try:
        yield
    finally:
        sys.unraisablehook = swallowed
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def retake() -> None:
    """Inside caught(), catch the signals again that another library has taken since: Ray ends the program with a dump of its stack."""
    numbers = [getattr(signal, name) for name in _SIGNALS]
    if threading.current_thread() is threading.main_thread() and any(signal.getsignal(number) is _handle for number in numbers):
        for number in numbers:
            signal.signal(number, _handle)


def _again(lost: Stopped) -> None:
    """A signal that came while Python freed an object was raised there, where nothing passes on: send it once more, a moment later."""

    def send() -> None:
        if signal.getsignal(lost.signum) is _handle:
            os.kill(os.getpid(), lost.signum)

    later = threading.Timer(_MOMENT_S, send)
    later.daemon = True
    later.start()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Inside, no Stopped is raised; one that came meanwhile is raised on leaving the outermost."""
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
        if not _State.depth and _State.waiting is not None:
            signum, _State.waiting = _State.waiting, None
            raise Stopped(signum)
