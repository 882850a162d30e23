"""Fixtures for tests of the program: a clean working directory, the command line, and kernels that take no time."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rawflash
from rawflash.execute import RunResult, TensorBytes


@dataclass
class Outcome:
    """What a call of the program gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an environment without anybody's MLflow or Hydra settings."""
    for name in os.environ:
        if name.startswith(("MLFLOW_", "HYDRA_")):
            monkeypatch.delenv(name)
    # Processes that a test starts run the tree under test, not a copy that was installed earlier.
    monkeypatch.setenv("PYTHONPATH", str(Path(rawflash.__file__).resolve().parent.parent))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def program(workdir: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Call rawflash.run.main in this process: program("kernel=fa2", ...) -> Outcome. MLflow is off unless asked for."""
    from rawflash.run import main

    def call(*arguments: str, mlflow: bool = False) -> Outcome:
        extra = (
            ()
            if mlflow or any("tracking" in a for a in arguments) or arguments[:1] in (("doctor",), ("calculator",))
            else ("tracking=none",)
        )
        try:
            code = main([*arguments, *extra])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return call


@pytest.fixture
def process(workdir: Path) -> Callable[..., Outcome]:
    """Start the program as a process of its own: process("kernel=fa2", env={...}) -> Outcome."""

    def call(*arguments: str, env: Mapping[str, str] | None = None, cwd: Path = workdir, module: str = "rawflash.run") -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Replace the execution of kernels. What a test puts into the dict under a variant's name becomes that variant's result:

    a status with a sentence, an exception to raise, or a dict of metrics.
    """
    from rawflash import job

    wanted: dict[str, Any] = {}

    def run(variant: Any, problem: Any, tiling: Any, gpu: Any, backend: Any, *, timing: Any) -> RunResult:
        result = RunResult(variant.name, problem, tiling, backend.name)
        reason = variant.invalid_reason(problem, tiling, gpu)
        answer = ("INVALID", reason) if reason else wanted.get(variant.name, {})
        if isinstance(answer, BaseException):
            raise answer
        result.tags = {**backend.describe(), "nvrtc": "13.5", "source_hash": "0123456789ab"}
        result.texts = {variant.file: "// source\n", "kernel.ptx": ".version 9.5\n", "traffic.md": "| tensor |\n"}
        if isinstance(answer, tuple):
            result.status, result.sentence = answer
            return result
        total = sum(read + write for read, write in variant.io(problem, tiling).values())
        result.metrics = {
            "io/hbm_read_bytes": float(total),
            "io/hbm_write_bytes": 0.0,
            "io/hbm_total_bytes": float(total),
            "io/ideal_bytes": float(problem.ideal_bytes()),
            "io/times_ideal": total / problem.ideal_bytes(),
            "io/model_bytes": float(total),
            "ops/flops": float(problem.flops()),
            "err/ratio": 0.5,
            **answer,
        }
        result.tensors = [TensorBytes(name, r, w, r, w, 0, 0) for name, (r, w) in variant.io(problem, tiling).items()]
        return result

    monkeypatch.setattr(job, "run_variant", run)
    yield wanted


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without experiments of ours: making its tables takes seconds, copying it does not."""
    from rawflash.store import TrackingConf
    from rawflash.tracking import open_tracker

    folder = tmp_path_factory.mktemp("store")
    open_tracker(TrackingConf(experiment="other"), folder)
    return folder / "mlflow.db"


@pytest.fixture
def logged(program: Callable[..., Outcome], workdir: Path, made_store: Path) -> Callable[..., Outcome]:
    """Call the program with MLflow on, in a working directory that has a store already."""
    shutil.copy(made_store, workdir)
    return functools.partial(program, mlflow=True)


@pytest.fixture
def tracker(workdir: Path, made_store: Path) -> Any:
    """A tracker on a store of its own, in the working directory."""
    from rawflash.store import TrackingConf
    from rawflash.tracking import open_tracker

    shutil.copy(made_store, workdir)
    return open_tracker(TrackingConf(), workdir)
