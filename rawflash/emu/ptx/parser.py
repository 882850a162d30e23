"""PTX text -> Module: directives, variables and functions at module scope. Bodies are read by `body`.

Reads what NVRTC emits and what people write by hand after the ISA manual. DWARF (``.section``) and pragmas are skipped.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rawflash.emu.ptx.body import BodyParser
from rawflash.emu.ptx.constants import integer
from rawflash.emu.ptx.declarations import parameters, skip_parentheses, variables
from rawflash.emu.ptx.lexer import Source, Tokens
from rawflash.emu.ptx.tree import Function, Module, Variable

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"[^\n]*', re.M)
_ITEM = re.compile(r"\s*((?:\.(?:visible|extern|weak|common|internal)\s+)*)(\.[A-Za-z_]\w*|\})?")
_VERSION = re.compile(r"\s+(\d+)\.(\d+)")
_TARGET = re.compile(r"\s+([\w]+(?:\s*,\s*[\w]+)*)")
_ADDRESS_SIZE = re.compile(r"\s+(32|64)\b")
_HEAD = re.compile(r'(?:"[^"]*"\s*;|"[^"]*"|[^{;"])*')
_PRAGMA = re.compile(r'\.pragma\s+(?:"[^"]*"\s*,?\s*)+;?')
_LINE = re.compile(r"[^\n]*")
_SPACES = (".global", ".const", ".shared", ".local", ".param", ".tex")


def parse(text: str) -> Module:
    """Read a PTX module. Raises PtxSyntaxError, which names the line and shows it."""
    return _ModuleParser(text).parse()


class _ModuleParser:
    def __init__(self, text: str) -> None:
        self.source = Source(text)
        self.module = Module(version=(0, 0), target=(), address_size=32, text=self.source.text)
        self.module.files = {int(m[1]): m[2] for m in _FILE.finditer(self.source.clean)}
        self.unresolved: dict[str, int] = {}
        self.aliases: list[tuple[str, str, int]] = []

    def parse(self) -> Module:
        clean, pos = self.source.clean, 0
        while True:
            found = _ITEM.match(clean, pos)
            if found is None or found[2] is None:
                rest = clean[pos:].strip()
                if not rest:
                    break
                raise self.source.error("expected a directive such as .version, .global or .entry", clean.index(rest, pos))
            linkage = found[1].split()[-1][1:] if found[1] else None
            pos = self._item(found[2], linkage, found.start(2), found.end())
        if self.module.version == (0, 0):
            raise self.source.error("this is no PTX: it has no .version directive", 0)
        self._finish()
        return self.module

    def _item(self, word: str, linkage: str | None, start: int, after: int) -> int:
        """Read the item whose directive `word` spans start:after; returns the offset after the item."""
        clean, module = self.source.clean, self.module
        if word != ".version" and module.version == (0, 0):
            raise self.source.error(f"this is no PTX: '{word}' stands before the .version directive", start)
        if word in (".entry", ".func"):
            return self._function(word == ".entry", linkage, start, after)
        if word in _SPACES:
            end = self._end(start)
            for variable in variables(Tokens(self.source, clean[start:end], start), linkage):
                self._declare(variable)
            return end
        if word == ".version":
            version = self._match(_VERSION, after, ".version needs a number such as 8.0")
            module.version = (int(version[1]), int(version[2]))
            return version.end()
        if word == ".target":
            target = self._match(_TARGET, after, ".target needs an architecture such as sm_80")
            module.target = tuple(t.strip() for t in target[1].split(","))
            return target.end()
        if word == ".address_size":
            size = self._match(_ADDRESS_SIZE, after, ".address_size must be 32 or 64")
            module.address_size = int(size[1])
            return size.end()
        if word in (".file", ".loc"):
            return self._match(_LINE, after, "").end()
        if word == ".pragma":
            return self._end(start)
        if word == ".section":
            opened = clean.find("{", after)
            closed = clean.find("}", opened)
            if opened < 0 or closed < 0:
                raise self.source.error("this .section is never closed", start)
            return closed + 1
        if word == ".alias":
            tokens = Tokens(self.source, clean[after : self._end(start)], after)
            alias = tokens.name("a function name")
            tokens.expect(",")
            self.aliases.append((alias, tokens.name("a function name"), tokens.line()))
            return self._end(start)
        if word == "}":
            raise self.source.error("a '}' closes nothing", start)
        raise self.source.error(f"the directive '{word}' is unknown at module scope", start)

    def _match(self, pattern: re.Pattern[str], pos: int, message: str) -> re.Match[str]:
        found = pattern.match(self.source.clean, pos)
        if found is None:
            raise self.source.error(message, pos)
        return found

    def _end(self, pos: int) -> int:
        """The offset after the next ``;``."""
        end = self.source.clean.find(";", pos)
        if end < 0:
            raise self.source.error("a ';' is missing", pos)
        return end + 1

    def _declare(self, variable: Variable) -> None:
        known = self.module.variables.get(variable.name)
        if known is not None and known.linkage not in ("extern", "weak", "common") and variable.linkage != "extern":
            raise self.source.error_at_line(f"variable '{variable.name}' is declared twice", variable.line)
        if known is None or variable.linkage != "extern":
            self.module.variables[variable.name] = variable

    # --------------------------------------------------------------------------------------------------------- functions
    def _function(self, is_entry: bool, linkage: str | None, start: int, after: int) -> int:
        end = self._match(_HEAD, after, "").end()
        text = _PRAGMA.sub(lambda m: " " * len(m[0]), self.source.clean[after:end])
        tokens = Tokens(self.source, text, after)
        line = self.source.line_at(start)
        while tokens.accept(".attribute"):
            skip_parentheses(tokens)
        returns = parameters(tokens) if tokens.peek() == "(" else ()
        name = tokens.name("a function name")
        params = parameters(tokens) if tokens.peek() == "(" else ()
        function = Function(name, is_entry, params, returns, linkage=linkage, line=line)
        self._directives(tokens, function)
        known = self.module.functions.get(name)
        closing = self.source.clean[end : end + 1]
        if closing != "{":
            if not closing:
                raise self.source.error(f"the declaration of '{name}' ends neither in a body nor in a ';'", start)
            if known is None:
                self.module.functions[name] = function
            return end + 1
        if known is not None and known.body is not None:
            raise self.source.error(f"function '{name}' is defined twice", start)
        self.module.functions[name] = function  # before the body, which may call itself
        body = BodyParser(self.source, self.module.files, function, self.module.variables)
        end = body.parse(end + 1)
        function.body = body.resolve()
        for unresolved, where in body.names.unresolved.items():
            self.unresolved.setdefault(unresolved, where)
        return end

    def _directives(self, tokens: Tokens, function: Function) -> None:
        """``.maxntid 128, 1, 1 .minnctapersm 2 .noreturn`` after the parameters."""
        while tokens.peek():
            word = tokens.next()
            if word == ".noreturn":
                function.noreturn = True
            elif word == ".attribute":
                skip_parentheses(tokens)
            elif word[0] == ".":
                values = []
                if tokens.peek() and tokens.peek()[0] != ".":
                    values.append(integer(tokens, f"the value of {word}"))
                    while tokens.accept(","):
                        values.append(integer(tokens, f"the value of {word}"))
                function.directives[word[1:]] = tuple(values)
            else:
                tokens.index -= 1
                raise tokens.error(f"unexpected {tokens.shown()} in the head of function '{function.name}'")

    def _finish(self) -> None:
        """Aliases, and names that neither a function nor the module declares."""
        functions = self.module.functions
        for alias, target, line in self.aliases:
            if target not in functions:
                raise self.source.error_at_line(f"the alias '{alias}' names '{target}', which is not declared", line)
            functions[alias] = replace(functions[target], name=alias)
        for name, line in self.unresolved.items():
            if name not in functions and name not in self.module.variables:
                raise self.source.error_at_line(f"'{name}' is not declared", line)
