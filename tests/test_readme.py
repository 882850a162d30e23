"""The README's table is what the default job prints now; `python -m tests.test_readme` writes it, and its picture, again."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
_BLOCK = re.compile(r"(<!-- table: the default job -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
COMMAND = ("block_size=64", "backend=emu", "tracking=none")
# Its picture; tests/experiments/test_results.py says when it is an old one.
PICTURE = ("experiment=traffic", "tracking=none", f"experiment.publish='{README.parent}/experiments/results'")


def table(folder: Path) -> str:
    """The comparison of the run whose results lie below `folder`, as Markdown without title and notes."""
    (report,) = folder.glob("outputs/*/*/table.md")
    lines = report.read_text("utf-8").split("### ")[1].splitlines()
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def io_columns(text: str) -> list[list[str]]:
    """Variant, status and bytes of each row: the columns that no compiler version and no CPU changes."""
    return [[cell.strip() for cell in line.split("|")[1:7]] for line in text.splitlines()]


def test_the_table_is_what_the_default_job_prints(program: Callable[..., Any], workdir: Path) -> None:
    assert program(*COMMAND).code == 0
    shown = _BLOCK.search(README.read_text("utf-8"))
    assert shown is not None
    assert io_columns(shown[2]) == io_columns(table(workdir)), "run `python -m tests.test_readme` to write the README's table again"


def test_every_kind_of_number_is_explained() -> None:
    text = README.read_text("utf-8")
    assert all(f"**{kind}**" in text for kind in ("counted", "modelled", "measured", "checked"))


@pytest.mark.parametrize("path", ["README.md", "rawflash/emu/README.md"])
def test_the_python_in_it_prints_what_its_comment_says(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (README.parent / path).read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})
        assert capsys.readouterr().out == block.rstrip().rpartition("# ")[2] + "\n"


@pytest.mark.parametrize("column", ["HBM read", "x ideal", "/ naive", "rescale", "confl", "regs", "SMEM", "FLOP", "err", "speedup"])
def test_every_column_is_explained(column: str) -> None:
    assert column in README.read_text("utf-8").split("## How to read the table")[1].split("## ")[0]


if __name__ == "__main__":
    import os

    from rawflash.run import main

    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        if main(COMMAND) == 0 and main(PICTURE) == 0:
            fresh = table(Path(scratch))
            README.write_text(_BLOCK.sub(lambda old: old[1] + fresh + old[3], README.read_text("utf-8")), "utf-8")
        else:
            sys.exit("the default job or the experiment failed; README.md is as it was")
