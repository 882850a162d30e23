"""What a person sees: progress on stderr, tables and the last lines on stdout. Plain when piped, rich on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rawflash.filing import Filing
from rawflash.provenance import local_command, ui_command
from rawflash.report import tables
from rawflash.results import Row
from rawflash.tables import Table, plain, print_rich

__all__ = ["Bar", "Progress", "print_all", "print_end", "print_tables", "say"]


def say(text: str = "") -> None:
    """One line on stdout. A reader that went away (| head) does not stop the work."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """Which step of how many is running; a status line on a terminal, nothing when stderr is piped or when `quiet`."""

    def __init__(self, total: int, quiet: bool = False) -> None:
        self.total, self.done, self.quiet = total, 0, quiet

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show `what` while the body runs."""
        self.done += 1
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console

            with Console(stderr=True).status(f"{self.done}/{self.total} {what}"):
                yield
        else:
            yield


class Bar:
    """A progress bar over `total` steps on a terminal; one line per `tell` when stderr is piped."""

    def __init__(self, total: int) -> None:
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._bar = RichProgress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Bar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show `what` while the body runs, then advance by one."""
        if self._bar:
            self._bar.update(self._task, description=what)
        yield
        if self._bar:
            self._bar.advance(self._task)

    def tell(self, line: str) -> None:
        """One line that stays."""
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)


def print_tables(rows: Sequence[Row], title: str) -> None:
    """All tables of a report."""
    print_all(tables(rows, title))


def print_all(shown: Sequence[Table]) -> None:
    """Tables on stdout, coloured on a terminal."""
    say()
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        for table in shown:
            print_rich(table, console)
            console.print()
    else:
        for table in shown:
            say(plain(table))


def print_end(filing: Filing, folder: Path, arguments: Sequence[str]) -> None:
    """The last lines: where the results are, how to open them in MLflow, how to repeat the run."""
    with contextlib.suppress(ValueError):
        folder = folder.resolve().relative_to(Path.cwd())
    say(f"results  {folder}")
    if filing.tracker is not None:
        say(f"mlflow   {ui_command(filing.tracker.store.uri)}")
    say(f"repeat   {local_command(arguments)}")
