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
