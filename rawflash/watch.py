"""Two watchers of a sweep's folder: the progress bar in the process that was started, and in every other process the one that
makes its job stop when the sweep is stopped, or when whoever started it is gone (kill -9), and then leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rawflash.owner import this_process
from rawflash.record import Record, stop_reason
from rawflash.results import RESULTS
from rawflash.signals import caught

__all__ = ["Bar", "leave_with", "look", "obedient"]

_EVERY_S = 0.5


@contextlib.contextmanager
def obedient(folder: Path, record: Record) -> Iterator[None]:
    """Inside, a job stops (Stopped is raised) as soon as the sweep in `folder` is stopped or abandoned. No-op in its own process."""
    if record.owner == this_process() or threading.current_thread() is not threading.main_thread():
        yield
        return
    over, lock = threading.Event(), threading.Lock()

    def watch() -> None:
        while not over.wait(_EVERY_S):
            if stop_reason(folder, record):
                with lock:
                    if not over.is_set():
                        os.kill(os.getpid(), signal.SIGTERM)
                return

    with caught():
        threading.Thread(target=watch, daemon=True).start()
        _Here.jobs += 1
        try:
            yield
        finally:
            _Here.jobs -= 1
            with lock:
                over.set()


class _Here:
    """This process: how many jobs it is at (0 or 1), and the sweep whose master it will not outlive."""

    jobs = 0
    record: Record | None = None


def leave_with(record: Record) -> None:
    """End this process when whoever started the sweep is gone and no job is under way: a launcher's idle worker waits for ever.

    No-op in the process that was started.
    """
    if record.owner == this_process():
        return
    begun = _Here.record is not None
    _Here.record = record
    if not begun:
        threading.Thread(target=_wait_and_leave, daemon=True).start()


def _wait_and_leave() -> None:
    while _Here.jobs or not (_Here.record and _Here.record.gone):
        time.sleep(_EVERY_S)
    os._exit(1)


def look(folder: Path, done: set[str]) -> list[str]:
    """Add to `done` the results.json of points that are complete; returns what the others are at, as `variant key=value`."""
    current = []
    for path in folder.rglob(RESULTS):
        if path.parent == folder or str(path) in done:
            continue
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            document = json.loads(path.read_text("utf-8"))
            if document.get("complete", True):
                done.add(str(path))
            else:
                row = document["rows"][-1]
                current.append(" ".join([row["variant"], *(f"{key}={value}" for key, value in row["point"].items())]))
    return current


class Bar:
    """Points done, what is computed now, and the time that is left, on a terminal; nothing when stderr is piped."""

    def __init__(self, folder: Path, points: int) -> None:
        self.folder, self.points = folder, points
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Show it from now on."""
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Take it away."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns: list[Any] = [
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("points"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        ]
        columns.append(TextColumn("{task.description}", markup=False))
        done: set[str] = set()
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
            task = bar.add_task("", total=self.points)
            while not self._over.wait(_EVERY_S):
                current = look(self.folder, done)
                bar.update(task, completed=len(done), description=", ".join(current))
