"""Cases computed by several processes: the same rows, every number once, and no process that stays behind."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rawflash.errors import RawflashError, UsageError
from rawflash.lab import crew
from rawflash.lab.crew import Crew
from rawflash.lab.memo import Memo
from rawflash.lab.registry import chosen
from rawflash.lab.workbench import lab_for
from rawflash.output import Bar
from tests.processes import alive, family
from tests.test_config import settings

SMALL = ("experiment=traffic", "experiment.options.N=[64,128]")


@contextlib.contextmanager
def working(memo: Memo, jobs: int, *arguments: str) -> Iterator[tuple[Crew, dict[str, Any]]]:
    asked = replace(settings(*arguments), jobs=jobs)
    experiments = chosen(asked.experiments)
    labs = {name: lab_for(name, asked, None, memo, alone=True) for name in experiments}
    with Crew(experiments, labs, asked) as made:
        yield made, labs


def rows(memo: Memo, jobs: int) -> list[Any]:
    with working(memo, jobs, *SMALL) as (made, labs), Bar(0) as bar:
        found = [row for outcome in made.outcomes("traffic", bar) for row in outcome.rows]
        assert labs["traffic"].tags["backend"] == "emu"
        assert len(multiprocessing.active_children()) == (jobs if jobs > 1 else 0)
    return found


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "PATIENCE_S", -1.0)


def test_two_processes_find_the_rows_of_one_and_compute_every_number_once(at_once: None, tmp_path: Path) -> None:
    alone, shared = Memo(tmp_path / "1"), Memo(tmp_path / "2")
    for memo in (alone, shared):
        memo.folder.mkdir()
    one, two = rows(alone, 1), rows(shared, 2)
    assert one == two and one
    assert shared.computed == alone.computed == len(list(shared.folder.iterdir())) > 2 and shared.reused == 0
    again = Memo(shared.folder)
    assert rows(again, 2) == one and again.computed == 0 and again.reused >= shared.computed
    fresh = Memo(shared.folder, fresh=True)
    assert rows(fresh, 2) == one and (fresh.computed, fresh.reused) == (shared.computed, 0)


def test_what_is_quickly_done_starts_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(crew, "PATIENCE_S", math.inf)
    with working(Memo(tmp_path), 2, *SMALL) as (made, _), Bar(0) as bar:
        assert all(outcome.well for outcome in made.outcomes("traffic", bar))
        assert not multiprocessing.active_children()


def test_a_killed_process_is_told_and_none_stays(at_once: None, tmp_path: Path) -> None:
    with working(Memo(tmp_path), 2, *SMALL) as (made, _), Bar(0) as bar:
        some = made.outcomes("traffic", bar)
        next(some)
        for process in multiprocessing.active_children():
            process.kill()
        with pytest.raises(RawflashError, match=r"traffic .*was killed, perhaps for want of memory: what was computed is kept"):
            list(some)
    assert not multiprocessing.active_children()


def test_several_processes_on_one_gpu_are_refused(tmp_path: Path) -> None:
    asked = replace(settings(*SMALL), jobs=2)
    lab = lab_for("traffic", asked, None, Memo(tmp_path), alone=True)
    lab.device = lab.emulator  # any backend: only whether there is one counts
    with pytest.raises(UsageError, match="several kernels on one GPU at once"):
        Crew(chosen(["traffic"]), {"traffic": lab}, asked)


@pytest.mark.parametrize("jobs", ["0", "-1"])
def test_a_number_of_processes_that_is_none_is_refused(program: Callable[..., Any], jobs: str) -> None:
    done = program("experiment=traffic", f"experiment.jobs={jobs}")
    assert done.code == 2 and f"experiment.jobs={jobs} is not a number of processes" in done.err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_stopped_experiment(workdir: Path, how: signal.Signals) -> None:
    """SIGKILL leaves nobody who could end them; Ctrl-C reaches all of them at once, as from a terminal."""
    begin = "import rawflash.lab.crew as c; c.PATIENCE_S = -1.0; from rawflash.run import main; import sys; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", begin, "experiment=mutations", "experiment.jobs=2", "experiment.fresh=true", "tracking=none"]
    started = subprocess.Popen(command, cwd=workdir, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while len(started_by := family(started.pid)) < 2 and started.poll() is None:
        time.sleep(0.05)
    assert started.poll() is None
    os.killpg(started.pid, how) if how == signal.SIGINT else started.kill()
    _, told = started.communicate()
    while any(map(alive, started_by)):
        time.sleep(0.05)
    if how == signal.SIGINT:
        assert started.returncode == 130 and "the same command goes on from there" in told and "Traceback" not in told
