"""The floor plan tells the truth: its table of forms is the registry's, the files it names exist, its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rawflash.emu import forms

FOLDER = Path(forms.__file__).parent
TEXT = (FOLDER / "README.md").read_text()


def test_the_table_of_forms_is_current() -> None:
    assert forms.updated(TEXT) == TEXT, "run: python -m rawflash.emu.forms"


def test_every_file_named_exists() -> None:
    head = TEXT.split(forms.BEGIN)[0]
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", head))
    assert len(named) > 25
    assert not [name for name in named if not (FOLDER / name).is_file()]


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", TEXT, re.S)
    assert code is not None
    exec(code[1], {})
    assert capsys.readouterr().out.strip() == code[1].rsplit("# ", 1)[1].strip()
