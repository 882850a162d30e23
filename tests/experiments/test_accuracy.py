"""The accuracy table: its inputs strain what they say they strain, and its verdict is the bar of twice plain attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawflash.experiments import accuracy
from rawflash.experiments.accuracy import EXPERIMENT, KINDS, inputs_of
from rawflash.lab import Lab, Verdict
from rawflash.lab.memo import Memo
from rawflash.problem import Problem, to_f64
from rawflash.variants import LADDER
from tests.kernels_cu.ladder import A100

OPTIONS = {"dtypes": ["fp32", "bf16"], "inputs": list(KINDS), "N": 33, "Nkv": 70, "d": 16, "block": 16}
PROBLEM = Problem(B=1, H=2, Hkv=1, N=33, Nkv=70, d=16)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(OPTIONS, A100, memo=Memo(tmp_path))


def scores(kind: str) -> Any:
    q, k = (to_f64(inputs_of(kind, PROBLEM)[name], "fp16") for name in "QK")
    return (q @ k.swapaxes(-1, -2))[0] * PROBLEM.scale


def test_the_inputs_are_what_their_names_say() -> None:
    plain = scores("odd sizes")
    assert (np.diff(scores("maximum last").max(axis=(0, 1))) >= 0).all()
    growth = np.diff(scores("growing maxima")[:, :, ::16].mean(axis=(0, 1))) / np.log(2)
    assert abs(growth.mean() - 3.5) < 0.5  # in powers of 2 from one tile of 16 keys to the next
    assert abs(scores("common offset").mean() - 64 * 64 * PROBLEM.scale) < 1
    assert np.abs(scores("large logits")).max() > 25 * np.abs(plain).max() and np.abs(scores("tiny logits")).max() < 0.01


def test_a_case_for_every_kernel_that_takes_the_type(lab: Lab) -> None:
    cases = list(EXPERIMENT.cases(lab))
    assert ("bf16", "odd sizes", "fa2_lazy") in cases and ("fp32", "odd sizes", "fa2_lazy") not in cases
    assert len(cases) == len(KINDS) * sum(len({"fp32", "bf16"} & set(variant.dtypes)) for variant in LADDER.values())


def test_errors_of_one_kernel_are_within_the_bar(lab: Lab) -> None:
    for kind in ("tiny logits", "growing maxima"):
        (row,) = EXPERIMENT.rows(lab, ("fp16", kind, "fa2_lazy"))
        assert row.verdict is Verdict.REPRODUCED, row
        assert 0 < row.cells["O error"].number < 2 * row.cells["O plain"].number
        assert row.cells["LSE error"].number > 0


@pytest.mark.parametrize(("error", "verdict"), [(2e-3, Verdict.REPRODUCED), (2.2e-3, Verdict.DIFFERS)])
def test_twice_the_plain_error_is_the_bar(lab: Lab, monkeypatch: pytest.MonkeyPatch, error: float, verdict: Verdict) -> None:
    told = {"O error": 1e-3, "O plain": 1e-3, "O size": 1.0, "LSE error": error, "LSE plain": 1e-3, "LSE size": 5.0}
    monkeypatch.setattr(accuracy, "_errors", lambda *_: told)
    (row,) = EXPERIMENT.rows(lab, ("fp16", "odd sizes", "fa2"))
    assert row.verdict is verdict
