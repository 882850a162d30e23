"""Saved views for MLflow's list of runs: which columns stand beside the runs, and which charts behind the chart button.

MLflow's UI keeps a view as a tag of the experiment, a JSON document with the state of the page in it, deflated. rawflash sets two
such tags, so that the menu Views offers them to everybody. A UI that knows no saved views ignores the tags.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

__all__ = ["view_tags"]

_TAG = "mlflow.sharedViewState."
# Key of the view -> (its name, its columns, its bars, the metric at the end of its parallel coordinates).
_COLUMNS = ("params.`variant`", "tags.`status`", "params.`problem.N`", "params.`block_size`")
_VIEWS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "rawflash-bytes": (
        "bytes (counted)",
        ("io/times_ideal", "io/hbm_total_bytes", "ops/rescale_mul", "smem/bank_conflicts", "err/ratio"),
        "io/times_ideal",
    ),
    "rawflash-times": (
        "times (measured)",
        ("time/gpu_ms_median", "perf/gb_s", "perf/tflops", "gpu/sm_clock_mhz", "err/ratio"),
        "time/gpu_ms_median",
    ),
}


def view_tags() -> dict[str, str]:
    """Tags of an experiment, one per view. The same from every version of the program, so that they are written once."""
    return {f"{_TAG}{key}": _document(key, *view) for key, view in _VIEWS.items()}


def _document(key: str, name: str, metrics: tuple[str, ...], last: str) -> str:
    state = base64.b64encode(zlib.compress(json.dumps(_state(key, metrics, last)).encode(), 9)).decode("ascii")
    return json.dumps({"name": name, "createdAt": 0, "updatedAt": 0, "state": f"deflate;{state}"})


def _state(key: str, metrics: tuple[str, ...], last: str) -> dict[str, Any]:
    section = f"{key}-charts"
    charts: list[dict[str, Any]] = [{"type": "BAR", "metricKey": metric, "displayName": metric} for metric in metrics[:3]]
    params = ["variant", "problem.N", "block_size"]
    charts.insert(
        1,
        {
            "type": "PARALLEL",
            "selectedParams": params,
            "selectedMetrics": [last],
            "showAllRuns": False,
            "displayName": f"what leads to {last}",
        },
    )
    shared = {"metricSectionId": section, "deleted": False, "isGenerated": False, "runsCountToCompare": 100}
    return {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*_COLUMNS, *(f"metrics.`{metric}`" for metric in metrics)],
        "runsHiddenMode": "SHOWALL",
        "hideEmptyCharts": True,
        "isAccordionReordered": True,
        "compareRunCharts": [{**chart, **shared, "uuid": f"{key}-{number}"} for number, chart in enumerate(charts)],
        "compareRunSections": [
            {"uuid": section, "name": "rawflash", "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
        ],
    }
