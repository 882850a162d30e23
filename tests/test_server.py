"""MLflow over HTTP with PostgreSQL behind it: a parallel sweep, and one whose server goes away in the middle."""

from __future__ import annotations

import importlib.util
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rawflash import job
from rawflash.results import read_rows
from tests.servers import MlflowServer, Postgres, postgres_programs
from tests.test_tracking import runs

Program = Callable[..., Any]
PATIENT = "tracking.timeout_s=120"


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL (initdb, postgres) is not installed here: `apt-get install postgresql`")
    if importlib.util.find_spec("psycopg2") is None:
        pytest.skip('psycopg2 is not installed: `pip install "rawflash[postgres]"`')
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rawflash-pg-", ignore_cleanup_errors=True) as folder:  # pytest's own are closed to others
        server = Postgres(Path(folder), programs)
        try:
            yield server.start()
        finally:
            server.stop()


def _family(database: Postgres) -> list[tuple[str, str, str]]:
    """(name, status, parent's name) of every run that the lists show."""
    return database.query(  # type: ignore[return-value]
        "select r.name, r.status, coalesce(p.name, '') from runs r "
        "left join tags t on t.run_uuid = r.run_uuid and t.key = 'mlflow.parentRunId' left join runs p on p.run_uuid = t.value "
        "where r.lifecycle_stage = 'active' order by r.start_time"
    )


def test_postgresql_behind_a_server(
    process: Program, program: Program, workdir: Path, tmp_path: Path, database: Postgres, monkeypatch: pytest.MonkeyPatch, quick: Any
) -> None:
    """A parallel sweep; then a sweep whose server goes away after its first point and comes back: sync completes it, once."""
    server = MlflowServer(tmp_path / "server", database.uri).start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    monkeypatch.setattr("rawflash.summary.show_rows", lambda *_: [])
    try:
        got = process("-m", "kernel=fa2", "problem=tiny", "block_size=16,32", "backend=emu", "hydra/launcher=laptop", PATIENT)
        assert got.code == 0, got.err
        parent = "block_size sweep"
        assert sorted(_family(database)) == sorted(
            [("fa2 b16 N64", "FINISHED", parent), ("fa2 b32 N64", "FINISHED", parent), (parent, "FINISHED", "")]
        )
        fake, calls = job.run_variant, []

        def run(*arguments: Any, **more: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                server.stop()
            return fake(*arguments, **more)

        monkeypatch.setattr(job, "run_variant", run)
        sweep = ("-m", "kernel=fa2", "seed=1,2,3", "backend=emu", "tracking.experiment=cut", "hydra.sweep.dir=cut")
        got = program(*sweep, mlflow=True)
        assert got.code == 1 and got.err.count("results are not filed for now") == 1
        assert [row.status for row in read_rows(workdir / "cut" / "results.json")] == ["OK"] * 3
        server.start()
        assert program("sync", "cut", mlflow=True).code == 0
        cut = [run for run in _family(database) if "seed" in run[0]]
        assert sorted(cut) == sorted(
            [*((f"fa2 b64 N1024 seed={i}", "FINISHED", "seed sweep") for i in (1, 2, 3)), ("seed sweep", "FINISHED", "")]
        )
        assert program("sync", "cut", mlflow=True).out == "nothing new to file\n"
        assert len(_family(database)) == 7
    finally:
        server.stop()
    _no_secrets(database, server, workdir)


def _no_secrets(database: Postgres, server: MlflowServer, workdir: Path) -> None:
    """Neither password nor home nor host name in what was filed, nor the password in what lies on disk."""
    filed = [json.dumps(database.query(f"select * from {table}")) for table in ("params", "tags")]
    artifacts = [path.read_text("utf-8", errors="replace") for path in server.home.glob("mlartifacts/**/*") if path.is_file()]
    local = [path.read_text("utf-8", errors="replace") for path in workdir.rglob("*") if path.is_file()]
    assert artifacts and local
    for text in [*filed, *artifacts]:
        assert str(Path.home()) + "/" not in text and str(workdir) not in text
        assert len(socket.gethostname()) < 4 or socket.gethostname() not in text
    for text in [*filed, *artifacts, *local]:
        assert database.password not in text and "a%20pass" not in text


def test_a_server_takes_the_same_runs(program: Program, workdir: Path, quick: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A real `mlflow server` on loopback; then it is gone, and the next run is refused before any work."""
    server = MlflowServer(tmp_path / "server", "sqlite:///s.db").start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    try:
        got = program("kernel=fa2", PATIENT, mlflow=True)
        assert (got.code, got.err) == (0, "")
        assert f"open {server.url}" in got.out and "View run" not in got.out
        assert [run["status"] for run in runs(server.home, "s.db")] == ["FINISHED"] * 2
        assert {p.name for p in server.home.glob("mlartifacts/*/*/artifacts/*")} >= {"kernel.ptx.txt", "results.json"}
        assert not list(workdir.glob("ml*"))
    finally:
        server.stop()
    got = program("kernel=fa2", mlflow=True)
    assert got.code == 1 and "does not answer within 5 s" in got.err
