"""GPU data sheets are read strictly; the modelled bounds are the ones computed by hand."""

from typing import Any

import pytest

from rawflash.errors import UsageError
from rawflash.problem import Problem
from rawflash.roofline import Gpu, floor_ms, ridge_flop_per_byte, roofline_ms

SHEET: dict[str, Any] = {"name": "A100", "arch": "80", "sms": 108, "smem_block_bytes": 166912, "smem_sm_bytes": 167936}
GPU = Gpu.from_dict({**SHEET, "hbm_gb_s": 2000, "fp16_tflops": 312.0, "fp32_tflops": 19.5})


def test_a_sheet_is_read() -> None:
    gpu = Gpu.from_dict({**SHEET, "arch": 80, "confidence": {"sfu": "from memory"}, "note": "x"})
    assert (gpu.arch, gpu.regs_sm, gpu.confidence) == ("80", 65536, (("sfu", "from memory"),))
    assert hash(gpu) == hash(gpu)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"smz": 1}, "unknown: smz"), ({"arch": "sm_80a"}, "gpu.arch='sm_80a'"), ({"sms": -1}, "gpu.sms=-1"), ({"sms": 1.5}, "gpu.sms=1.5")],
)
def test_a_wrong_entry_is_named(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        Gpu.from_dict({**SHEET, **change})


def test_a_missing_entry_is_named() -> None:
    with pytest.raises(UsageError, match="missing: arch, sms"):
        Gpu.from_dict({name: value for name, value in SHEET.items() if name not in ("arch", "sms")})


def test_roofline_by_hand() -> None:
    p = Problem(B=1, H=1, N=1024, d=64, dtype="fp16")
    assert roofline_ms(p, 2_000_000_000, GPU) == pytest.approx(1.0)
    assert roofline_ms(p, 0, GPU) == pytest.approx(4 * 64 * 1024**2 / 312e12 * 1e3)
    assert ridge_flop_per_byte(GPU, "fp16") == pytest.approx(156)
    assert ridge_flop_per_byte(Gpu.from_dict(SHEET), "fp16") == float("inf")


def test_floor_counts_only_the_reads_that_some_row_needs() -> None:
    slow = Gpu.from_dict({**SHEET, "hbm_gb_s": 1})
    ms = 1e-6  # one byte at 1 GB/s
    p = {"B": 2, "H": 4, "Hkv": 2, "N": 3, "Nkv": 5, "d": 8}
    assert floor_ms(Problem(**p), slow) == pytest.approx(2 * 8 * 2 * (4 * 3 + 2 * 2 * 5) * ms)
    assert floor_ms(Problem(**p, causal="top_left"), slow) == pytest.approx(2 * 8 * 2 * (4 * 3 + 2 * 2 * 3) * ms)
    assert floor_ms(Problem(N=3, Nkv=1, H=1, d=8, causal=True), slow) == pytest.approx(8 * 2 * (1 + 2) * ms)
    assert floor_ms(Problem(N=0), slow) == 0
