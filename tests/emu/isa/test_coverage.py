"""What the tests of this process executed, compared with the registry: no registered pattern goes untested."""

from __future__ import annotations

from pathlib import Path

import pytest

from rawflash.emu.isa import load_all, registry
from tests.emu.harness import EXECUTED

INTERNAL = "rf."  # injected by the emulator itself for printf, assert and the heap


def registered() -> list[registry.Form]:
    load_all()
    return [form for form in registry.supported_forms() if not form.pattern.startswith(INTERNAL)]


@pytest.fixture(autouse=True)
def _needs_the_whole_folder(request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    collected = {item.path for item in request.session.items}
    if missing := sorted(p.name for p in here.glob("test_*.py") if p not in collected):
        pytest.skip(f"counts what was executed, so it needs all of tests/emu/isa in one run; missing: {', '.join(missing)}")


def test_every_registered_pattern_is_executed_somewhere() -> None:
    untested = [f.pattern for f in registered() if not any(f.regex.fullmatch(s) for s in EXECUTED)]
    assert not untested, "\n".join(["patterns that no test executes:", *untested])


def test_count_of_tested_forms(capsys: pytest.CaptureFixture[str]) -> None:
    """The count that the README quotes."""
    forms = registered()
    known = {s for s in EXECUTED if any(f.regex.fullmatch(s) for f in forms)}
    with capsys.disabled():
        print(f"\n{len(known)} instruction spellings were executed against an oracle; the registry has {len(forms)} patterns")
    assert len(known) > 1300
