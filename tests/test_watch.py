"""The progress bar, and jobs that stop when their sweep does."""

from __future__ import annotations

import io
import sys
import threading
import time
from pathlib import Path

import pytest

from rawflash.record import RECORD, Record, ask_to_stop, first_to_say, starts_below, stop_reason
from rawflash.results import Row, write_results
from rawflash.signals import Stopped
from rawflash.store import TrackingConf
from rawflash.watch import Bar, look, obedient


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two points, one done and one under way, of three."""
    row = Row("fa2", "OK", point={"block_size": "16"})
    write_results(tmp_path / "0" / "results.json", [row], {})
    write_results(tmp_path / "1" / "results.json", [row, Row("fa2", "RUNNING", point={"block_size": "32"})], {}, complete=False)
    Record("a sweep", [], TrackingConf(enabled=False), ["block_size"], 3, True).write(tmp_path)
    return tmp_path


def test_what_is_done_and_what_is_under_way(sweep: Path) -> None:
    done: set[str] = set()
    assert look(sweep, done) == ["fa2 block_size=32"] and len(done) == 1
    write_results(sweep / "1" / "results.json", [], {})
    assert look(sweep, done) == [] and len(done) == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_shows_points_and_the_current_one_on_a_terminal_only(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar(sweep, 3)
    bar.start()
    deadline = time.monotonic() + 300
    while "fa2 block_size=32" not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.05)
    bar.stop()
    assert "1/3" in terminal.getvalue() and "fa2 block_size=32" in terminal.getvalue() and "left" in terminal.getvalue()
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stderr", piped)
    quiet = Bar(sweep, 3)
    quiet.start()
    quiet.stop()
    assert piped.getvalue() == ""


def test_a_job_stops_when_its_sweep_does(sweep: Path) -> None:
    record = Record.read(sweep)
    record.owner = "another boot-1-2"  # a process elsewhere, which cannot be judged from here
    assert stop_reason(sweep, record) == ""
    threading.Timer(0.2, ask_to_stop, [sweep, "stopped by SIGINT"]).start()
    with pytest.raises(Stopped), obedient(sweep, record):
        for _ in range(3000):
            time.sleep(0.1)
    assert stop_reason(sweep, record) == "stopped by SIGINT"


def test_a_job_stops_when_whoever_started_it_is_gone(sweep: Path) -> None:
    record = Record.read(sweep)
    boot, pid, started = record.owner.split("-")
    assert stop_reason(sweep, record) == ""
    record.owner = f"{boot}-{pid}-{int(started) - 1}"  # the number was given to another process since
    assert stop_reason(sweep, record) == "the program that started the sweep is gone"
    with pytest.raises(Stopped), obedient(sweep, record):
        for _ in range(3000):
            time.sleep(0.1)


def test_only_the_first_says_it(tmp_path: Path) -> None:
    assert [first_to_say(tmp_path, "down"), first_to_say(tmp_path, "down")] == [True, False]


def test_invocations_are_found_below_outputs(tmp_path: Path) -> None:
    for name in ("outputs/day/10-00-00", "outputs/day/10-00-01", "mine"):
        (tmp_path / name).mkdir(parents=True)
        Record("x", [], TrackingConf()).write(tmp_path / name)
    assert starts_below([tmp_path / "outputs"]) == [tmp_path / "outputs/day/10-00-00", tmp_path / "outputs/day/10-00-01"]
    assert starts_below([tmp_path / "mine", tmp_path / "mine"]) == [tmp_path / "mine"]
    (tmp_path / "mine" / RECORD).write_text('{"name": "x", "arguments": [], "tracking": {}, "colour": "blue"}')
    assert Record.read(tmp_path / "mine").name == "x", "entries of newer versions are left out"
