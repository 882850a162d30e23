"""Tables: what they say about rows, and how they look."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from rawflash.report import comparison, growth, report_markdown, tables, tensor_bytes
from rawflash.results import Row
from rawflash.tables import Column, Table, fit, markdown, plain, print_rich, si


def row(variant: str, total: float = 1000.0, status: str = "OK", point: dict[str, str] | None = None, **metrics: float) -> Row:
    made = {"io/hbm_read_bytes": total, "io/hbm_write_bytes": 0.0, "io/hbm_total_bytes": total, "io/ideal_bytes": 100.0}
    found = Row(variant, status, point=point or {}, params={"problem.N": (point or {}).get("problem.N", "512")})
    if status == "OK":
        found.metrics = {**made, "io/times_ideal": total / 100, "err/ratio": 0.25, **{k.replace("__", "/"): v for k, v in metrics.items()}}
        found.tensors = [tensor("Q", int(total), 0), tensor("O", 0, 64)]
    return found


def tensor(name: str, read: int, write: int, **other: int) -> dict[str, Any]:
    modelled = {"modelled_read": read, "modelled_write": write, **other}
    return {"name": name, "counted_read": read, "counted_write": write, **modelled, "read_sectors": 0, "write_sectors": 0}


def column(table: Table, title: str) -> list[str]:
    index = [c.title for c in table.columns].index(title)
    return [cells[index] for cells in table.rows]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1_048_576, "1.05 MB"), (6.577e9, "6.58 GB"), (999_600, "1.00 MB"), (1e15, "1000 TB")],
)
def test_bytes_with_decimal_prefixes(value: float, text: str) -> None:
    assert si(value, "B") == text


def test_counts_and_oddities() -> None:
    assert [si(12), si(12.5), si(4096), si(math.nan), si(-math.inf)] == ["12", "12.5", "4.10k", "nan", "-inf"]


def test_one_row_per_variant_with_ratios() -> None:
    table = comparison([row("naive", 4000), row("fa2", 1000)], "title")
    assert column(table, "variant") == ["naive", "fa2"]
    assert column(table, "x ideal") == ["40.0", "10.0"]
    assert column(table, "/ naive") == ["1.00", "0.250"]
    assert column(table, "err") == ["0.250", "0.250"]


def test_every_number_has_a_provenance_and_every_provenance_a_note() -> None:
    table = comparison([row("fa2", time__gpu_ms_median=2.0)], "title")
    assert all(bool(c.kind) != c.key for c in table.columns)
    for kind in {c.kind for c in table.columns if c.kind}:
        assert any(note.startswith(f"{kind}:") for note in table.notes)


def test_columns_that_nobody_fills_are_left_out() -> None:
    titles = [c.title for c in comparison([row("fa2")], "title").columns]
    assert "ms" not in titles and "speedup" not in titles and "/ naive" not in titles


def test_without_counts_the_modelled_bytes_stand_in() -> None:
    found = row("fa2", io__model_bytes=500.0, time__gpu_ms_median=2.0)
    for name in ("io/hbm_read_bytes", "io/hbm_write_bytes", "io/hbm_total_bytes", "io/times_ideal"):
        del found.metrics[name]
    table = comparison([found], "title")
    assert column(table, "HBM r+w") == ["500 B"] and column(table, "x ideal") == ["5.00"]
    assert {c.kind for c in table.columns if c.title in ("HBM r+w", "x ideal")} == {"modelled"}
    assert "HBM r+w" not in [c.title for c in comparison([row("fa2", io__model_bytes=500.0)], "title").columns]


def test_speedup_is_over_naive() -> None:
    table = comparison([row("naive", time__gpu_ms_median=8.0), row("fa2", time__gpu_ms_median=2.0)], "title")
    assert column(table, "speedup") == ["1.00", "4.00"]


def test_a_bad_row_keeps_its_place_and_says_why() -> None:
    bad = Row("fa1", "INVALID", "needs too much", point={"block_size": "128"})
    table = comparison([row("naive", point={"block_size": "64"}), bad], "title")
    assert column(table, "status") == ["OK", "INVALID"]
    assert column(table, "HBM read") == ["1.00 kB", ""]
    assert table.notes[0] == "INVALID fa1 block_size=128: needs too much"


def test_naive_of_another_tile_serves_where_this_tile_has_none() -> None:
    rows = [
        row("naive", 4000, point={"block_size": "16"}),
        Row("naive", "INVALID", point={"block_size": "128"}),
        row("fa2", 1000, point={"block_size": "128"}),
    ]
    assert column(comparison(rows, "title"), "/ naive")[2] == "0.250"


def test_ratios_never_cross_problems() -> None:
    rows = [row("naive", 4000, point={"problem.N": "512"}), row("fa2", 1000, point={"problem.N": "1024"})]
    assert column(comparison(rows, "title"), "/ naive") == ["1.00", ""]


def test_counted_and_modelled_bytes_stand_side_by_side_when_they_differ() -> None:
    found = row("fa2")
    assert [cells[1] for cells in tensor_bytes([found]).rows] == ["counted = modelled"]  # type: ignore[union-attr]
    found.tensors[0]["modelled_read"] = 7
    table = tensor_bytes([found])
    assert table is not None
    assert [cells[1] for cells in table.rows] == ["counted", "modelled"]
    assert column(table, "Q") == ["1,000", "7"] and column(table, "total") == ["1,064", "71"]


def test_no_bytes_no_table() -> None:
    assert tensor_bytes([Row("fa2", "COMPILE_ERROR")]) is None


def test_growth_along_one_size() -> None:
    rows = [row(v, n * n, point={"problem.N": str(n)}) for n in (512, 1024) for v in ("naive", "fa2")]
    table = growth(rows)
    assert table is not None
    assert column(table, "N") == ["512 -> 1024"] * 2
    assert column(table, "Q") == ["4", "4"] and column(table, "O") == ["1", "1"]
    assert growth([row("fa2", point={"block_size": b}) for b in ("16", "32")]) is None
    assert len(tables(rows, "title")) == 3


def test_plain_text_is_aligned_and_bare() -> None:
    text = plain(comparison([row("naive", 4000), row("fa2", 123456)], "title"))
    lines = text.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    ends = [i for i, c in enumerate(lines[rule] + " ") if c == " " and (lines[rule] + " ")[i - 1] == "-"]
    for line in lines[rule + 1 : rule + 3]:
        assert all(line.ljust(ends[-1])[end - 1] != " " for end in ends[2:])
    assert "\x1b" not in text and text.isascii() and not any(line.endswith(" ") for line in lines)


def test_markdown_names_the_provenance_in_each_header() -> None:
    text = markdown(Table("t", (Column("variant", key=True), Column("ex2", "counted")), (("a|b", "3"),), ("a note",)))
    assert "| variant | ex2 (counted) |\n| :-- | --: |\n| a\\|b | 3 |" in text and "- a note" in text


def test_the_report_ends_with_where_it_comes_from() -> None:
    assert report_markdown([row("fa2")], "title", "Made by `x`").endswith("\n\nMade by `x`\n")


@pytest.mark.parametrize("width", [60, 120, 400])
def test_a_terminal_gets_tables_that_fit(width: int) -> None:
    from rich.console import Console

    names = ("ops__ex2", "ops__div", "ops__rescale_mul", "smem__bank_conflicts", "res__registers", "res__smem_bytes")
    every = dict.fromkeys(names, 1e12)
    rows = [row(v, 1e9, point={"block_size": "128"}, time__gpu_ms_median=3.0, perf__tflops=100.0, **every) for v in ("naive", "online")]
    table = comparison(rows, "a title")
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    print_rich(table, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "naive" in shown and "…" not in shown
    parts = fit(table, width)
    assert (len(parts) == 1) == (width == 400)
    assert sorted({c.title for part in parts for c in part.columns}) == sorted({c.title for c in table.columns})
    assert [part.notes for part in parts[:-1]] == [()] * (len(parts) - 1) and parts[-1].notes == table.notes


def test_the_emulated_ladder_fits_120_columns() -> None:
    names = ("ops__flops", "ops__ex2", "ops__div", "ops__rescale_mul", "smem__bank_conflicts")
    rows = [
        row(v, 134_483_968, res__registers=128.0, res__smem_bytes=66048.0, **dict.fromkeys(names, 65536.0))
        for v in ("naive", "online", "fa1", "fa2_mma")
    ]
    assert max(len(line) for line in plain(comparison(rows, "t")).splitlines() if not line.startswith(("counted:", "checked:"))) <= 120
