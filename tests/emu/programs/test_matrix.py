"""Transposes with their counts, matrix products with and without tensor cores, and cp.async pipelines."""

from __future__ import annotations

import os

import numpy as np
import pytest

from rawflash import emu
from rawflash.emu import nvrtc
from tests.emu.harness import launch, line_of
from tests.emu.oracles import traffic
from tests.emu.programs.loader import program, text

RNG = np.random.default_rng(5)
HAS_MMA_H = os.path.isfile(os.path.join(nvrtc.headers_dir(), "crt", "mma.h"))
needs_mma_h = pytest.mark.skipif(not HAS_MMA_H, reason="mma.h includes crt/mma.h, which the wheel nvidia-cuda-crt carries: install it")


@pytest.mark.parametrize("name", ["transpose_naive", "transpose_plain", "transpose_padded"])
@pytest.mark.parametrize("shape", [(64, 96), (45, 70)])
def test_transpose(name: str, shape: tuple[int, int]) -> None:
    rows, cols = shape
    x = RNG.standard_normal(shape, np.float32)
    out = emu.empty((cols, rows), np.float32)
    launch(program("transpose"), name, (-(-cols // 32), -(-rows // 32)), (32, 8), emu.asarray(x), out, np.int32(rows), np.int32(cols))
    assert np.array_equal(out, x.T)


@pytest.mark.parametrize(("name", "write_sectors", "wavefronts", "conflicts"), [
    ("transpose_naive", 96 * 64, 0, 0),
    ("transpose_plain", 96 * 64 // 8, 6 * 32 * (1 + 32), 6 * 32 * 31),
    ("transpose_padded", 96 * 64 // 8, 6 * 32 * 2, 0),
])  # fmt: skip
def test_transpose_counts(name: str, write_sectors: int, wavefronts: int, conflicts: int) -> None:
    """64x96: six tiles of 32 rows. A naive column store touches one sector per element; a column of the plain tile 32 banks deep."""
    rows, cols = 64, 96
    x, out = emu.asarray(RNG.standard_normal((rows, cols), np.float32)), emu.empty((cols, rows), np.float32)
    report = launch(program("transpose"), name, (3, 2), (32, 8), x, out, np.int32(rows), np.int32(cols))
    source, target = report.arguments[:2]
    assert (source.read_bytes, source.read_sectors, source.read_requests) == (x.nbytes, x.nbytes // 32, 192)
    assert (target.write_bytes, target.write_sectors, target.write_requests) == (x.nbytes, write_sectors, 192)
    assert (target.read_bytes, source.write_bytes) == (0, 0)
    assert (report.shared.wavefronts, report.shared.bank_conflicts) == (wavefronts, conflicts)
    assert (report.barriers == 0) == (name == "transpose_naive")


def test_transpose_conflicts_belong_to_the_column_read() -> None:
    rows, cols = 64, 96
    x, out = emu.asarray(RNG.standard_normal((rows, cols), np.float32)), emu.empty((cols, rows), np.float32)
    report = launch(program("transpose"), "transpose_plain", (3, 2), (32, 8), x, out, np.int32(rows), np.int32(cols))
    by_line = {line: counts.shared.bank_conflicts for (_, line), counts in report.lines.items() if counts.shared.bank_conflicts}
    assert by_line == {line_of(text("transpose"), "column"): 6 * 32 * 31}


@pytest.mark.parametrize("size", [(48, 32, 64), (37, 50, 29)])
def test_tiled_matmul(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = RNG.integers(-5, 5, (m, k)).astype(np.float32), RNG.integers(-5, 5, (k, n)).astype(np.float32)
    out = emu.empty((m, n), np.float32)
    grid = (-(-n // 16), -(-m // 16))
    report = launch(program("matmul"), "matmul_tiled", grid, (16, 16), emu.asarray(a), emu.asarray(b), out, *(np.int32(v) for v in size))
    assert np.array_equal(out, a @ b)
    assert report.arguments[0].read_bytes == 4 * m * k * grid[0] and report.arguments[1].read_bytes == 4 * k * n * grid[1]
    assert report.count("fma") == grid[0] * grid[1] * 256 * (-(-k // 16) * 16)


def test_register_tiled_matmul() -> None:
    m, n, k = 64, 128, 48
    a, b = RNG.integers(-5, 5, (m, k)).astype(np.float32), RNG.integers(-5, 5, (k, n)).astype(np.float32)
    out = emu.empty((m, n), np.float32)
    launch(program("matmul"), "matmul_registers", (2, 1), 256, emu.asarray(a), emu.asarray(b), out, np.int32(n), np.int32(k))
    assert np.array_equal(out, a @ b)


def test_mma_with_ldmatrix() -> None:
    m, n, k = 64, 64, 48
    a, b = RNG.integers(-8, 8, (m, k)).astype(np.float16), RNG.integers(-8, 8, (k, n)).astype(np.float16)
    out = emu.empty((m, n), np.float32)
    report = launch(program("mma"), "mma_ldmatrix", (2, 1), 128, emu.asarray(a), emu.asarray(b), out, np.int32(n), np.int32(k))
    assert np.array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
    # pitches of 48 and 80 bytes spread the eight rows of an ldmatrix over all banks; only the 16-byte stores conflict
    t = np.arange(128).reshape(4, 32)
    stores = [*(t // 2 * 48 + t % 2 * 16), *(t[:2] // 4 * 80 + t[:2] % 4 * 16)]
    steps = 2 * k // 16  # over both CTAs
    assert report.shared.bank_conflicts == steps * sum(traffic.bank_conflicts(warp.tolist(), 16) for warp in stores)
    assert report.shared.wavefronts == steps * (sum(traffic.wavefronts(w.tolist(), 16) for w in stores) + 4 * (4 + 4 * 2))
    assert report.shared.read_bytes == steps * 4 * (4 + 4 * 2) * 128


def test_mma_on_random_halves_is_close() -> None:
    m, n, k = 64, 32, 160
    a, b = RNG.standard_normal((m, k)).astype(np.float16), RNG.standard_normal((k, n)).astype(np.float16)
    out = emu.empty((m, n), np.float32)
    launch(program("mma"), "mma_ldmatrix", (1, 1), 128, emu.asarray(a), emu.asarray(b), out, np.int32(n), np.int32(k))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) * k * 2.0**-24
    assert (np.abs(out - exact) <= bound).all()


@needs_mma_h
def test_wmma() -> None:
    m, n, k = 32, 48, 64
    a, b = RNG.integers(-8, 8, (m, k)).astype(np.float16), RNG.integers(-8, 8, (k, n)).astype(np.float16)
    out = emu.empty((m, n), np.float32)
    launch(program("wmma"), "wmma_half", (3, 2), 32, emu.asarray(a), emu.asarray(b), out, np.int32(n), np.int32(k))
    assert np.array_equal(out, 2 * (a.astype(np.float32) @ b.astype(np.float32)))


@needs_mma_h
def test_wmma_tall_column_major_half_accumulator() -> None:
    k = 32
    a, b = RNG.integers(-4, 4, (32, k)).astype(np.float16), RNG.integers(-4, 4, (k, 8)).astype(np.float16)
    out = emu.empty((8, 32), np.float16)
    launch(program("wmma"), "wmma_tall", 1, 32, emu.asarray(a.T.copy()), emu.asarray(b.T.copy()), out, np.int32(k))
    assert np.array_equal(out.T, a.astype(np.float32) @ b.astype(np.float32))


@needs_mma_h
def test_wmma_int8() -> None:
    a, b = RNG.integers(-128, 128, (16, 16)).astype(np.int8), RNG.integers(-128, 128, (16, 16)).astype(np.int8)
    out = emu.empty((16, 16), np.int32)
    launch(program("wmma"), "wmma_int8", 1, 32, emu.asarray(a), emu.asarray(b.T.copy()), out)
    assert np.array_equal(out, a.astype(np.int32) @ b.astype(np.int32) + 5)


@pytest.mark.parametrize("n", [1024, 1000, 770])
def test_pipeline_with_zero_fill(n: int) -> None:
    x = RNG.integers(-9, 9, (n, 4)).astype(np.float32)
    out = emu.empty((256, 4), np.float32)
    report = launch(program("pipeline"), "pipeline_sum", 1, 256, emu.asarray(x), out, np.int32(4), np.int32(n))
    padded = np.zeros((1024, 4), np.float32)
    padded[:n] = x
    assert np.array_equal(out, padded.reshape(4, 256, 4).sum(0)[np.arange(256) ^ 1])
    assert report.arguments[0].read_bytes == x.nbytes  # what zero-fill supplies is not read


def test_pipeline_through_the_header() -> None:
    x = RNG.integers(-9, 9, 512).astype(np.int32)
    out = emu.empty(512, np.int32)
    launch(program("pipeline"), "pipeline_api", 1, 128, emu.asarray(x), out, np.int32(512))
    assert np.array_equal(out.reshape(4, 128), x.reshape(4, 128)[:, ::-1])
