"""The body of a function: statements between braces, with nested scopes flattened.

Two passes: the first cuts the text into statements and records what each scope declares; the second reads the operands, when
every register, variable and label of every scope has its unique name (labels are used before they are declared).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rawflash.emu.ptx.declarations import parameters, registers, variables
from rawflash.emu.ptx.lexer import IDENTIFIER, Source, Tokens
from rawflash.emu.ptx.operands import COMPONENT_NAMES, Names, Scope
from rawflash.emu.ptx.tree import (
    Address,
    BranchTargets,
    CallPrototype,
    Function,
    Instruction,
    Label,
    Loc,
    Operand,
    Reg,
    Statement,
    Symbol,
    Variable,
)

_INSTRUCTION = re.compile(r"\s*(?:@\s*(!?)\s*([%\w$]+)\s*)?([A-Za-z_]\w*(?:\.\w+(?:::\w+)*)*)(?:\s*;|(?=[\s({\[])\s*([^;:@\s][^;]*);)")
_LABEL = re.compile(rf"\s*({IDENTIFIER})\s*:(?!:)\s*(\.branchtargets|\.calltargets|\.callprototype)?")
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)(?:\s+\d+)?[^\n;]*;?")
_DIRECTIVE = re.compile(r"\s*(\.[A-Za-z_]\w*)")
_SPACE = re.compile(r"\s*")
SINK = Reg("_")


@dataclass
class _Raw:
    """An instruction before its operands are read."""

    scope: Scope
    negated: bool
    guard: str | None
    spelling: str
    operands: str | None
    line: int
    loc: Loc | None


@dataclass
class _RawTargets:
    scope: Scope
    name: str
    targets: list[str]
    line: int


class BodyParser:
    """Reads one body; `function` (its head already read) receives registers, variables and statements."""

    def __init__(self, source: Source, files: dict[int, str], function: Function, module_variables: dict[str, Variable]) -> None:
        self.source = source
        self.files = files
        self.function = function
        self.names = Names(source, module_variables)
        self.scope = Scope(self.names)
        self.raws: list[_Raw | _RawTargets | Label | CallPrototype] = []
        self.loc: Loc | None = None
        self._locs: dict[tuple[str, str], Loc] = {}
        self.names.variables.update(module_variables)
        for param in (*function.returns, *function.params):
            if param.space == "reg":
                self._declare_register(param.name, param.type)
            else:
                self.names.variables.add(param.name)
                self.scope.symbols[param.name] = param

    # -------------------------------------------------------------------------------------------- first pass: statements
    def parse(self, start: int) -> int:
        """Read from after the opening brace at `start`; returns the offset after the closing one."""
        clean, source = self.source.clean, self.source
        pos, depth = start, 1
        counted, line = start, source.line_at(start)
        while depth:
            if found := _INSTRUCTION.match(clean, pos):
                negated, guard, spelling, operands = found.groups()
                begin = found.start(3)
                line += clean.count("\n", counted, begin)
                counted = begin
                self.raws.append(_Raw(self.scope, bool(negated), guard, spelling, operands, line, self.loc))
                pos = found.end()
                continue
            pos = self._skip_space(pos)
            head = clean[pos : pos + 1]
            if head == "{":
                self.scope = Scope(self.names, self.scope)
                depth, pos = depth + 1, pos + 1
            elif head == "}":
                self.scope = self.scope.parent or self.scope
                depth, pos = depth - 1, pos + 1
            elif head == ".":
                pos = self._directive(pos)
            elif found := _LABEL.match(clean, pos):
                pos = self._label(found)
            elif head == ";":
                pos += 1
            elif not head:
                raise source.error(f"the body of '{self.function.name}' is never closed: a '}}' is missing", start - 1)
            else:
                raise source.error("this is no statement (is a ';' missing, or an operand?)", pos)
        return pos

    def _skip_space(self, pos: int) -> int:
        found = _SPACE.match(self.source.clean, pos)
        return found.end() if found else pos

    def _chunk(self, pos: int) -> tuple[Tokens, int]:
        """The tokens up to and with the next ``;`` and the offset after it."""
        end = self.source.clean.find(";", pos)
        if end < 0:
            raise self.source.error("a ';' is missing", pos)
        return Tokens(self.source, self.source.clean[pos : end + 1], pos), end + 1

    def _directive(self, pos: int) -> int:
        if found := _LOC.match(self.source.clean, pos):
            key = (found[1], found[2])
            if key not in self._locs:
                self._locs[key] = Loc(self.files.get(int(found[1]), "?"), int(found[2]))
            if int(found[2]):  # line 0 marks code of no line: it counts for the line before it
                self.loc = self._locs[key]
            return found.end()
        word = _DIRECTIVE.match(self.source.clean, pos)
        if word is None:
            raise self.source.error("this is no directive", pos)
        tokens, end = self._chunk(pos)
        if word[1] == ".reg":
            line = tokens.line()
            for group in registers(tokens):
                names = [group.name] if group.count is None else [f"{group.name}{i}" for i in range(group.count)]
                for name in names:
                    if name in self.scope.registers or name in self.scope.vectors:
                        raise self.source.error_at_line(f"register '{name}' is declared twice in one scope", line)
                    if group.vector > 1:
                        self.scope.vectors[name] = group.vector
                        for component in COMPONENT_NAMES[: group.vector]:
                            self._declare_register(f"{name}.{component}", group.type)
                    else:
                        self._declare_register(name, group.type)
        elif word[1] in (".shared", ".local", ".param", ".global", ".const"):
            for variable in variables(tokens, None):
                self._declare_variable(variable, tokens)
        elif word[1] != ".pragma":
            raise self.source.error(f"the directive '{word[1]}' does not belong in a function body", pos)
        return end

    def _declare_register(self, name: str, type_: str) -> None:
        unique = _unique(name, self.names.registers)
        self.scope.registers[name] = unique
        self.function.registers[unique] = type_

    def _declare_variable(self, variable: Variable, tokens: Tokens) -> None:
        if variable.name in self.scope.symbols:
            raise tokens.error(f"variable '{variable.name}' is declared twice in one scope")
        unique = replace(variable, name=_unique(variable.name, self.names.variables))
        self.scope.symbols[variable.name] = unique
        self.function.variables[unique.name] = unique

    def _label(self, found: re.Match[str]) -> int:
        name, kind = found[1], found[2]
        if name in self.scope.labels:
            raise self.source.error(f"label '{name}' is declared twice in one scope", found.start(1))
        line = self.source.line_at(found.start(1))
        unique = self.scope.labels[name] = _unique(name, self.names.labels)
        if kind is None:
            self.raws.append(Label(unique, line))
            return found.end()
        tokens, end = self._chunk(found.end())
        if kind == ".callprototype":
            returns = parameters(tokens) if tokens.peek() == "(" else ()
            if tokens.name("'_'") != "_":
                raise tokens.error("the name in a .callprototype must be '_'")
            params = parameters(tokens) if tokens.peek() == "(" else ()
            self.raws.append(CallPrototype(unique, returns, params, line))
        else:
            targets = [tokens.name("a label")]
            while tokens.accept(","):
                targets.append(tokens.name("a label"))
            tokens.expect(";")
            self.raws.append(_RawTargets(self.scope, unique, targets, line))
        return end

    # ---------------------------------------------------------------------------------------------- second pass: operands
    def resolve(self) -> list[Statement]:
        """The statements, operands read."""
        statements: list[Statement] = []
        spellings: dict[str, tuple[str, tuple[str, ...]]] = {}
        for raw in self.raws:
            if isinstance(raw, _Raw):
                parts = spellings.get(raw.spelling)
                if parts is None:
                    opcode, *mods = raw.spelling.split(".")
                    parts = spellings[raw.spelling] = (opcode, tuple(mods))
                statements.append(self._instruction(raw, *parts))
            elif isinstance(raw, _RawTargets):
                targets = tuple(raw.scope.symbol_name(t, raw.line) for t in raw.targets)
                statements.append(BranchTargets(raw.name, targets, raw.line))
            else:
                statements.append(raw)
        return statements

    def _instruction(self, raw: _Raw, opcode: str, mods: tuple[str, ...]) -> Instruction:
        scope, text, line = raw.scope.resolver(), raw.operands, raw.line
        operands: list[Operand] = []
        if text:
            simple = "{" not in text and "[" not in text and "(" not in text
            for part in text.split(",") if simple else scope.split(text.rstrip(), line):
                part = part.strip()
                if not part:
                    raise self.source.error_at_line("an instruction has an empty operand", line)
                operand = scope.memo.get(part) if opcode != "call" else scope.call_operand(part, line)
                if operand is None:
                    operand = scope.operand(part, line) or SINK
                if opcode == "mov" and isinstance(operand, Address) and isinstance(operand.base, Symbol):
                    operand = Symbol(operand.base.name, operand.offset)  # `mov.u64 p, a[1]` takes the address of an element
                operands.append(operand)
        guard = None
        if raw.guard is not None:
            reg = scope.register(raw.guard, line)
            guard = getattr(reg, "name", None)
        return Instruction(opcode, mods, tuple(operands), guard, raw.negated, line, raw.loc)


def _unique(name: str, taken: set[str]) -> str:
    """`name`, or ``name$2``, ``name$3``, ... if it is taken; the result is taken from now on."""
    unique, count = name, 2
    while unique in taken:
        unique, count = f"{name}${count}", count + 1
    taken.add(unique)
    return unique
