"""The views that the UI offers name metrics and parameters that exist, and are in every experiment once."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import sqlite3
import zlib
from pathlib import Path

import pytest

from rawflash.config import known_keys
from rawflash.metrics import METRICS
from rawflash.store import TrackingConf
from rawflash.tracking import open_tracker
from rawflash.views import view_tags


@pytest.mark.parametrize("tag", sorted(view_tags()))
def test_a_view_is_what_the_ui_reads_back(tag: str) -> None:
    document = json.loads(view_tags()[tag])
    kind, _, packed = document["state"].partition(";")
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert kind == "deflate" and document["name"]
    columns = [column.replace("`", "").partition(".")[::2] for column in state["selectedColumns"]]
    metrics = [name for group, name in columns if group == "metrics"]
    params = [name for group, name in columns if group == "params"]
    for chart in state["compareRunCharts"]:
        metrics += [chart["metricKey"]] if chart["type"] == "BAR" else chart["selectedMetrics"]
        params += chart.get("selectedParams", [])
    assert set(metrics) <= set(METRICS) and set(params) <= {"variant", *known_keys()}
    assert len({chart["uuid"] for chart in state["compareRunCharts"]}) == len(state["compareRunCharts"])
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == {s["uuid"] for s in state["compareRunSections"]}


def test_new_and_old_experiments_have_the_views(made_store: Path, workdir: Path) -> None:
    shutil.copy(made_store, workdir)
    with contextlib.closing(sqlite3.connect(workdir / "mlflow.db")) as db:
        with db:
            db.execute("delete from experiment_tags where key like 'mlflow.sharedViewState.%'")
        for name in ("new", "other"):  # the store has the second one already
            open_tracker(TrackingConf(experiment=name), workdir)
            of = "from experiment_tags t join experiments e using (experiment_id) where e.name=? and t.key like '%View%'"
            found = db.execute(f"select t.key, t.value {of}", (name,))
            assert dict(found.fetchall()) == view_tags()
