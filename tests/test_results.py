"""Rows on disk: whole or not at all, non-finite numbers included; folders that nobody else has."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from rawflash.errors import RawflashError, UsageError
from rawflash.results import Row, claim_folder, read_rows, write_results, write_text


def test_rows_read_back_as_they_were(tmp_path: Path) -> None:
    row = Row("fa2", "OK", metrics={"err/ratio": math.nan, "err/max_abs": math.inf, "ops/ex2": 2.0**40}, point={"block_size": "64"})
    row.samples_ms, row.tensors = [0.5, 0.25], [{"name": "Q", "counted_read": np.int64(7)}]
    write_results(tmp_path / "r.json", [row], {"command": "c"})
    document = json.loads((tmp_path / "r.json").read_text("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert document["command"] == "c" and document["rows"][0]["metrics"]["err/max_abs"] == "inf"
    (read,) = read_rows(tmp_path / "r.json")
    assert math.isnan(read.metrics["err/ratio"]) and read.metrics["err/max_abs"] == math.inf and read.metrics["ops/ex2"] == 2.0**40
    assert (read.samples_ms, read.point, read.ok) == ([0.5, 0.25], {"block_size": "64"}, True)


def test_entries_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"rows": [{"variant": "fa2", "status": "OK", "colour": "blue"}]}')
    assert read_rows(tmp_path / "r.json")[0].variant == "fa2"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.json"
    write_text(target, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rawflash.results.os.replace", full)
    with pytest.raises(RawflashError, match="could not be written \\(No space left on device\\)"):
        write_text(target, "new")
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_those_who_come_in_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    wanted = tmp_path / "outputs" / "day" / "10-00-00"
    claims = [claim_folder(wanted, "x=y") for _ in range(3)]
    assert [c.folder.name for c in claims] == ["10-00-00", "10-00-00-2", "10-00-00-3"]


def test_release_removes_what_is_empty_and_nothing_else(tmp_path: Path) -> None:
    claim = claim_folder(tmp_path / "outputs" / "day" / "a", "x=y")
    claim.release()
    assert not list(tmp_path.iterdir())
    claim = claim_folder(tmp_path / "outputs" / "day" / "a", "x=y")
    (claim.folder / "results.json").write_text("{}")
    claim.release()
    assert (claim.folder / "results.json").exists()
    other = claim_folder(tmp_path / "outputs" / "day" / "b", "x=y")
    other.release()
    assert claim.folder.exists() and not other.folder.exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"results cannot be written to .*: run in a folder that you may write to, or add x=y"):
        claim_folder(tmp_path / "file" / "outputs", "x=y")
