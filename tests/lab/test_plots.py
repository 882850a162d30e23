"""Every kind of picture becomes a PNG that knows what it was drawn from; labels do not lie on each other."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rawflash.lab import Axis, Bars, Chart, HeatMap, Picture, Series, plots

CHART = Chart(
    "chart",
    "Lines",
    Axis("N", "2", [256, 1024]),
    Axis("bytes (MiB), counted", "2"),
    [
        Series("one", [256, 1024], [1, 4]),
        Series("two", [256, 1024], [1, 4.01]),
        Series("formula", [256, 1024], [1, 4], "theory", 0),
        Series("", [512], [2], "points", labels=["here"]),
    ],
    "Counted. " * 40,
)
BARS = Bars("bars", "Bars", ["a", "b\nb"], Axis("GB"), ["counted", "published"], [[1, None], [2, 3]], "Both.")
HEAT = HeatMap("heat", "Tiles", Axis("Bc"), Axis("Br"), ["16", "32"], ["16"], [[1.0, None]], [["1", "no"]], "MiB, counted", "Here.", (0, 0))


@pytest.mark.parametrize("picture", [CHART, replace(CHART, legend=True), BARS, HEAT], ids=["chart", "legend", "bars", "heat"])
def test_a_picture_is_drawn_and_carries_the_hash_of_its_data(picture: Picture, tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "picture.png"
    plots.draw(picture, path)
    data = path.read_bytes()
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and width == 1080 and 690 <= height <= 820
    assert plots.stored_hash(path) == plots.picture_hash(picture) != plots.picture_hash(replace(picture, title="another"))


def test_a_file_of_another_program_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"\x89PNG")
    assert plots.stored_hash(tmp_path / "x.png") == ""


@pytest.mark.parametrize("wanted", [[10.0, 10, 10], [0.0, 100, 101], [0.0, 1, 2], [95.0, 99, 100], [5.0]])
def test_labels_are_moved_apart_within_the_axes(wanted: list[float]) -> None:
    spots: list = [[place] for place in wanted]
    plots._apart(spots, 20, 0, 100)
    placed = [spot[0] for spot in spots]
    assert all(b - a >= 19.9 for a, b in pairwise(placed))
    assert placed[0] >= 0 and placed[-1] <= 100


def test_without_matplotlib_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plots.usable() == (True, "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    usable, why = plots.usable()
    assert not usable and "rawflash[plots]" in why
