"""Nothing lost: results are on disk first, and `rawflash sync` files what a store missed, once."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawflash import results
from rawflash.errors import TrackingError
from rawflash.record import Record
from rawflash.results import read_rows
from rawflash.tracking import Tracker
from tests.test_tracking import family, runs

Program = Callable[..., Any]
SWEEP = ("-m", "kernel=naive,fa2", "block_size=16,32", "backend=emu")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a second per sweep, and tests/test_swept.py looks at them."""
    monkeypatch.setattr("rawflash.summary.show_rows", lambda *_: [])


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def fails_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Tracker.log works so often, then no more; returns what makes it work again."""
    real, count = Tracker.log, []

    def log(self: Tracker, *arguments: Any, **entries: Any) -> None:
        count.append(1)
        if len(count) > calls:
            raise TrackingError("the disk of the server is full")
        real(self, *arguments, **entries)

    monkeypatch.setattr(Tracker, "log", log)
    return lambda: monkeypatch.setattr(Tracker, "log", real)


def complete(workdir: Path, name: str = "mlflow.db") -> None:
    """One parent and four children, each once, with all of its metrics and artifacts, in the store of `workdir`."""
    parent, children = family(workdir) if name == "mlflow.db" else (runs(workdir, name)[0], runs(workdir, name)[1:])
    assert sorted(run["name"] for run in children) == ["fa2 b16 N1024", "fa2 b32 N1024", "naive b16 N1024", "naive b32 N1024"]
    assert {run["status"] for run in [parent, *children]} == {"FINISHED"}
    assert all(run["metrics"]["err/ratio"] == 0.5 and run["tags"]["rawflash.complete"] == "true" for run in children)
    assert "| variant |" in parent["tags"]["mlflow.note.content"]


@pytest.mark.parametrize("calls", [0, 1, 3, 4, 9])
def test_a_store_that_fails_in_the_middle(logged: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    mended = fails_after(calls, monkeypatch)
    got = logged(*SWEEP)
    folder = only(workdir, "outputs/*/*")
    assert got.code == 1 and got.err.count("results are not filed for now: the disk of the server is full") == 1
    assert "the work is done, but not everything could be filed" in got.err and "`rawflash sync`" in got.err
    assert [row.status for row in read_rows(folder / "results.json")] == ["OK"] * 4
    assert not [run for run in runs(workdir) if run["status"] == "RUNNING"] or calls == 0
    mended()
    first = logged("sync")
    assert first.code == 0 and "runs filed" in first.out
    complete(workdir)
    assert not any(row.unfiled for path in folder.glob("*/results.json") for row in read_rows(path))
    again = logged("sync", str(folder))
    assert (again.code, again.out) == (0, "nothing new to file\n")
    complete(workdir)


def test_a_store_that_comes_back_before_the_end_needs_no_sync(logged: Program, workdir: Path, quick: Any, monkeypatch: Any) -> None:
    mended = fails_after(2, monkeypatch)
    monkeypatch.setattr("rawflash.sweep.gather", lambda *a, **k: [mended(), results_gather(*a, **k)][1])
    from rawflash.sync import gather as results_gather

    assert logged(*SWEEP).code == 0
    complete(workdir)
    assert logged("sync").out == "nothing new to file\n"


def test_a_server_that_is_down_from_the_start(program: Program, workdir: Path, quick: Any, made_store: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    got = program(*SWEEP, "tracking.timeout_s=2", mlflow=True)
    assert got.code == 1 and got.err.count("does not answer within 2 s (Connection refused)") == 2, "at the start, and at the end"
    assert [row.status for row in read_rows(only(workdir, "outputs/*/*/results.json"))] == ["OK"] * 4
    assert program("sync", "outputs", mlflow=True).code == 1
    shutil.copy(made_store, workdir)
    assert program("sync", "outputs", "tracking.uri=sqlite:///mlflow.db", mlflow=True).code == 0
    complete(workdir)
    assert program("sync", "tracking.uri=sqlite:///mlflow.db", mlflow=True).out == "nothing new to file\n"


def test_a_locked_and_a_half_made_store_do_not_stop_a_sweep(logged: Program, workdir: Path, quick: Any, made_store: Path) -> None:
    """Case M05: the file stays as it was found, and its way out is told."""
    with contextlib.closing(sqlite3.connect(workdir / "mlflow.db")) as db:
        db.execute("begin exclusive")
        got = logged(*SWEEP, "tracking.timeout_s=0.5")
        assert got.code == 1 and "is locked by another program" in got.err
    (workdir / "mlflow.db").write_text("half of a database " * 100)
    got = logged(*SWEEP)
    assert got.code == 1 and "is no database" in got.err
    shutil.copy(made_store, workdir)
    assert logged("sync").code == 0
    parents = [run for run in runs(workdir) if run["parent"] is None]
    assert len(parents) == 2 and len(runs(workdir)) == 10


def test_a_full_disk_ends_the_sweep_with_one_sentence(logged: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = os.replace, []

    def replace(source: Any, target: Any) -> None:
        written.append(target)
        if len(written) > 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(results.os, "replace", replace)
    got = logged(*SWEEP)
    assert got.code == 1 and "could not be written (No space left on device): free some space" in got.err and "Traceback" not in got.err
    assert not [run for run in runs(workdir) if run["status"] == "RUNNING"]
    assert not list(workdir.rglob(".*.json.*")), "no half-written file"
    monkeypatch.setattr(results.os, "replace", real)
    assert logged(*SWEEP, "resume=true").code == 0, "a second start works"
    assert logged("sync").code == 0


def test_a_password_stays_out_of_everything(program: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    got = program(*SWEEP, "tracking.timeout_s=2", mlflow=True)
    texts = [path.read_text("utf-8", errors="replace") for path in workdir.rglob("*") if path.is_file()]
    assert got.code == 1 and "http://127.0.0.1:9" in got.err
    assert not [text for text in [got.out, got.err, *texts] if "secret" in text]
    record = Record.read(only(workdir, "outputs/*/*"))
    assert record.tracking.uri is None, "the environment alone names this store"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    got = program("sync", mlflow=True)
    assert got.code == 2 and "named by MLFLOW_TRACKING_URI alone, which is not set" in got.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "there is no folder nowhere"),
        ((".",), "there are no results below ."),
        (("--all",), "sync takes folders, tracking.uri=, tracking.experiment= and --over, not --all"),
        (("tracking.url=x",), "not tracking.url=x"),
    ],
)
def test_what_sync_does_not_take(program: Program, arguments: tuple[str, ...], sentence: str) -> None:
    got = program("sync", *arguments, mlflow=True)
    assert got.code == 2 and sentence in got.err and got.err.count("\n") == 1


def test_a_sweep_that_runs_is_left_to_run(logged: Program, workdir: Path, quick: Any) -> None:
    """A row under way in a living process stays RUNNING; --over says that nothing runs any more."""
    assert logged(*SWEEP).code == 0
    folder = only(workdir, "outputs/*/*")
    path = folder / "3" / "results.json"
    rows = read_rows(path)
    rows[0].status = "RUNNING"
    results.write_results(path, rows, {}, complete=False)
    (folder / "table.md").unlink()
    got = logged("sync")
    assert got.code == 0 and "still running" in got.out
    assert read_rows(path)[0].status == "RUNNING"
    assert logged("sync", "--over").code == 0
    assert read_rows(path)[0].status == "INTERRUPTED" and (folder / "table.md").exists()
