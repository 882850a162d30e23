"""One sweep, four launchers, the same numbers; and how many jobs run at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rawflash import launchers
from rawflash.errors import UsageError
from rawflash.explain import explain
from rawflash.paths import conf_dir
from rawflash.record import Record
from rawflash.results import read_rows
from rawflash.run import _of_launcher
from rawflash.signals import Stopped
from tests.processes import alive, family

Program = Callable[..., Any]
SWEEP = ("-m", "kernel=fa2", "problem=tiny", "block_size=16,32", "backend=emu", "tracking=none", "hydra.sweep.dir=out")
READY = sorted(path.stem for path in (conf_dir() / "hydra" / "launcher").glob("*.yaml"))


def counted(folder: Path) -> bytes:
    """All numbers of a sweep that do not come from a clock, as bytes."""
    rows = read_rows(folder / "results.json")
    assert [row.status for row in rows] == ["OK", "OK"]
    numbers = [{k: v for k, v in row.metrics.items() if not k.startswith("host/")} for row in rows]
    return json.dumps([[row.variant, row.point, row.tensors, row.resources, row.tags["ptx_hash"]] for row in rows] + numbers).encode()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the basic launcher counts."""
    from rawflash.run import main

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("basic"))
        patch.setattr("rawflash.summary.show_rows", lambda *_: [])
        assert main(SWEEP) == 0
        return counted(Path("out"))


@pytest.mark.parametrize(
    ("launcher", "package"),
    [
        ("laptop", "hydra_plugins.hydra_joblib_launcher"),
        ("slurm_here", "hydra_plugins.hydra_submitit_launcher"),
        pytest.param("ray_here", "ray", marks=pytest.mark.slow),
    ],
)
def test_the_same_numbers_whatever_the_launcher(
    process: Program, workdir: Path, expected: bytes, capfd: Any, launcher: str, package: str
) -> None:
    """Case M13: the launcher that is named runs the points, each in a process of its own, below one parent."""
    pytest.importorskip(package, reason=f"{package} is not installed: `pip install 'rawflash[test]'` (Ray has no wheel for every Python)")
    got = process(*SWEEP, f"hydra/launcher={launcher}", env={"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"})
    assert (got.code, got.err) == (0, "")
    assert counted(workdir / "out") == expected
    record = Record.read(workdir / "out")
    owners = {json.loads(path.read_text("utf-8"))["owner"] for path in workdir.glob("out/*/results.json")}
    assert record.owner not in owners and record.threads >= 1


def hydra(target: str, **values: Any) -> Any:
    return OmegaConf.create({"launcher": {"_target_": f"x.{target}", **values}, "sweeper": {"max_batch_size": None}})


@pytest.mark.parametrize(
    ("cores", "asked", "points", "jobs", "threads"),
    [(8, -1, 60, 8, 1), (8, -1, 2, 2, 4), (8, 3, 60, 3, 2), (1, -1, 9, 1, 1), (2, 16, 99, 16, 1)],
)
def test_no_core_has_two_masters(monkeypatch: pytest.MonkeyPatch, cores: int, asked: int, points: int, jobs: int, threads: int) -> None:
    monkeypatch.setattr(launchers, "cores", lambda: cores)
    conf = hydra("JoblibLauncher", n_jobs=asked)
    assert launchers.fit(conf, points) == threads and conf.launcher.n_jobs == jobs
    conf = hydra("LocalLauncher")
    conf.sweeper.max_batch_size = None if asked < 0 else asked
    assert launchers.fit(conf, points) == threads and conf.sweeper.max_batch_size == jobs


def test_clusters_say_it_themselves() -> None:
    assert launchers.fit(hydra("SlurmLauncher", cpus_per_task=4), 9) == 4
    assert launchers.fit(hydra("SlurmLauncher", cpus_per_task=None), 9) == 0
    assert launchers.fit(hydra("RayLauncher", ray={"remote": {"num_cpus": 2}}), 9) == 2
    assert launchers.fit(hydra("BasicLauncher"), 9) == 0


def test_one_gpu_is_not_shared() -> None:
    def refuse(conf: Any, *backends: str, usable: bool = True) -> None:
        launchers.refuse_shared_gpu(conf, set(backends), lambda: usable)

    for conf in (hydra("JoblibLauncher", n_jobs=2), hydra("RayLauncher", ray={"remote": {"num_cpus": 1}})):
        for backends in (("cupy",), ("emu", "cupy"), ("auto",)):
            with pytest.raises(UsageError, match="several jobs on one GPU at once, and the times of all of them would be wrong"):
                refuse(conf, *backends)
        refuse(conf, "emu")
        refuse(conf, "auto", usable=False)
    refuse(hydra("JoblibLauncher", n_jobs=1), "cupy")
    refuse(hydra("BasicLauncher"), "cupy")
    refuse(hydra("SlurmLauncher"), "cupy")
    refuse(hydra("RayLauncher", ray={"remote": {"num_gpus": 1}}), "cupy")


def test_a_parallel_launcher_with_one_gpu_is_refused_before_anything_is_made(program: Program, workdir: Path) -> None:
    got = program("-m", "kernel=fa2", "block_size=16,32", "backend=cupy", "hydra/launcher=laptop", "hydra.launcher.n_jobs=2")
    assert got.code == 2 and "several jobs on one GPU" in got.err and got.err.count("\n") == 1
    assert not list(workdir.iterdir())


def test_a_launcher_that_cannot_start_is_told_in_one_sentence(program: Program, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(workdir))  # no srun
    got = program("-m", "kernel=fa2", "block_size=16,32", "backend=emu", "hydra/launcher=slurm")
    assert got.code == 1 and got.err.count("\n") == 1
    assert got.err.startswith('rawflash: hydra/launcher=slurm could not run the jobs to their end: Could not detect "srun"')
    assert not list(workdir.glob("outputs/*/*/invocation.json"))


def test_a_signal_that_a_launcher_wraps_is_still_a_signal() -> None:
    error = SystemError("returned a result with an exception set")
    error.__cause__ = ValueError()
    error.__cause__.__context__ = stop = Stopped(signal.SIGINT)
    assert _of_launcher(error) is stop


def test_workers_do_not_outlive_a_killed_sweep(workdir: Path) -> None:
    arguments = ["-m", "kernel=fa1,fa2", "problem=tiny", "backend=emu", "problem.N=58,74,90,98", "problem.d=16,24", "tracking=none"]
    command = [sys.executable, "-m", "rawflash.run", *arguments, "hydra/launcher=laptop", "hydra.launcher.n_jobs=2"]
    started = subprocess.Popen(command, cwd=workdir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while started.poll() is None and not list(workdir.glob("outputs/*/*/*/results.json")):
        time.sleep(0.05)
    assert started.poll() is None
    workers = family(started.pid)
    assert len(workers) >= 2
    started.kill()
    started.wait()
    while any(map(alive, workers)):
        time.sleep(0.1)


def test_a_launcher_that_is_not_installed_says_what_to_install() -> None:
    error = RuntimeError("In 'hydra/config': Could not find 'hydra/launcher/ray'")
    error.missing_cfg_file = "hydra/launcher/ray"  # type: ignore[attr-defined]
    assert explain(error, str) == 'hydra/launcher=ray is not installed: `pip install "rawflash[ray]"`'


def test_the_readme_names_every_ready_launcher() -> None:
    text = (Path(__file__).resolve().parent.parent / "README.md").read_text("utf-8").split("## Outgrowing one machine")[1].split("## ")[0]
    assert sorted(set(re.findall(r"hydra/launcher=(\w+)", text))) == READY
