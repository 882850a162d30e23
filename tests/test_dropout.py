"""Dropout without a state: Philox against its published answers, masks that depend on the place alone, the reference with dropout."""

from __future__ import annotations

import numpy as np
import pytest

from rawflash.dropout import drop_below, kept, philox
from rawflash.errors import UsageError
from rawflash.problem import Problem, make_inputs
from rawflash.reference import attention_f64

# Known answers of the authors' Random123 library, philox4x32 with 10 rounds: counter, key, numbers.
PUBLISHED = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "numbers"), PUBLISHED)
def test_published_answers(counter: str, key: str, numbers: str) -> None:
    c, k, n = ([int(word, 16) for word in text.split()] for text in (counter, key, numbers))
    assert philox(np.array([c], np.uint32), (k[0], k[1])).tolist() == [n]


def test_an_element_takes_its_own_number_wherever_its_chunk_begins() -> None:
    p = Problem(B=2, H=3, N=5, Nkv=7, dropout_p=0.4, seed=2**40 + 11)
    for b, h, i, j in ((0, 0, 0, 0), (1, 2, 4, 6), (1, 0, 3, 2)):
        n = ((b * p.H + h) * p.N + i) * p.Nkv + j
        number = philox(np.array([n // 4, 0, 0, 0], np.uint32), (11, 2**8))[n % 4]
        for rows in (slice(0, 5), slice(i, i + 1), slice(i, None)):
            assert kept(p, b, h, rows)[i - rows.start, j] == (number >= drop_below(0.4))


def test_as_many_are_kept_as_the_probability_says() -> None:
    p = Problem(B=1, H=1, N=300, Nkv=300, dropout_p=0.1)
    assert kept(p, 0, 0, slice(0, 300)).mean() == pytest.approx(0.9, abs=5 * (0.09 / 90_000) ** 0.5)
    assert kept(Problem(N=9), 0, 0, slice(0, 9)).all()


def test_the_reference_divides_what_it_keeps() -> None:
    p = Problem(B=1, H=2, N=6, d=4, dtype="fp32", causal="top_left", dropout_p=0.25, seed=3)
    x = make_inputs(p)
    O, LSE = attention_f64(x["Q"], x["K"], x["V"], p)
    S = np.where(np.tri(6, dtype=bool), 0.5 * x["Q"].astype(float) @ x["K"].astype(float).swapaxes(-1, -2), -np.inf)
    Z = np.stack([kept(p, 0, h, slice(0, 6)) for h in range(2)])[None]
    P = np.exp(S) / np.exp(S).sum(-1, keepdims=True)
    np.testing.assert_allclose(O, (P * Z / 0.75) @ x["V"].astype(float), rtol=1e-12)
    np.testing.assert_allclose(LSE, np.log(np.exp(S).sum(-1)), rtol=1e-12)


@pytest.mark.parametrize("p", [1, 1.5, -0.1, float("nan"), True, "0.1"])
def test_what_is_no_probability_is_refused(p: object) -> None:
    with pytest.raises(UsageError, match=r"dropout_p=.* is not a probability below 1"):
        Problem(dropout_p=p)  # type: ignore[arg-type]
