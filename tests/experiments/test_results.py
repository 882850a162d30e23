"""experiments/README.md and experiments/results/ are what the experiments say now.

`python -m tests.experiments.test_results` writes the README's table from the files in results/. These are written by
`python -m rawflash.run experiment=<name> tracking=none experiment.publish=experiments/results` in the top folder of a checkout.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rawflash.config import gpu_values
from rawflash.experiments import traffic
from rawflash.lab import Chart, HeatMap, Lab, Picture, Row, Verdict, plots
from rawflash.lab.memo import Memo
from rawflash.lab.registry import experiment_names, load
from rawflash.lab.render import csv_text, markdown_text, read_report, verdict_counts
from rawflash.lab.workbench import lab_for
from rawflash.roofline import Gpu
from tests.test_config import settings

ROOT = Path(__file__).resolve().parent.parent.parent
README, RESULTS = ROOT / "experiments" / "README.md", ROOT / "experiments" / "results"
_BLOCK = re.compile(r"(<!-- table: experiments -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
PUBLISHED = sorted(path.stem for path in RESULTS.glob("*.json"))


def table() -> str:
    """One row per experiment, with the verdicts of its result file."""
    heads = ["experiment", "shows", "of", "command", "needs a GPU?", *Verdict, "result"]
    lines = [heads, [*[":--"] * 5, *["--:"] * len(Verdict), ":--"]]
    for name in experiment_names():
        experiment = load(name)
        counts = verdict_counts(read_report(RESULTS / f"{name}.json").rows) if name in PUBLISHED else {}
        result = f"[{name}](results/{name}.md)" if name in PUBLISHED else ""
        numbers = [str(counts.get(verdict, "")) for verdict in Verdict]
        about = [name, experiment.title, experiment.source, f"`rawflash experiment={name}`", "yes" if experiment.needs_gpu else "no"]
        lines.append([*about, *numbers, result])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def test_the_readme_lists_every_experiment_with_its_verdicts() -> None:
    shown = _BLOCK.search(README.read_text("utf-8"))
    assert shown is not None
    assert shown[2] == table(), "run `python -m tests.experiments.test_results` to write the table again"


def test_every_experiment_that_needs_no_gpu_has_a_result() -> None:
    missing = [name for name in experiment_names() if not load(name).needs_gpu and name not in PUBLISHED]
    assert not missing, "publish them: see the first lines of this file"


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_result_says_who_made_it_and_its_files_agree(name: str) -> None:
    report = read_report(RESULTS / f"{name}.json")
    assert re.search(rf"Made by `python -m rawflash.run experiment={name}.*; commit [0-9a-f]{{40}}; .*20\d\d-\d\d-\d\d$", report.made)
    assert markdown_text(report) == (RESULTS / f"{name}.md").read_text("utf-8")
    assert csv_text(report) == (RESULTS / f"{name}.csv").read_text("utf-8")
    assert not report.failed


def pictures(name: str) -> list[Picture]:
    """What an experiment draws from its published rows."""
    lab = lab_for(name, settings(f"experiment={name}"), None, Memo(), alone=True)
    return list(load(name).pictures(lab, read_report(RESULTS / f"{name}.json").rows))


@pytest.mark.parametrize("name", PUBLISHED)
def test_nothing_lies_outside_the_frame(name: str) -> None:
    for picture in pictures(name):
        limits = None if isinstance(picture, HeatMap) else picture.y.limits
        if limits:
            shown = [series.y for series in picture.series] if isinstance(picture, Chart) else picture.values
            outside = [y for values in shown for y in values if y is not None and not limits[0] <= y <= limits[1]]
            assert not outside, picture.name


@pytest.mark.parametrize("name", PUBLISHED)
def test_its_pictures_show_its_numbers(name: str) -> None:
    report = read_report(RESULTS / f"{name}.json")
    drawn = {f"{picture.name}.png": plots.picture_hash(picture) for picture in pictures(name)}
    assert set(report.pictures) == set(drawn)
    assert drawn == {file: plots.stored_hash(RESULTS / file) for file in drawn}, "publish it again: the picture is an old one"


def test_the_traffic_picture_of_the_front_page_is_counted_now(rows_of: Callable[..., list[Row]]) -> None:
    def bytes_of(rows: list[Row]) -> dict[str, float]:
        return {str(row.keys["kernel"]): row.cells["total"].number for row in rows if row.table == traffic.BYTES and row.keys["N"] == 256}

    now = bytes_of(rows_of("traffic", N=[256], l2_N=[64, 256]))
    assert len(now) == 4 and bytes_of(read_report(RESULTS / "traffic.json").rows) == now
    assert "](experiments/results/traffic.png)" in (ROOT / "README.md").read_text("utf-8")


def test_the_example_of_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec(code, names)
    lab = Lab({"blocks": [64]}, Gpu.from_dict(gpu_values()))
    experiment = names["EXPERIMENT"]
    rows = [row for case in experiment.cases(lab) for row in experiment.rows(lab, case)]
    assert [row.verdict for row in rows] == [Verdict.REPRODUCED]


if __name__ == "__main__":
    README.write_text(_BLOCK.sub(lambda old: old[1] + table() + old[3], README.read_text("utf-8")), "utf-8")
