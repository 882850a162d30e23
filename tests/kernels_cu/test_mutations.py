"""Every barrier and every wait of every kernel is needed: without it a check fails. The table: `rawflash experiment=mutations`."""

from __future__ import annotations

import dataclasses
import re

import pytest

from rawflash import mutants, paths
from rawflash.errors import UsageError
from rawflash.mutants import SUBJECTS, Guard, caught, guards

GUARDS = [guard for subject in SUBJECTS for guard in guards(subject)]


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: f"{g.subject}-{g.line}")
def test_no_guard_can_go(guard: Guard) -> None:
    found = caught(guard)
    assert found is not None and found.check in ("race", "uninitialised read", "barrier", "result")
    assert "/" not in found.sentence and "0x" not in found.sentence


def test_every_guard_is_found_and_says_why() -> None:
    """As many as a plain search of the sources finds; headers, which are not searched, hold none."""
    call = re.compile(r"^(?!\s*//)[^/\n]*?\b(?:__sync(?:threads|warp)|wait_for_copies)\(\);", re.M)
    for path in paths.kernels_dir().glob("*.cu"):
        lines = {guard.line for guard in GUARDS if guard.file == path.name}
        assert len(lines) == len(call.findall(path.read_text("utf-8"))), path.name
    assert not [path.name for path in paths.include_dir().glob("*.cuh") if call.search(path.read_text("utf-8"))]
    assert all(guard.reason.startswith("so that ") for guard in GUARDS if guard.what.startswith("__sync"))


def test_a_guard_that_nothing_needs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second barrier behind the first: either can go."""
    first = next(guard for guard in GUARDS if guard.subject == "fa2")
    whole = mutants.read_source(first.file)
    doubled = re.sub(r"^( *__syncthreads\(\);)", r"\1 __syncthreads();", whole.text, count=1, flags=re.M)
    monkeypatch.setattr(mutants, "read_source", lambda file: dataclasses.replace(whole, text=doubled))
    assert caught(first) is None


def test_an_unknown_kernel_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="there is no kernel called 'fa9'; the known ones are naive, "):
        guards("fa9")
