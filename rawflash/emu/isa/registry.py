"""The table of supported PTX forms: spelling -> handler. An unknown form is an error that names the file to edit.

A form is written like the ISA manual writes it: ``fma.{rnd:rn|rz|rm|rp}[.ftz][.sat].{t:f32|f64}``. ``{name:a|b}`` is a choice,
``[.x]`` an optional modifier, ``[.{name:a|b}]`` an optional choice. The handler receives the choices by name (absent
optional choices are None, optional modifiers are booleans), so no modifier can be ignored silently: what the form does
not list does not match.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rawflash.emu.errors import UnsupportedInstruction
from rawflash.emu.ptx.tree import Instruction

Mods = dict[str, Any]
Handler = Callable[[Any, Instruction, Mods], None]

_PART = re.compile(
    r"\[\.\{(?P<oname>\w+):(?P<ochoices>[^}]*)\}\]|\[\.(?P<flag>[\w:]+)\]|\.?\{(?P<name>\w+):(?P<choices>[^}]*)\}|(?P<text>\.?[\w:]+)"
)


@dataclass(frozen=True)
class Form:
    """One pattern, its handler and where it is implemented."""

    pattern: str
    handler: Handler
    varying: bool
    regex: re.Pattern[str]
    flags: tuple[str, ...]

    @property
    def opcode(self) -> str:
        return self.pattern.split(".")[0].split("[")[0]

    @property
    def file(self) -> str:
        return "isa/" + self.handler.__module__.rsplit(".", 1)[-1] + ".py"


_FORMS: dict[str, list[Form]] = {}
_MATCHED: dict[str, tuple[Form, Mods]] = {}


def _compile(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    out, flags, pos = [], [], 0
    for part in _PART.finditer(pattern):
        if part.start() != pos:
            raise ValueError(f"cannot read form {pattern!r} at {pattern[pos:]!r}")
        pos = part.end()
        if part["flag"]:
            flag = part["flag"].replace("::", "_")
            flags.append(flag)
            out.append(rf"(?:\.(?P<{flag}>{re.escape(part['flag'])}))?")
        elif part["oname"]:
            out.append(rf"(?:\.(?P<{part['oname']}>{'|'.join(map(re.escape, part['ochoices'].split('|')))}))?")
        elif part["name"]:
            out.append(rf"\.(?P<{part['name']}>{'|'.join(map(re.escape, part['choices'].split('|')))})")
        else:
            out.append(re.escape(part["text"]))
    if pos != len(pattern):
        raise ValueError(f"cannot read form {pattern!r} at {pattern[pos:]!r}")
    return re.compile("".join(out)), tuple(flags)


def op(*patterns: str, varying: bool = False) -> Callable[[Handler], Handler]:
    """Register a handler for forms. ``varying``: the result differs between lanes even when every operand is uniform."""

    def register(handler: Handler) -> Handler:
        for pattern in patterns:
            regex, flags = _compile(pattern)
            form = Form(pattern, handler, varying, regex, flags)
            _FORMS.setdefault(form.opcode, []).append(form)
        return handler

    return register


def lookup(instruction: Instruction) -> tuple[Form, Mods]:
    """The form an instruction matches and its choices. Raises UnsupportedInstruction for anything else."""
    spelling = instruction.spelling
    found = _MATCHED.get(spelling)
    if found is None:
        for form in _FORMS.get(instruction.opcode, ()):
            match = form.regex.fullmatch(spelling)
            if match:
                mods = match.groupdict()
                for flag in form.flags:
                    mods[flag] = mods[flag] is not None
                found = _MATCHED[spelling] = (form, mods)
                break
        else:
            found = _match_any_order(instruction)
        if found is None:
            known = _FORMS.get(instruction.opcode)
            hint = (
                f"'{instruction.opcode}' is implemented in rawflash/emu/{known[0].file}, without this form"
                if known
                else "no file under rawflash/emu/isa implements this opcode"
            )
            raise UnsupportedInstruction(spelling, ptx_line=instruction.line, loc=instruction.loc, hint=hint)
    return found


def _match_any_order(instruction: Instruction) -> tuple[Form, Mods] | None:
    """ptxas takes modifiers in any order, as long as types keep theirs: give each to the first part of a form that can hold it.

    All must be placed, and nothing that the form requires may be missing.
    """
    for form in _FORMS.get(instruction.opcode, ()):
        parts = list(_PART.finditer(form.pattern))[1:]
        mods: Mods = {name: None for name in form.regex.groupindex}
        mods.update(dict.fromkeys(form.flags, False))
        left = list(instruction.mods)
        for part in parts:
            choices = (part["ochoices"] or part["choices"] or part["flag"] or part["text"].lstrip(".")).split("|")
            taken = next((m for m in left if m in choices), None)
            if taken is None:
                if part["choices"] or part["text"]:
                    break
                continue
            left.remove(taken)
            if part["flag"]:
                mods[part["flag"].replace("::", "_")] = True
            elif not part["text"]:
                mods[part["oname"] or part["name"]] = taken
        else:
            if not left:
                found = _MATCHED[instruction.spelling] = (form, mods)
                return found
    return None


def supported_forms() -> list[Form]:
    """Every registered form, sorted by opcode."""
    return [form for opcode in sorted(_FORMS) for form in _FORMS[opcode]]


def choices(pattern: str) -> list[list[str]]:
    """The parts of a form in order, each with every text that may stand for it, "" for none."""
    found: list[list[str]] = []
    for part in _PART.finditer(pattern):
        if part["flag"]:
            found.append(["", "." + part["flag"]])
        elif part["oname"]:
            found.append(["", *("." + c for c in part["ochoices"].split("|"))])
        elif part["name"]:
            found.append(["." + c for c in part["choices"].split("|")])
        else:
            found.append([part["text"]])
    return found


def spellings(pattern: str) -> Iterator[str]:
    """Every full spelling of a form."""
    return ("".join(c) for c in itertools.product(*choices(pattern)))
