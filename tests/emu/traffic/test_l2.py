"""The simulated L2: small cases by hand, then random accesses against a slow model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rawflash import emu
from tests.emu.harness import cuda, launch, zeros
from tests.emu.oracles.cache import ATOMIC, LINE, LOAD, STORE, Cache

SOURCE = Path(__file__).with_name("l2.cu").read_text()
FIELDS = ("read_hits", "read_misses", "write_hits", "write_misses", "fills", "writebacks", "flush_fills", "flush_writebacks")
KINDS = [(LOAD, 0, 4), (STORE, 0, 4), (ATOMIC, 0, 4), (LOAD, 0, 16), (STORE, 3, 1), (STORE, 8, 8), (LOAD, 14, 2)]  # (kind, offset, bytes)
EXTENT = 1 << 15


@cache
def module(l2: emu.L2Params | None, **more: Any) -> Any:
    return cuda(SOURCE, params=emu.EmuParams(l2=l2, initcheck=False, **more))


def figures(counts: emu.L2Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in FIELDS if getattr(counts, name)}


def line_of(array: np.ndarray) -> int:
    """The number of an array's first line, from the start of device memory."""
    return (array.ctypes.data - emu.machine.arena.device_memory().base) // LINE


# -------------------------------------------------------------------------------------------------------------- by hand
def test_every_sector_of_a_copy_is_filled_and_written_once() -> None:
    report = launch(module(emu.L2Params(1 << 16)), "copy", 8, 256, zeros(2048, np.float32), emu.empty(2048, np.float32))
    assert figures(report.l2) == {"read_misses": 256, "write_misses": 256, "fills": 256, "flush_writebacks": 256}
    assert (report.l2.dram_read_bytes, report.l2.dram_write_bytes, report.l2.flush_write_bytes) == (8192, 0, 8192)
    assert [(a.index, figures(a)) for a in report.l2.arguments] == [
        (0, {"read_misses": 256, "fills": 256}),
        (1, {"write_misses": 256, "flush_writebacks": 256}),
    ]
    assert (report.l2.hits, report.l2.misses, report.l2.hit_rate) == (0, 512, 0.0)


def test_a_small_cache_writes_back_while_the_launch_runs() -> None:
    report = launch(module(emu.L2Params(4096, 4)), "copy", 8, 256, zeros(2048, np.float32), emu.empty(2048, np.float32))
    assert report.l2.dram_write_bytes + report.l2.flush_write_bytes == 8192
    assert 0 < report.l2.flush_write_bytes <= 4096
    assert report.l2.arguments[1].writebacks == report.l2.writebacks


@pytest.mark.parametrize(("size", "again"), [(1 << 16, 0), (1 << 13, 3)], ids=["what fits is read once", "a cyclic stream defeats LRU"])
def test_capacity(size: int, again: int) -> None:
    """Four CTAs, one after the other, stream 16 KiB each."""
    report = launch(module(emu.L2Params(size)), "stream", 4, 256, zeros(4096, np.float32), zeros(1024, np.float32), np.int32(4096))
    assert report.l2.arguments[0].fills == 512 * (1 + again)
    assert report.l2.arguments[0].read_hits == 512 * (3 - again)


def test_ctas_that_take_turns_share_what_they_stream() -> None:
    x, y = zeros(4096, np.float32), zeros(1024, np.float32)
    x[...] = np.arange(4096)
    fills = {}
    for residents in (1, 2, 4, 9):
        report = launch(module(emu.L2Params(1 << 13, resident_ctas=residents)), "stream", 4, 256, x, y, np.int32(4096))
        assert np.array_equal(y.reshape(4, 256), np.tile(x.reshape(16, 256).sum(0), (4, 1)))
        fills[residents] = report.l2.arguments[0].fills
        assert report.ctas == 4
    assert fills == {1: 2048, 2: 1024, 4: 512, 9: 512}


