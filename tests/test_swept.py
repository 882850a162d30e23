"""Curves and pictures over the keys that a sweep varies: which kind for which keys, and what they hold."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rawflash.gallery import show_rows
from rawflash.lab import Bars, Chart, HeatMap
from rawflash.lab.plots import stored_hash
from rawflash.metrics import METRICS
from rawflash.results import Row
from rawflash.swept import MOST, curves, keys, pictures

N, BLOCK, DTYPE = ("problem.N", ("64", "256", "128")), ("block_size", ("16", "32")), ("problem.dtype", ("fp16", "bf16"))


def sweep(*axes: tuple[str, tuple[str, ...]], variants: tuple[str, ...] = ("naive", "fa2"), **metrics: Any) -> list[Row]:
    """One right row per variant and point; bytes are 1000 * N / block, the same for both of fa2 and fa2_mma."""
    rows = []
    for variant, *values in product(variants, *(values for _, values in axes)):
        point = dict(zip([name for name, _ in axes], values, strict=True))
        size = 1000.0 * float(point.get("problem.N", "64")) / float(point.get("block_size", "16"))
        bytes_ = size * (4 if variant == "naive" else 1)
        rows.append(Row(variant, "OK", point=point, metrics={"io/hbm_total_bytes": bytes_, "io/times_ideal": bytes_ / 500, **metrics}))
    return rows


def test_keys_are_the_ones_that_vary_in_rising_order() -> None:
    found = keys(sweep(N, DTYPE, ("seed", ("0",))))
    assert [(key.name, key.values) for key in found] == [("problem.N", ("64", "128", "256")), ("problem.dtype", ("fp16", "bf16"))]
    assert found[0].numbers == (64, 128, 256) and found[1].numbers is None


def test_a_curve_per_variant_with_the_swept_number_as_step() -> None:
    found, told = curves(sweep(N))
    assert told == "the step is problem.N"
    assert found["io/hbm_total_bytes/fa2"] == [(64, 4000.0), (128, 8000.0), (256, 16000.0)]
    assert set(found) == {f"io/{name}/{variant}" for name in ("hbm_total_bytes", "times_ideal") for variant in ("naive", "fa2")}


def test_other_keys_are_told_in_the_curves_name() -> None:
    found, told = curves(sweep(BLOCK, N, DTYPE))
    assert told == "the step is problem.N" and len(found) == 2 * 2 * 2 * 2
    assert found["io/hbm_total_bytes/fa2 block_size 16 dtype bf16"] == [(64, 4000.0), (128, 8000.0), (256, 16000.0)]


def test_numbers_that_are_no_steps_are_numbered() -> None:
    found, told = curves(sweep(("problem.softmax_scale", ("0.5", "0.125"))))
    assert told == "the step numbers the values of problem.softmax_scale (0: 0.125, 1: 0.5)"
    assert [step for step, _ in found["io/times_ideal/fa2"]] == [0, 1]


def test_words_make_no_curves() -> None:
    assert curves(sweep(DTYPE)) == ({}, "") and curves(sweep()) == ({}, "") and curves([]) == ({}, "")


def test_m18_wrong_rows_and_odd_numbers_are_in_no_curve_and_no_picture() -> None:
    rows = sweep(N, variants=("fa2",))
    rows[0].status = "INCORRECT"
    rows[1].metrics["io/hbm_total_bytes"] = math.nan
    assert curves(rows)[0]["io/hbm_total_bytes/fa2"] == [(128, 8000.0)]
    (chart,), _ = pictures(rows, "t")
    assert isinstance(chart, Chart) and list(chart.series[0].x) == [128]


def test_one_number_gives_curves_on_logarithmic_axes() -> None:
    (chart,), told = pictures(sweep(N, variants=("naive", "fa2", "fa2_mma")), "a title")
    assert isinstance(chart, Chart) and not told
    assert [line.label for line in chart.series] == ["naive", "fa2, fa2_mma"]
    assert (chart.x.log, chart.y.log, list(chart.x.ticks)) == ("2", "10", [64, 128, 256])
    assert chart.y.label == "HBM bytes, read + written (kB), counted" and list(chart.series[1].y) == [4, 8, 16]
    assert chart.caption == "a title. The same line: fa2, fa2_mma."


def test_one_word_gives_bars() -> None:
    (bars,), _ = pictures(sweep(DTYPE), "t")
    assert isinstance(bars, Bars)
    assert (bars.groups, bars.series, bars.values) == (("fp16", "bf16"), ["naive", "fa2"], [[16.0, 16.0], [4.0, 4.0]])


def test_no_key_gives_a_bar_per_variant() -> None:
    (bars,), _ = pictures(sweep(), "t")
    assert isinstance(bars, Bars) and bars.groups == ["naive", "fa2"] and bars.values == [[16.0, 4.0]]


def test_two_keys_give_a_heat_map_per_variant() -> None:
    rows = sweep(BLOCK, ("kernel.Bc", ("16", "32")))
    rows[-1].status = "INVALID"
    found, told = pictures(rows, "t")
    assert [picture.name for picture in found] == ["hbm_total_bytes_naive", "hbm_total_bytes_fa2"] and not told
    last = found[1]
    assert isinstance(last, HeatMap) and (last.x.label, last.y.label) == ("kernel.Bc", "block_size")
    assert last.values == [[4.0, 4.0], [2.0, None]] and last.texts == [["4", "4"], ["2", "-"]] and last.mark == (1, 0)


def test_where_the_problem_is_swept_no_field_is_the_best() -> None:
    found, _ = pictures(sweep(BLOCK, N), "t")
    assert all(isinstance(picture, HeatMap) and picture.mark is None and picture.columns == ("64", "128", "256") for picture in found)


def test_three_keys_give_small_multiples_and_more_a_sentence() -> None:
    found, told = pictures(sweep(BLOCK, N, DTYPE), "t")
    assert [picture.name for picture in found][:2] == ["hbm_total_bytes_naive_dtype_fp16", "hbm_total_bytes_naive_dtype_bf16"]
    assert len(found) == 4 and not told
    seven = tuple(str(h) for h in range(1, 1 + MOST // 2 + 1))
    for axes in ((BLOCK, N, DTYPE, ("seed", ("0", "1"))), (("problem.H", seven), ("problem.B", seven), ("seed", seven))):
        found, told = pictures(sweep(*axes), "t")
        assert found == [] and told.startswith("No pictures: ") and "parallel-coordinates" in told


def test_measured_numbers_get_pictures_of_their_own_and_models_stand_in() -> None:
    rows = sweep(N, **{"time/gpu_ms_median": 2.0, "io/model_bytes": 5e9})
    for row in rows:
        del row.metrics["io/hbm_total_bytes"]
    found, _ = pictures(rows, "t")
    assert [picture.name for picture in found] == ["model_bytes", "gpu_ms_median"]
    assert [picture.y.label for picture in found] == ["HBM bytes, read + written (GB), modelled", "median time (ms), measured"]


def test_every_curve_belongs_to_a_metric() -> None:
    assert all(name.rpartition("/")[0] in METRICS for name in curves(sweep(N, BLOCK))[0])


def test_the_page_holds_tables_and_pictures(tmp_path: Path) -> None:
    rows = sweep(N)
    rows[0].sentence, rows[0].status = "a <b> & c", "INVALID"
    page, *images = show_rows(tmp_path, rows, "6 rows over N", "Made by `x`")
    text = page.read_text("utf-8")
    assert [path.name for path in images] == ["hbm_total_bytes.png"] and stored_hash(images[0])
    assert "data:image/png;base64," in text and "http" not in text and "<h1>6 rows over N</h1>" in text
    assert "a &lt;b&gt; &amp; c" in text and "<small>counted</small>" in text and "Made by `x`" in text


def test_without_matplotlib_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rawflash.lab.plots.usable", lambda: (False, "pictures are not drawn: matplotlib is not installed"))
    (page,) = show_rows(tmp_path, sweep(N), "t", "Made by `x`")
    assert "Pictures are not drawn: matplotlib is not installed. Made by `x`" in page.read_text("utf-8")
