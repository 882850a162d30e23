"""Which store: the order of choices, absolute paths, and what MLflow would not take."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rawflash.errors import TrackingError, UsageError
from rawflash.store import reach, resolve_experiment, resolve_store

HERE = Path("/somewhere/my dir/100%/ü")


@pytest.mark.parametrize(
    ("chosen", "environment", "uri", "origin"),
    [
        (None, {}, f"sqlite:///{HERE}/mlflow.db", "default"),
        ("", {"MLFLOW_TRACKING_URI": " "}, f"sqlite:///{HERE}/mlflow.db", "default"),
        (None, {"MLFLOW_TRACKING_URI": "sqlite:///x.db"}, f"sqlite:///{HERE}/x.db", "MLFLOW_TRACKING_URI"),
        ("", {"MLFLOW_TRACKING_URI": "http://h:5000"}, "http://h:5000", "MLFLOW_TRACKING_URI"),
        ("sqlite:////a/b.db", {"MLFLOW_TRACKING_URI": "http://h:5000"}, "sqlite:////a/b.db", "tracking.uri"),
        ("sqlite:///sub/../y.db", {}, f"sqlite:///{HERE}/y.db", "tracking.uri"),
    ],
)
def test_the_order_of_choices(chosen: str | None, environment: dict[str, str], uri: str, origin: str) -> None:
    store = resolve_store(chosen, environment, HERE)
    assert (store.uri, store.origin) == (uri, origin)


# Case M19.
def test_artifacts_lie_beside_the_database() -> None:
    assert resolve_store(None, {}, HERE).artifacts == "file:///somewhere/my%20dir/100%25/%C3%BC/mlruns"
    assert resolve_store("http://h:5000", {}, HERE).artifacts is None


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:x.db"])
def test_a_database_needs_a_file(uri: str) -> None:
    with pytest.raises(UsageError, match="names no database file"):
        resolve_store(uri, {}, HERE)


# Case M08.
@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "file:./mlruns", "file:///a/mlruns"])
def test_file_stores_are_refused_unless_mlflow_was_told_to_take_them(uri: str) -> None:
    with pytest.raises(UsageError, match="is a file store"):
        resolve_store(uri, {}, HERE)
    with pytest.raises(UsageError, match=r"MLFLOW_TRACKING_URI=.* is a file store"):
        resolve_store(None, {"MLFLOW_TRACKING_URI": uri}, HERE)
    assert resolve_store(uri, {"MLFLOW_ALLOW_FILE_STORE": "true"}, HERE).uri == uri


def test_a_password_is_neither_accepted_in_a_configuration_nor_shown() -> None:
    with pytest.raises(UsageError, match="MLFLOW_TRACKING_PASSWORD") as error:
        resolve_store("postgresql://me:secret@h/db", {}, HERE)
    assert "secret" not in str(error.value)
    store = resolve_store(None, {"MLFLOW_TRACKING_URI": "postgresql://me:secret@h:5432/db"}, HERE)
    assert store.uri.count("secret") == 1 and store.shown == "postgresql://h:5432/db"


def test_the_experiment() -> None:
    assert resolve_experiment(None, {}) == "rawflash"
    assert resolve_experiment(" ", {"MLFLOW_EXPERIMENT_NAME": "theirs"}) == "theirs"
    assert resolve_experiment("mine", {"MLFLOW_EXPERIMENT_NAME": "theirs"}) == "mine"


@pytest.mark.parametrize("uri", ["http://127.0.0.1:{port}", "postgresql://127.0.0.1:{port}/db", "mysql+pymysql://127.0.0.1:{port}/db"])
def test_a_server_that_is_not_there_is_found_out_at_once(uri: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(TrackingError, match=r"does not answer within 1 s \(Connection refused\)"):
            reach(resolve_store(uri.format(port=port), {}, HERE), 1.0)


def test_a_server_that_never_answers_costs_the_time_limit() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(TrackingError, match=r"does not answer within 0\.2 s"):
            reach(resolve_store(f"http://127.0.0.1:{mute.getsockname()[1]}", {}, HERE), 0.2)


def test_a_sqlite_file_is_tried_without_being_made(tmp_path: Path) -> None:
    reach(resolve_store(None, {}, tmp_path), 1.0)
    assert not list(tmp_path.iterdir())
    with pytest.raises(TrackingError, match=r"the folder .* does not exist"):
        reach(resolve_store("sqlite:///no/where.db", {}, tmp_path), 1.0)
    (tmp_path / "mlflow.db").write_text("not a database, but long enough to be looked at " * 20)
    with pytest.raises(TrackingError, match=r"is no database \(file is not a database\)"):
        reach(resolve_store(None, {}, tmp_path), 1.0)
    with pytest.raises(TrackingError, match="cannot be written"):
        reach(resolve_store("sqlite:////proc/x.db", {}, tmp_path), 1.0)