def run(l2: emu.L2Params, data: np.ndarray, steps: list[tuple[int, list[int]]], ctas: int = 1, **more: Any) -> Any:
    """Replay (kind, offsets in units of 16 bytes)."""
    mod = module(l2, **more)
    table = np.full((len(steps), 32), -1, np.int16)
    for row, (_, offsets) in zip(table, steps, strict=True):
        row[: len(offsets)] = offsets
    mod.get_global("offsets").view(np.int16)[: table.size] = table.ravel()
    mod.get_global("kinds")[: len(steps)] = [kind for kind, _ in steps]
    return launch(mod, "replay", ctas, 32, data, np.int32(len(steps) // ctas))


LOAD4, STORE4, ATOMIC4, LOAD16, STORE1, STORE8, LOAD2 = range(7)


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ([(STORE4, [0])], {"write_misses": 1, "flush_writebacks": 1, "flush_fills": 1}),
        ([(STORE4, [0]), (LOAD4, [0])], {"write_misses": 1, "read_hits": 1, "flush_writebacks": 1, "flush_fills": 1}),
        ([(STORE4, [0]), (LOAD4, [1])], {"write_misses": 1, "read_misses": 1, "fills": 1, "flush_writebacks": 1}),
        ([(STORE4, [0]), (STORE4, [1])], {"write_misses": 1, "write_hits": 1, "flush_writebacks": 1, "flush_fills": 1}),
        ([(LOAD4, [0]), (STORE4, [1])], {"read_misses": 1, "write_hits": 1, "fills": 1, "flush_writebacks": 1}),
        ([(ATOMIC4, [0])], {"write_misses": 1, "fills": 1, "flush_writebacks": 1}),
        ([(LOAD4, [1]), (ATOMIC4, [0])], {"read_misses": 1, "write_hits": 1, "fills": 1, "flush_writebacks": 1}),
        ([(LOAD16, [0, 1, 2, 0, 9])], {"read_misses": 3, "fills": 3}),
        ([(LOAD4, [0]), (LOAD4, [0, 2])], {"read_misses": 2, "read_hits": 1, "fills": 2}),
        ([(LOAD4, [])], {}),
    ],
    ids=["part of a sector", "read what was stored", "read beside it", "fill up in part", "store after load", "atomic", "atomic after load",
         "sectors of a request", "one sector again", "nobody"],
)  # fmt: skip
def test_one_line(steps: list[tuple[int, list[int]]], want: dict[str, int]) -> None:
    assert figures(run(emu.L2Params(1 << 14), zeros(512, np.uint8), steps).l2) == want


def test_the_least_recently_used_line_of_a_set_leaves() -> None:
    """Two ways: lines 0 and 2 of one set, 0 used again, so that 4 replaces 2."""
    steps = [(STORE8, [0]), (LOAD4, [16]), (LOAD4, [0]), (LOAD4, [32]), (LOAD4, [0]), (LOAD4, [16])]
    report = run(emu.L2Params(4 * LINE, 2), zeros(1024, np.uint8), steps)
    assert figures(report.l2) == {"write_misses": 1, "read_misses": 4, "read_hits": 1, "fills": 4, "flush_writebacks": 1}


