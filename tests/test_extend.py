"""Extended counts are the executed ones, to the last instruction."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rawflash.backends.emulated import EmulatedBackend
from rawflash.config import gpu_values
from rawflash.errors import InvalidConfiguration, UsageError
from rawflash.execute import run_variant
from rawflash.extend import count_head, extended_counts
from rawflash.problem import Problem
from rawflash.roofline import Gpu
from rawflash.tiling import Tiling
from rawflash.variants import LADDER
from rawflash.variants.base import Variant

A100 = Gpu.from_dict(gpu_values("a100_80gb"))
TILE = Tiling(32, 16)


@pytest.fixture(scope="module")
def emulator() -> EmulatedBackend:
    return EmulatedBackend()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fa2_mma", {}),
        ("fa2_mma", {"causal": "bottom_right", "Nkv": 256}),
        ("fa1", {}),
        ("online", {"causal": "top_left", "Nkv": 256}),
        ("fa2_pipe", {"causal": "top_left", "window_left": 45, "Nkv": 256}),
        ("fa2", {"window_left": 7, "window_right": 40, "Nkv": 256}),
        ("fa2_lazy", {"window_right": 21, "Nkv": 256}),
        ("fa1_qout", {"window_left": 33, "Nkv": 256}),
        ("online", {"window_left": 0, "window_right": 0, "Nkv": 256}),
    ],
)
def test_extended_counts_are_the_executed_ones(name: str, change: dict[str, Any], emulator: EmulatedBackend) -> None:
    problem = Problem(**{"B": 3, "H": 4, "N": 256, "Nkv": 72, "d": 16, **change})
    found = extended_counts(LADDER[name], problem, TILE, A100, emulator)
    counts, resources = count_head(LADDER[name], problem, TILE, A100, emulator)
    assert found.exact and max(found.executed_N) < 256
    assert found.counts == {what: 12 * n for what, n in counts.items()}
    assert found.resources == resources and all(r.registers > 0 for r in resources.values())
    assert counts["ctas"] > 0 and counts["wavefronts"] + counts["sectors"] > 0


def test_heads_that_are_packed_are_executed_together_in_the_splits_of_the_whole(emulator: EmulatedBackend) -> None:
    """3 heads of 2 query heads each, with 20 query tiles: 2 splits, where one head by itself would have taken more."""
    problem = Problem(B=1, H=6, Hkv=3, N=96, Nkv=72, d=16)
    found = extended_counts(LADDER["splitkv"], problem, Tiling(16, 16), A100, emulator)
    run = run_variant(LADDER["splitkv"], problem, Tiling(16, 16), A100, emulator)
    assert found.exact and max(found.executed_N) < 96
    for name, metric in (("hbm/K/read", "io/tensor/K_read_bytes"), ("hbm/O_part/write", "io/tensor/O_part_write_bytes")):
        assert found.counts[name] == run.metrics[metric] > 0


def test_a_short_problem_is_executed_itself(emulator: EmulatedBackend) -> None:
    problem = Problem(B=1, H=2, N=50, d=16)
    found = extended_counts(LADDER["fa2_mma"], problem, TILE, A100, emulator)
    assert found.executed_N == (50,)
    assert found.counts["hbm/Q/read"] == problem.H * 50 * 16 * 2


def test_work_that_follows_no_line_says_so(emulator: EmulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from rawflash import extend

    monkeypatch.setattr(extend, "count_head", lambda v, p, *rest: ({"sectors": p.N**2}, {}))
    found = extended_counts(LADDER["fa2_mma"], Problem(B=1, H=1, N=320, d=16), TILE, A100, emulator)
    assert not found.exact
    assert found.counts["sectors"] == 64**2 + (320 - 64) // 32 * (96**2 - 64**2)  # along the last two points


def test_what_cannot_be_extended_is_refused(emulator: EmulatedBackend) -> None:
    variant: Variant = LADDER["fa2_mma"]
    with pytest.raises(UsageError, match=r"no multiple of 32, so its counts cannot be extended: take N=288"):
        extended_counts(variant, Problem(N=300, d=16), TILE, A100, emulator)
    with pytest.raises(UsageError, match="are extended where N = Nkv only"):
        extended_counts(variant, Problem(N=320, Nkv=64, d=16, causal=True), TILE, A100, emulator)
    with pytest.raises(InvalidConfiguration, match="dtype=fp32 is not supported"):
        extended_counts(variant, dataclasses.replace(Problem(N=320, d=16), dtype="fp32"), TILE, A100, emulator)
