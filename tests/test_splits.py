"""How many splits, and who gets which keys."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash.errors import UsageError
from rawflash.problem import Problem
from rawflash.splits import choose_splits, cut_keys
from rawflash.tiling import Tiling

DECODE = Problem(B=1, H=32, Hkv=8, N=1, Nkv=65536, d=128)


def test_splits_fill_the_gpu_and_no_more() -> None:
    assert choose_splits(ctas=87, key_tiles=1000, sms=108) == 1  # four fifths of the SMs have work as it is
    assert choose_splits(ctas=86, key_tiles=1000, sms=108) == 5  # 430 CTAs: 4 waves, the last nearly full
    assert choose_splits(ctas=8, key_tiles=1000, sms=108) == 12  # 96 CTAs; 13 would give 104: not 15 % better
    assert choose_splits(ctas=1, key_tiles=4, sms=108) == 4
    assert choose_splits(ctas=1, key_tiles=1, sms=108) == choose_splits(ctas=1, key_tiles=0, sms=108) == 1
    for ctas in range(1, 106):
        splits = choose_splits(ctas, 512, 132)
        waves = -(-ctas * splits // 132)
        assert ctas * splits / (132 * waves) >= 0.8


def test_a_split_that_shortens_no_cta_is_not_taken() -> None:
    """7 key tiles in 5 or 6 parts leave somebody 2 of them, as 4 parts do."""
    assert {choose_splits(ctas, 7, 108) for ctas in range(1, 108)} <= {1, 2, 3, 4, 7}


@pytest.mark.parametrize("sms", [1, 40, 108, 132])
def test_the_automatic_choice_follows_the_gpu(sms: int) -> None:
    assert cut_keys(DECODE, Tiling(16, 64, sms=sms)).splits == choose_splits(8, 1024, sms)


def test_query_heads_share_a_tile() -> None:
    cut = cut_keys(DECODE, Tiling(16, 64, num_splits=6))
    assert cut.rows.tolist() == [4] and cut.keys.tolist() == [65536] and cut.parts.tolist() == [6] and cut.live == 24


def test_no_more_splits_than_key_tiles_and_empty_ones_where_rows_see_less() -> None:
    p = Problem(B=1, H=1, N=40, Nkv=40, d=8, causal="bottom_right")
    cut = cut_keys(p, Tiling(16, 16, num_splits=9))
    assert cut.splits == 3 and cut.parts.tolist() == [1, 2, 3] and cut.keys.tolist() == [16, 32, 40]
    assert cut.live == 16 * 1 + 16 * 2 + 8 * 3  # rows from 16 on see the first tile whole, and one key of the second at least
    blind = cut_keys(Problem(B=1, H=1, N=40, Nkv=8, d=8, causal="bottom_right"), Tiling(16, 16, num_splits=2))
    assert blind.splits == 1 and blind.parts.tolist() == [0, 0, 1] and np.array_equal(blind.keys, [0, 0, 8])


@pytest.mark.parametrize("splits", [0, -1, 2.5, True, "auto"])
def test_what_is_no_number_of_splits_is_refused(splits: object) -> None:
    with pytest.raises(UsageError, match=r"num_splits=.* is not a number of splits"):
        Tiling(16, 16, num_splits=splits)  # type: ignore[arg-type]
