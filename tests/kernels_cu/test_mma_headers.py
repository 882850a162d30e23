"""The tensor-core headers by themselves: the pictures in their comments, for every head dimension, without a bank conflict."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rawflash import emu, paths
from rawflash.problem import round_to, to_f64

TEXT = (Path(__file__).parent / "mma_headers.cu").read_text("utf-8")
ROWS = 32
head_dims = pytest.mark.parametrize("d", [8, 16, 24, 32, 40, 48, 64, 80, 96, 128])


@cache
def module(d: int, dtype: str) -> emu.RawModule:
    free = ("-DRF_CAUSAL=none", "-DRF_WINDOW_LEFT=-1", "-DRF_WINDOW_RIGHT=-1", "-DRF_SOFTCAP=0.0f", "-DRF_LAYOUT=bhnd")
    options = (f"-I{paths.include_dir()}", "--std=c++17", f"-DRF_D={d}", f"-DRF_DTYPE={dtype}", *free)
    return emu.RawModule(code=TEXT, options=options)


def in_lanes(matrix: NDArray[np.uint16]) -> NDArray[np.uint32]:
    """[32, 4]: a 16 x 16 patch as lanes hold it (rf_mma_sm80.cuh): register by 8 x 8 matrix, lane 4 g + t two neighbours of row g."""
    out = np.zeros((32, 4), np.uint32)
    for register, (row, col) in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
        for lane in range(32):
            left, right = (int(matrix[row + lane // 4, col + lane % 4 * 2 + e]) for e in (0, 1))
            out[lane, register] = left | right << 16
    return out


def turn(patch: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Each of the four 8 x 8 matrices transposed where it stands."""
    return patch.reshape(2, 8, 2, 8).transpose(0, 3, 2, 1).reshape(16, 16)


@head_dims
@pytest.mark.parametrize("valid", [ROWS, 19, 0])
def test_tiles_and_patches(d: int, valid: int) -> None:
    padded = -(-d // 16) * 16
    X = np.arange(ROWS * d, dtype=np.uint16).reshape(ROWS, d) + 1
    Y = emu.asarray(np.full((ROWS, d), 0xFFFF, np.uint16))
    patches = [emu.empty((2, padded // 16, 32, 4), np.uint32) for _ in range(3)]
    report = module(d, "fp16").get_function("tile")((1,), (64,), (emu.asarray(X), Y, *patches, np.int32(valid)))
    assert report.shared.bank_conflicts == 0
    assert (Y[:valid] == X[:valid]).all() and (Y[valid:] == 0xFFFF).all()
    whole = np.zeros((ROWS, padded), np.uint16)
    whole[:valid, :d] = X[:valid]
    for r in range(2):
        for k in range(padded // 16):
            patch = whole[16 * r : 16 * r + 16, 16 * k : 16 * k + 16]
            down, across, turned = (lanes[r, k] for lanes in patches)
            assert (down == in_lanes(patch)).all() and (across == in_lanes(patch)[:, [0, 2, 1, 3]]).all()
            assert (turned == in_lanes(turn(patch))).all()


@pytest.mark.parametrize("d", [16, 40, 64, 96])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_products(d: int, dtype: str) -> None:
    """Small integers: all products and sums are exact."""
    A = np.random.default_rng(d).integers(-2, 3, (16, d)).astype(np.float32)
    S, O = emu.empty((16, 16), np.float32), emu.empty((16, d), round_to(A, dtype).dtype)
    report = module(d, dtype).get_function("products")((1,), (32,), (emu.asarray(round_to(A, dtype)), S, O))
    assert report.shared.bank_conflicts == 0
    assert (S == A @ A.T).all()
    want = to_f64(round_to(A @ A.T, dtype), dtype) @ A  # P is rounded to 16 bits
    assert np.array(O).tobytes() == round_to(want.astype(np.float32), dtype).tobytes()
