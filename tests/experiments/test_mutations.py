"""The table of mutants: a row per guard, and a mutant that survives is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rawflash.experiments import mutations
from rawflash.experiments.mutations import EXPERIMENT
from rawflash.lab import Lab, Verdict
from rawflash.lab.memo import Memo
from rawflash.mutants import SUBJECTS, Caught, Guard, guards
from rawflash.roofline import Gpu

A100 = Gpu(name="A100", arch="80", sms=108, smem_block_bytes=166912, smem_sm_bytes=167936)


def test_every_guard_of_the_chosen_kernels_is_a_case(tmp_path: Path) -> None:
    some, every = (list(EXPERIMENT.cases(Lab({"kernels": kernels}, A100, memo=Memo(tmp_path)))) for kernels in (["fa2", "softmax"], []))
    assert some == guards("fa2") + guards("softmax")
    assert every == [guard for subject in SUBJECTS for guard in guards(subject)] and len(every) > 40


@pytest.mark.parametrize(("found", "verdict"), [(Caught("race", "read after the write at x.cuh:1"), "REPRODUCED"), (None, "DIFFERS")])
def test_the_row_says_what_noticed(found: Caught | None, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "caught", lambda guard: found)
    (row,) = EXPERIMENT.rows(Lab({"kernels": []}, A100, memo=Memo(tmp_path)), Guard("fa2", "fa2.cu", 7, "__syncthreads()", "so that x"))
    assert row.keys == {"kernel": "fa2", "line": "fa2.cu:7", "deleted": "__syncthreads()"}
    assert row.verdict == Verdict(verdict) and row.cells["caught by"].value == (found.check if found else "nothing")
