"""A real `mlflow server` and a real PostgreSQL, on loopback, for tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

_PATIENCE_S = 300.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class MlflowServer:
    """`mlflow server` on a store, with artifacts below `home`; can be stopped and started again on the same port."""

    def __init__(self, home: Path, store: str) -> None:
        self.home, self.store, self.port = home, store, free_port()
        home.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> MlflowServer:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": self.store, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.home / "log").open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=self.home, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), urlopen(f"{self.url}/health", timeout=30):
                return self
            time.sleep(0.2)
        log_text = (self.home / "log").read_text("utf-8")[-2000:]
        self.stop()
        raise RuntimeError(f"mlflow server did not start:\n{log_text}")

    def stop(self) -> None:
        """Stop it as a power cut would: no request is finished."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def postgres_programs() -> Path | None:
    """The folder with initdb and postgres (Debian keeps it out of PATH), or None."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


class Postgres:
    """A database cluster of its own below `home`. PostgreSQL refuses root, so root runs it as another user."""

    password = "a pass/word@1"

    def __init__(self, home: Path, programs: Path) -> None:
        self.home, self.programs, self.port = home, programs, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, int | list[int]] = {}
        if os.getuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            account = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(home, account.pw_uid, account.pw_gid)

    def start(self) -> Postgres:
        """Make the cluster with one user `rawflash` who has a password, start it, and wait until it takes connections."""
        secret = self.home / "pwfile"
        secret.write_text(self.password)
        if self._user:
            os.chown(secret, int(self._user["user"]), int(self._user["group"]))  # type: ignore[call-overload]
        options = ["-U", "rawflash", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._run([str(self.programs / "initdb"), "-D", str(self.home / "data"), *options])
        settings = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-k", str(self.home), "-p", str(self.port)]
        with (self.home / "log").open("w") as log:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.home / "data"), *settings],
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user,  # type: ignore[arg-type]
            )
        import psycopg2

        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(psycopg2.OperationalError):
                psycopg2.connect(self._words("postgres")).close()
                return self
            time.sleep(0.2)
        raise RuntimeError(f"PostgreSQL did not start:\n{(self.home / 'log').read_text('utf-8')[-2000:]}")

    def _run(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, cwd=self.home, capture_output=True, text=True, check=False, **self._user)  # type: ignore[call-overload]
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")

    def _words(self, database: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=rawflash password='{self.password}' dbname={database}"

    @property
    def uri(self) -> str:
        """For MLflow, password included; the driver is named because SQLAlchemy 2.1 would take another one."""
        from urllib.parse import quote

        return f"postgresql+psycopg2://rawflash:{quote(self.password, safe='')}@127.0.0.1:{self.port}/postgres"

    def query(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a query."""
        import psycopg2

        with contextlib.closing(psycopg2.connect(self._words("postgres"))) as database, database.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def stop(self) -> None:
        """Stop it at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
