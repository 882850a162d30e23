"""Tile sizes, how many tiles there are, and which of them a mask leaves.

    Br, Bc    rows of a query tile, keys of a key tile          Tr = ceil(N / Br), Tc = ceil(Nkv / Bc)

A row sees an interval of keys whose ends do not fall from row to row (problem.visible), so a query tile meets the key tiles from that of
the first key of its first row to that of the last key of its last row.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawflash.errors import UsageError
from rawflash.problem import Problem

__all__ = ["SOFTMAX_SMEM_BYTES", "Tiling", "ceil_div", "softmax_warps"]

# What a CTA may use of SMEM without asking, on every GPU (CUDA programming guide): rows of scores are kept within it.
SOFTMAX_SMEM_BYTES = 48 * 1024
_MOST_SOFTMAX_WARPS = 4


def ceil_div(a: int, b: int) -> int:
    """Smallest integer >= a / b."""
    return -(-a // b)


@dataclass(frozen=True)
class Tiling:
    """Rows of a query tile and keys of a key tile. Any sizes >= 1: what a variant can run is for the variant to say.

    scale_pass      unfused only: softmax_scale is a pass over S of its own, instead of a factor inside the product
    lazy_threshold  fa2_lazy only: O and l are rescaled when a maximum grew by more than 2^this, 0 to 15; None: in every tile
    poly_fraction   fa2_lazy only: share of the exponentials that are polynomials, 0 to 1, taken in whole percents
    poly_degree     fa2_lazy only: degree of these polynomials, 3 to 5
    num_splits      splitkv only: CTAs that share the keys of a query tile; None: as many as fill `sms` SMs (rawflash.splits)
    warps           fa2_pipe, fa2_lazy: warps of a CTA, Br/16 or Br/32; None: chosen by the plan
    sms             SMs of the GPU; run_variant puts in those of the GPU at hand
    """

    Br: int
    Bc: int
    scale_pass: bool = False
    lazy_threshold: float | None = 8.0
    poly_fraction: float = 0.25
    poly_degree: int = 4
    num_splits: int | None = None
    warps: int | None = None
    sms: int = 108

    def __post_init__(self) -> None:
        counts = (("num_splits", "a number of splits"), ("warps", "a number of warps"))
        for name, meaning in (("Br", "the side of a tile"), ("Bc", "the side of a tile"), *counts):
            value = getattr(self, name)
            if (name, meaning) in counts and value is None:
                continue
            try:
                size = 0 if isinstance(value, bool) else operator.index(value)
            except TypeError:
                size = 0
            if size < 1:
                raise UsageError(f"tiling.{name}={value!r} is not {meaning}: give an integer of at least 1, such as 64")
            object.__setattr__(self, name, size)
        if self.lazy_threshold is not None:
            self._check_range("lazy_threshold", 15, ", or null for a rescale in every tile")
        self._check_range("poly_fraction", 1, "")
        if isinstance(self.poly_degree, bool) or self.poly_degree not in (3, 4, 5):
            raise UsageError(f"kernel.poly_degree={self.poly_degree} is not usable: give 3, 4 or 5")

    def _check_range(self, name: str, most: float, more: str) -> None:
        value = getattr(self, name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (number and 0 <= value <= most):
            raise UsageError(f"kernel.{name}={'null' if value is None else value} is not usable: give a number from 0 to {most:g}{more}")
        object.__setattr__(self, name, float(value))

    @property
    def Bp(self) -> int:
        """Bc rounded up to whole warps of columns: the width of a tile of scores in SMEM."""
        return ceil_div(self.Bc, 32) * 32

    def Tr(self, problem: Problem) -> int:
        """Number of query tiles of one head."""
        return ceil_div(problem.N, self.Br)

    def Tc(self, problem: Problem) -> int:
        """Number of key tiles of one head."""
        return ceil_div(problem.Nkv, self.Bc)

    def rows(self, problem: Problem) -> NDArray[np.int64]:
        """[Tr] rows of each query tile: Br, less in a ragged last one."""
        first = np.arange(self.Tr(problem), dtype=np.int64) * self.Br
        return np.minimum(self.Br, problem.N - first)

    def key_tiles(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """[Tr] each: query tile i meets the key tiles first[i] .. past[i]-1; 0 .. Tc-1 without a mask, 0 and 0 when it sees no key."""
        first = np.arange(self.Tr(problem), dtype=np.int64) * self.Br
        low, high = problem.visible(first)[0], problem.visible(first + self.rows(problem) - 1)[1]
        return np.where(low < high, low // self.Bc, 0), np.where(low < high, -(-high // self.Bc), 0)


def softmax_warps(problem: Problem) -> int:
    """Warps per CTA of naive's softmax kernel, one row of scores in SMEM each; 0 when not even one row fits."""
    row_bytes = 4 * max(1, problem.Nkv)
    return min(_MOST_SOFTMAX_WARPS, SOFTMAX_SMEM_BYTES // row_bytes)
