"""PTX text -> tokens. Comments are blanked (lines keep their numbers); one compiled regex does the rest."""

from __future__ import annotations

import re
from bisect import bisect_right

from rawflash.emu.errors import PtxSyntaxError

_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|^[ \t]*(?:#|@@)[^\n]*', re.S | re.M)

IDENTIFIER = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+|_)"
NUMBER = (
    r"(?:0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?"
    r"|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+U?)"
)
_TOKEN = re.compile(
    rf'"(?:[^"\\\n]|\\.)*"|\.[A-Za-z_][\w]*(?:::\w+)*|{IDENTIFIER}|{NUMBER}|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!?:()<>\[\]{{}},=@;]|\S'
)


class Source:
    """A PTX text with its comments blanked, and the way from an offset to a line."""

    def __init__(self, text: str) -> None:
        self.text = text.rstrip("\0")
        self.clean = _COMMENT.sub(_blank, self.text)
        self._starts = [0]
        for match in re.finditer("\n", self.clean):
            self._starts.append(match.end())
        if (opened := self.clean.find("/*")) >= 0:
            raise self.error("this comment is never closed", opened)

    def line_at(self, offset: int) -> int:
        """1-based line of an offset into the cleaned text."""
        return bisect_right(self._starts, offset)

    def offset_of_line(self, line: int) -> int:
        return self._starts[line - 1]

    def error(self, message: str, offset: int) -> PtxSyntaxError:
        """A syntax error that names the line of `offset` and shows it."""
        return self.error_at_line(message, self.line_at(offset))

    def error_at_line(self, message: str, line: int) -> PtxSyntaxError:
        lines = self.text.split("\n")
        return PtxSyntaxError(message, line=line, text=lines[line - 1] if line <= len(lines) else "")


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found[0] == '"' else "\n" * found.count("\n") or " "


class Tokens:
    """A cursor over the tokens of one declaration or operand. Past the end every token is ""."""

    def __init__(self, source: Source, text: str, offset: int) -> None:
        """`offset` is where `text` begins in the source; it serves errors only."""
        self.source = source
        self.items: list[str] = []
        self._starts: list[int] = []
        self._end = offset + len(text)
        for match in _TOKEN.finditer(text):
            self.items.append(match[0])
            self._starts.append(offset + match.start())
        self.index = 0

    def peek(self, ahead: int = 0) -> str:
        where = self.index + ahead
        return self.items[where] if where < len(self.items) else ""

    def next(self) -> str:
        token = self.peek()
        self.index += 1
        return token

    def accept(self, *words: str) -> str:
        """The next token if it is one of `words` (and consume it), else ""."""
        token = self.peek()
        if token in words:
            self.index += 1
            return token
        return ""

    def expect(self, word: str) -> None:
        if self.peek() != word:
            raise self.error(f"expected '{word}' and found {self.shown()}")
        self.index += 1

    def name(self, what: str) -> str:
        """Consume an identifier."""
        token = self.peek()
        if not token or not (token[0].isalpha() or token[0] in "_$%") or token == "%":
            raise self.error(f"expected {what} and found {self.shown()}")
        self.index += 1
        return token

    def shown(self) -> str:
        return f"'{self.peek()}'" if self.peek() else "the end of the statement"

    def offset(self) -> int:
        return self._starts[self.index] if self.index < len(self._starts) else max(self._end - 1, 0)

    def line(self) -> int:
        return self.source.line_at(self.offset())

    def error(self, message: str) -> PtxSyntaxError:
        return self.source.error(message, self.offset())
