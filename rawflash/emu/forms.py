"""The table of supported PTX forms: ``python -m rawflash.emu.forms`` writes it into README.md and prints the counts."""

from __future__ import annotations

import math
from pathlib import Path

from rawflash.emu.isa import load_all
from rawflash.emu.isa.registry import choices, supported_forms

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- forms -->", "<!-- /forms -->"


def counts() -> tuple[int, int, int]:
    """Numbers of opcodes, forms and spellings in the registry; hints about caches are left out of the spellings, or they were millions."""
    load_all()
    forms = [f for f in supported_forms() if f.opcode != "rf"]
    spellings = sum(math.prod(len(c) for c in choices(f.pattern) if not _is_hint(c)) for f in forms)
    return len({f.opcode for f in forms}), len(forms), spellings


def _is_hint(choice: list[str]) -> bool:
    """An optional modifier that says nothing but how caches should treat the access."""
    return choice[0] == "" and any(c.startswith((".L1::", ".L2::", ".ca")) for c in choice)


def summary() -> str:
    return "{} opcodes, {} forms, {} spellings (cache hints aside).".format(*counts())


def table() -> str:
    """Markdown: one row per opcode, its patterns, and the file that gives it meaning."""
    load_all()
    rows: dict[str, tuple[list[str], set[str]]] = {}
    for form in supported_forms():
        if form.opcode == "rf":  # not PTX: calls that were turned into requests to the host
            continue
        patterns, files = rows.setdefault(form.opcode, ([], set()))
        patterns.append(form.pattern.replace("|", "\\|"))
        files.add(form.file)
    lines = ["| opcode | forms | file |", "|:--|:--|:--|"]
    for opcode, (patterns, files) in rows.items():
        lines.append(f"| {opcode} | {'<br>'.join(f'`{p}`' for p in patterns)} | {', '.join(sorted(files))} |")
    return "\n".join([summary(), "", *lines])


def updated(text: str) -> str:
    """README text with the current table between its markers."""
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text()))
    print(summary())
