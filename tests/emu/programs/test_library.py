"""Cooperative groups, CUB and libcu++ run as they are: what a user's own kernels are built from."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from rawflash import emu
from rawflash.emu import nvrtc
from tests.emu.harness import launch, zeros
from tests.emu.programs.loader import program

RNG = np.random.default_rng(53)
HAS_CUB = os.path.isdir(os.path.join(nvrtc.headers_dir(), "cccl", "cub"))
pytestmark = pytest.mark.skipif(not HAS_CUB, reason="CUB's headers come with the wheel nvidia-cuda-cccl: install it")


def library() -> Any:
    return program("library", "-std=c++17")


def test_cooperative_groups() -> None:
    x = RNG.integers(-50, 50, 128).astype(np.int32)
    out = zeros(256, np.int32)
    launch(library(), "group_sums", 1, 128, emu.asarray(x), out)
    tiles = x.reshape(16, 8)
    assert np.array_equal(out[:128].reshape(16, 8), np.repeat(tiles.sum(1) * 1000 + tiles.max(1) + 1, 8).reshape(16, 8))
    odd = (x & 1).reshape(4, 32)
    want = np.where(odd, (np.cumsum(odd, 1) - 1) * 100 + odd.sum(1, keepdims=True), 0)
    assert np.array_equal(out[128:].reshape(4, 32), want)


def test_block_reduce() -> None:
    x = RNG.integers(-50, 50, (4, 128)).astype(np.int32)
    out = zeros(4, np.int32)
    launch(library(), "block_sum", 4, 128, emu.asarray(x), out)
    assert np.array_equal(out, x.sum(1))


def test_block_scan() -> None:
    x = RNG.integers(-50, 50, (2, 512)).astype(np.int32)
    out = zeros((2, 512), np.int32)
    launch(library(), "block_scan", 2, 128, emu.asarray(x), out)
    assert np.array_equal(out, np.cumsum(x, 1) - x)


def test_block_radix_sort() -> None:
    keys = RNG.integers(0, 2**32, 256, dtype=np.uint64).astype(np.uint32)
    out = zeros(256, np.uint32)
    launch(library(), "block_sort", 1, 64, emu.asarray(keys), out)
    assert np.array_equal(out, np.sort(keys))


def test_warp_reduce() -> None:
    x = RNG.integers(-9, 9, (4, 32)).astype(np.float32)
    out = zeros(4, np.float32)
    launch(library(), "warp_sum", 1, 128, emu.asarray(x), out)
    assert np.array_equal(out, x.sum(1))


def test_atomics_of_the_standard_library() -> None:
    counter, wide, flag = zeros(1, np.uint32), zeros(1, np.uint64), zeros(1, np.int32)
    launch(library(), "scoped_atomics", 3, 64, counter, wide, flag)
    assert (counter[0], wide[0]) == (2 * 192, 3 * 63)
    assert flag[0] in range(1, 65)
