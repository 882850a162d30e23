"""experiments/published.yaml: every number has a place in a paper, a unit and a word on how sure it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rawflash
from rawflash.config import read_yaml
from rawflash.paths import conf_dir, experiments_dir

FILE = read_yaml(experiments_dir() / "published.yaml")
ENTRIES = FILE["entries"]
NEEDED = {"id", "paper", "where", "measures", "unit", "confidence", "columns", "rows"}
OPTIONAL = {"units", "setting", "note"}
entries = pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["id"])


@entries
def test_an_entry_says_where_it_stands_and_how_sure_it_is(entry: dict) -> None:
    assert set(entry) >= NEEDED and set(entry) - NEEDED <= OPTIONAL
    assert entry["confidence"] in FILE["confidence"]
    assert all(entry[name].strip() for name in ("paper", "where", "measures"))
    assert "arXiv" in entry["paper"] or "github.com" in entry["paper"] or "data sheets" in entry["paper"]


@entries
def test_an_entry_is_a_table_of_numbers_and_words(entry: dict) -> None:
    columns, rows = entry["columns"], entry["rows"]
    assert len(set(columns)) == len(columns) and rows
    assert set(entry.get("units", {})) <= set(columns)
    for row in rows:
        assert len(row) == len(columns), row
        assert all(cell is None or (isinstance(cell, str | int | float) and not isinstance(cell, bool)) for cell in row), row
    lengths = [column for column in columns if isinstance(column, int)]
    assert lengths == sorted(lengths)


def test_ids_are_unique_and_every_one_that_is_asked_for_exists() -> None:
    known = [entry["id"] for entry in ENTRIES]
    assert len(set(known)) == len(known)
    code = "".join(path.read_text("utf-8") for path in (Path(rawflash.__file__).parent / "experiments").glob("*.py"))
    asked = set(re.findall(r'lab\.published\("(\w+)"\)|values_of\(lab, "(\w+)"\)', code))
    grids = "".join(path.read_text("utf-8") for path in (conf_dir() / "experiment").glob("*.yaml"))
    names = {name for pair in asked for name in pair if name} | set(re.findall(r"entry: (\w+)", grids))
    assert len(names) > 20 and names <= set(known)


def test_cells_that_everything_leans_on() -> None:
    """Typed again from the papers: a slip in the file would make a wrong verdict."""
    rows = {entry["id"]: {row[0]: row[1:] for row in entry["rows"]} for entry in ENTRIES}
    assert rows["fa1_fig2_middle"] == {64: [6.577, 8.6], 128: [3.355, 4.7], 256: [1.744, 3.3], 512: [0.939, 3.2]}
    assert rows["fa1_fig2_left"] == {"Standard": [66.6, 40.3, 41.7], "FlashAttention": [75.2, 4.4, 7.3]}
    assert rows["fa1_table21"]["FlashAttention"] == [22, 44, 104, 209, 418, 836, 1672, 3344, 6688, 13376]
    assert rows["fa1_table18"]["FlashAttention"][-1] == 2147.05 and rows["fa1_table11"]["PyTorch Attention"][5] == 124.19
    assert rows["fa2_fig4b"]["FlashAttention-2"] == [151, 173, 187, 196, 201, 203]
    assert rows["fa2_fig7b"]["FlashAttention-2"] == [248, 294, 320, 326, 335, 338]
    assert rows["fa4_table1"]["exponential"] == [1024, 2048]