# --------------------------------------------------------------------------------------------------------------- at random
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("size", "ways"), [(1024, 2), (4096, 4), (6 * 1024, 16), (128, 1), (1 << 16, 8)])
def test_random_accesses(size: int, ways: int, seed: int) -> None:
    rng = np.random.default_rng(100 * seed + ways)
    ctas, steps = 5, []
    for _ in range(ctas * 40):
        start, spread = int(rng.integers(0, EXTENT // 16)), int(rng.choice([1, 4, 40, 600]))
        offsets = (start + rng.integers(0, spread, 32)) % (EXTENT // 16)
        steps.append((int(rng.integers(len(KINDS))), np.where(rng.random(32) < 0.8, offsets, -1).tolist()))
    data = zeros(EXTENT, np.uint8)
    order = np.arange(ctas) if seed == 0 else np.random.default_rng(seed).permutation(ctas)
    report = run(emu.L2Params(size, ways), data, steps, ctas, order_seed=seed or None)
    model, origin = Cache(size, ways), line_of(data) * LINE
    for cta in order:
        for number, offsets in steps[40 * cta : 40 * (cta + 1)]:
            kind, shift, width = KINDS[number]
            model.request(kind, [origin + 16 * o + shift for o in offsets if o >= 0], width)
    model.flush()
    assert figures(report.l2) == {name: n for name in FIELDS if (n := model.counts[name])}
    assert figures(report.l2.arguments[0]) == figures(report.l2)


# ------------------------------------------------------------------------------------------------------------- everything else
def test_counted_figures_and_results_stay_the_same() -> None:
    x, y = emu.asarray(np.random.default_rng(0).random(4096, np.float32)), zeros(1024, np.float32)
    plain = launch(module(None), "stream", 4, 256, x, y, np.int32(4096))
    bits = y.copy()
    simulated = launch(module(emu.L2Params(1 << 13, resident_ctas=3)), "stream", 4, 256, x, y, np.int32(4096))
    assert plain.l2 is None
    assert replace(simulated, l2=None) == plain
    assert np.array_equal(y, bits)


@pytest.mark.parametrize("memcheck", [True, False])
def test_without_counters(memcheck: bool) -> None:
    mod = module(emu.L2Params(1 << 16), count=False, memcheck=memcheck)
    report = launch(mod, "copy", 8, 256, zeros(2048, np.float32), emu.empty(2048, np.float32))
    assert figures(report.l2) == {"read_misses": 256, "write_misses": 256, "fills": 256, "flush_writebacks": 256}


def test_local_memory_is_interleaved() -> None:
    """Eight words a thread: 32 lanes of a word are 4 sectors, and every CTA uses the same lines again."""
    out = zeros(64, np.int32)
    report = launch(module(emu.L2Params(1 << 16)), "stack", 3, 64, out, np.int32(10))
    assert out[0] == 10 * (28 + 1)
    assert (report.local.write_requests, report.local.write_cost, report.local.write_ideal) == (3 * 2 * 8, 3 * 2 * 32, 3 * 2 * 32)
    assert (report.local.read_requests, report.local.read_cost) == (3 * 2 * 10, 3 * 2 * 40)
    want = {"write_misses": 2 * 32, "write_hits": 2 * 2 * 32, "read_hits": 3 * 2 * 40, "flush_writebacks": 2 * 32}
    assert figures(report.l2.local) == want
    taking_turns = launch(module(emu.L2Params(1 << 16, resident_ctas=3)), "stack", 3, 64, out, np.int32(10))
    assert figures(taking_turns.l2.local) == {"write_misses": 3 * 2 * 32, "read_hits": 3 * 2 * 40, "flush_writebacks": 3 * 2 * 32}


def test_a_kept_cache_serves_the_next_launch() -> None:
    emu.l2_reset()
    mod = module(emu.L2Params(1 << 16, keep=True))
    a, b, c = (zeros(2048, np.float32) for _ in range(3))
    first = launch(mod, "copy", 8, 256, a, b)
    second = launch(mod, "copy", 8, 256, b, c)
    assert figures(first.l2) == {"read_misses": 256, "write_misses": 256, "fills": 256}
    assert figures(second.l2) == {"read_hits": 256, "write_misses": 256}
    assert figures(second.l2.arguments[0]) == {"read_hits": 256}, "b is argument 0 now"
    total = (first + second).l2 + emu.l2_reset()
    assert figures(total) == {"read_hits": 256, "read_misses": 256, "write_misses": 512, "fills": 256, "flush_writebacks": 512}
    assert figures(launch(mod, "copy", 8, 256, b, c).l2) == figures(first.l2), "reset means empty"
    emu.l2_reset()
    assert figures(emu.l2_reset()) == {}


def test_every_launch_starts_with_an_empty_cache() -> None:
    mod = module(emu.L2Params(1 << 16))
    a, b = zeros(2048, np.float32), zeros(2048, np.float32)
    reports = [launch(mod, "copy", 8, 256, a, b) for _ in range(2)]
    assert figures(reports[0].l2) == figures(reports[1].l2)
    total = reports[0] + reports[1]
    assert total.l2.fills == 512 and len(total.l2.arguments) == 4


def test_evictions_belong_to_the_kept_line() -> None:
    """What the first launch left dirty and nobody names any more is written back for no argument."""
    emu.l2_reset()
    mod = module(emu.L2Params(8192, 4, keep=True))
    a, b, c = (zeros(2048, np.float32) for _ in range(3))
    launch(mod, "copy", 8, 256, a, b)
    report = launch(mod, "stream", 1, 256, c, zeros(256, np.float32), np.int32(2048))
    named = sum(x.writebacks for x in report.l2.arguments)
    assert report.l2.writebacks > 0 and named < report.l2.writebacks
    emu.l2_reset()


@pytest.mark.parametrize("residents", [1, 2, 3, 5])
def test_the_first_fault_is_reported(residents: int) -> None:
    mod = module(emu.L2Params(1 << 14, resident_ctas=residents))
    with pytest.raises(emu.OutOfBounds) as caught:
        launch(mod, "stray", 5, 64, zeros(16, np.int32), np.int32(16))
    assert caught.value.ctaid == (2, 0, 0)


def test_settings_without_a_meaning_are_refused() -> None:
    for bad in ({"size_bytes": 1000}, {"size_bytes": 0}, {"size_bytes": 4096, "associativity": 0}):
        with pytest.raises(ValueError, match="whole number of sets"):
            emu.L2Params(**bad)
    with pytest.raises(ValueError, match="at least one CTA"):
        emu.L2Params(4096, resident_ctas=0)
    with pytest.raises(ValueError, match="racecheck"):
        emu.EmuParams(racecheck=True, l2=emu.L2Params(4096, resident_ctas=2))
