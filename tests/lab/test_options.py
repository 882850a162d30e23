"""Values of experiments' options: of the kind that the file shows, or refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from rawflash.errors import UsageError
from rawflash.lab.options import check_options, options_of
from rawflash.lab.registry import experiment_names


@pytest.mark.parametrize("name", experiment_names())
def test_what_is_usual_passes(name: str) -> None:
    check_options(options_of(name), options_of(name))


USUAL: dict[str, Any] = {
    "N": [256, 512],
    "row": 5,
    "seed": 0,
    "tolerance": 0.02,
    "causal": False,
    "dtype": "fp16",
    "scores": None,
    "kernels": [],
    "thresholds": [None, 0, 8],
    "tiles": [["naive", 64], ["fa1", 64]],
    "claims": {8192: 128},
    "panels": [{"d": 64, "tile": [128, 64]}],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("N", [1]), ("row", 1), ("seed", 0), ("tolerance", 1), ("causal", "top_left"), ("causal", True), ("dtype", "bf16")),
        *(("scores", [1, -2.5]), ("scores", None), ("scores", 7), ("kernels", []), ("kernels", ["fa2"]), ("thresholds", [4, None])),
        *(("tiles", [["fa2", 32]]), ("tiles", []), ("claims", {1: 2}), ("panels", [{"d": 128, "tile": [64, 64], "more": 1}])),
    ],
)
def test_right_values(name: str, value: Any) -> None:
    check_options({name: value}, USUAL)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("N", [], "experiment.options.N=[] is not a list [a, b, ...] of at least one; usual is [256, 512]"),
        ("N", "foo", "experiment.options.N=foo is not a list"),
        ("N", [64, -1], "experiment.options.N=[64, -1] is not a list of which each is a whole number of at least 1"),
        ("N", [True], "is not a list of which each is a whole number"),
        ("row", None, "experiment.options.row=null is not a whole number of at least 1; usual is 5"),
        ("row", 0, "is not a whole number of at least 1"),
        ("seed", -1, "is not a whole number of at least 0"),
        ("tolerance", float("nan"), "is not a number above 0"),
        ("tolerance", 0, "is not a number above 0"),
        ("causal", 3, "is not true, false or a name"),
        ("dtype", "", "is not a name"),
        ("dtype", ["fp16"], "is not a name"),
        ("scores", "foo", "is not null, a number or a list of numbers"),
        ("scores", {}, "is not null, a number or a list of numbers"),
        ("kernels", "foo", "is not a list"),
        ("thresholds", ["x"], "is not a list of which each is"),
        ("tiles", [["naive", {}]], "is not a list of which each is"),
        ("claims", {}, "is not a table"),
        ("claims", {1: "x"}, "is not a table"),
        ("panels", [7], "is not a list of which each is a table"),
    ],
)
def test_wrong_values(name: str, value: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_options({name: value}, USUAL)
    assert sentence in str(raised.value)
