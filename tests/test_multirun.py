"""Before a sweep one point is composed per new value, not every point; what is wrong is refused all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rawflash.composing import Composer


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The overrides of every point that is composed, in order."""
    found: list[tuple[str, ...]] = []
    real = Composer.load_sweep_config

    def load(self: Composer, config: Any, overrides: Sequence[str]) -> Any:
        found.append(tuple(overrides))
        return real(self, config, overrides)  # type: ignore[arg-type]

    monkeypatch.setattr(Composer, "load_sweep_config", load)
    return found


def test_every_value_is_checked_once_and_every_point_is_run(
    program: Callable[..., Any], workdir: Path, quick: Any, composed: list[tuple[str, ...]]
) -> None:
    assert program("-m", "kernel=fa2", "block_size=16,32,64", "problem.N=64,128,192,256").code == 0
    before = len(composed) - 12
    assert before == 1 + 3 + 2 and len(set(composed[before:])) == 12
    assert {value for overrides in composed[:before] for value in overrides} == {value for overrides in composed for value in overrides}


def test_a_wrong_value_anywhere_is_refused_before_any_point(
    program: Callable[..., Any], workdir: Path, quick: Any, composed: list[tuple[str, ...]]
) -> None:
    got = program("-m", "block_size=16,32", "kernel=fa2,fa1,fa9")
    assert got.code == 2 and "kernel=fa9 is unknown" in got.err and not (workdir / "outputs").exists()
    assert len(composed) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["problem.N=range(40,16)"], "problem.N is swept over no value"),
        (["kernel=glob(x*)"], "kernel is swept over no value"),
        (["problem.N=16,32", "problem.N=8"], "problem.N is given 2 times, and only one would count"),
        (["problem.N=16,32", "problem.N=8,16"], "problem.N is given 2 times"),
    ],
)
def test_a_sweep_that_cannot_be_meant_is_refused(program: Callable[..., Any], workdir: Path, arguments: list[str], sentence: str) -> None:
    got = program("-m", "problem=tiny", "backend=emu", *arguments)
    assert got.code == 2 and sentence in got.err and got.err.count("\n") == 1 and not (workdir / "outputs").exists()


def test_kernels_may_be_chosen_by_a_pattern(program: Callable[..., Any], workdir: Path, quick: Any) -> None:
    got = program("-m", "kernel=glob(fa1*)", "problem=tiny", "backend=emu")
    assert got.code == 0 and "2 rows" in got.out and "fa1_qout" in got.out
