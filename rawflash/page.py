"""One HTML file that holds everything a run has to show, pictures included: it opens in a browser and in MLflow's UI alike."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from rawflash.tables import Table

__all__ = ["page"]

_STYLE = """body{font:14px/1.45 system-ui,sans-serif;margin:1.5em;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;margin:.5em 0 1em;font-variant-numeric:tabular-nums}
th,td{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th.key,td.key{text-align:left}th small{display:block;font-weight:400;color:#666}
tr:hover td{background:#f4f7fa}img{max-width:100%;height:auto;border:1px solid #eee;margin:.3em 0}
.wide{overflow-x:auto}li,p.made{color:#555}"""


def page(title: str, tables: Sequence[Table], images: Sequence[Path], made_by: str) -> str:
    """A whole document without links to anything outside; `images` are PNG files, `made_by` the line on where numbers come from."""
    parts = [_image(path) for path in images] + [_table(table) for table in tables]
    head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style></head>'
    return "\n".join(
        [head, f"<body><h1>{html.escape(title)}</h1>", *parts, f'<p class="made">{html.escape(made_by)}</p></body></html>', ""]
    )


def _image(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<p><img alt="{html.escape(path.stem)}" src="data:image/png;base64,{data}"></p>'


def _table(table: Table) -> str:
    marks = [' class="key"' if column.key else "" for column in table.columns]
    heads = [
        f"<th{mark}>{html.escape(column.title)}{f'<small>{html.escape(column.kind)}</small>' if column.kind else ''}</th>"
        for column, mark in zip(table.columns, marks, strict=True)
    ]
    lines = ["".join(f"<td{mark}>{html.escape(cell)}</td>" for cell, mark in zip(row, marks, strict=True)) for row in table.rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in ["".join(heads), *lines])
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.notes)
    return f'<h2>{html.escape(table.title)}</h2>\n<div class="wide"><table>\n{body}\n</table></div>\n<ul>{notes}</ul>'
