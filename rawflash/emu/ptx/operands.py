"""Operand text -> tree nodes, by the names that a scope and the scopes around it declare."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeVar

from rawflash.emu.ptx.constants import constant, integer, literal, negated
from rawflash.emu.ptx.lexer import IDENTIFIER, NUMBER, Source, Tokens
from rawflash.emu.ptx.tree import Address, Imm, NotPred, Operand, PredicatePair, Reg, Symbol, Tuple, Variable, Vector
from rawflash.emu.ptx.types import SIZES

_NAME = re.compile(rf"{IDENTIFIER}(?:\.\w+)?")
_NUMBER = re.compile(rf"(-?)\s*({NUMBER})")
_ADDRESS = re.compile(rf"\[\s*({IDENTIFIER}(?:\.\w+)?)\s*(?:\+\s*(-?\s*{NUMBER})|(-\s*{NUMBER}))?\s*\]")
_ELEMENT = re.compile(rf"({IDENTIFIER})\s*\[([^\]]*)\]")
_OFFSET = re.compile(rf"({IDENTIFIER})\s*(?=[-+])")
_GENERIC = re.compile(rf"generic\s*\(\s*({IDENTIFIER})\s*\)")
_PART = re.compile(r"((?:\{[^}]*\}|\[[^\]]*\]|\((?:[^()]|\([^()]*\))*\)|[^,{}\[\]()])+)(?:,|$)")
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|(?:cluster_)?n?ctaid|n?clusterid|cluster_ctaid|cluster_nctaid|cluster_n?ctarank)(?:\.[xyzw])?"
    r"|%(?:laneid|n?warpid|n?smid|gridid|is_explicit_cluster|lanemask_(?:eq|le|lt|ge|gt)|clock(?:64|_hi)?|pm[0-7](?:_64)?"
    r"|envreg\d+|globaltimer(?:_lo|_hi)?|reserved_smem_offset_\w+|(?:total|aggr|dynamic)_smem_size|current_graph_exec)"
)
_COMPONENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}
_SELECTOR = re.compile(r"[bh][0-3]+")  # byte and half selectors of the video instructions
COMPONENT_NAMES = "xyzwstuv"

T = TypeVar("T")


@dataclass
class Names:
    """What one function has named so far, and which names it uses that only the module can know."""

    source: Source
    module_variables: dict[str, Variable]
    registers: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    unresolved: dict[str, int] = field(default_factory=dict)  # name -> line of its first use


class Scope:
    """One ``{ }``: written name -> unique name, for registers, variables and labels."""

    def __init__(self, names: Names, parent: Scope | None = None) -> None:
        self.names = names
        self.parent = parent
        self.registers: dict[str, str] = {}
        self.vectors: dict[str, int] = {}
        self.symbols: dict[str, Variable] = {}
        self.labels: dict[str, str] = {}
        self.memo: dict[str, Operand] = {}

    def resolver(self) -> Scope:
        """The innermost scope that declares anything: scopes without declarations share their parent's memo."""
        scope = self
        while scope.parent is not None and not (scope.registers or scope.vectors or scope.symbols or scope.labels):
            scope = scope.parent
        return scope

    # ------------------------------------------------------------------------------------------------------------- names
    def register(self, name: str, line: int) -> Reg | Vector:
        """The register a written name means, in this scope or around it; a vector register is its components."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.registers:
                return Reg(scope.registers[name])
            if name in scope.vectors:
                parts = (scope.registers[f"{name}.{COMPONENT_NAMES[i]}"] for i in range(scope.vectors[name]))
                return Vector(tuple(Reg(p) for p in parts))
            scope = scope.parent
        if _SPECIAL.fullmatch(name):
            return Reg(name)
        raise self.names.source.error_at_line(f"register '{name}' is not declared", line)

    def _declares_register(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.registers or name in scope.vectors:
                return True
            scope = scope.parent
        return False

    def _symbol(self, name: str) -> Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.symbols:
                return scope.symbols[name]
            scope = scope.parent
        return None

    def symbol_name(self, name: str, line: int) -> str:
        """The unique name of a variable or label; a name of the module's is noted to be checked at the module's end."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.symbols:
                return scope.symbols[name].name
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        self.names.unresolved.setdefault(name, line)
        return name

    def name(self, text: str, line: int) -> Reg | Vector | Symbol | Imm:
        """The operand that an identifier (with an optional component) means."""
        if self._declares_register(text) or text[0] == "%":
            return self._component(text, line) or self.register(text, line)
        if text == "WARP_SZ":
            return Imm(32)
        if "." in text:
            component = self._component(text, line)
            if component is None:
                raise self.names.source.error_at_line(f"register '{text.split('.')[0]}' is not declared", line)
            return component
        return Symbol(self.symbol_name(text, line))

    def _component(self, text: str, line: int) -> Reg | None:
        base, _, part = text.partition(".")
        if not part or not self._declares_register(base):
            return None
        whole = self.register(base, line)
        if isinstance(whole, Vector) and part in _COMPONENTS and _COMPONENTS[part] < len(whole.items):
            item = whole.items[_COMPONENTS[part]]
            return item if isinstance(item, Reg) else None
        if isinstance(whole, Reg) and _SELECTOR.fullmatch(part):
            return Reg(f"{whole.name}.{part}")
        raise self.names.source.error_at_line(f"register '{base}' has no component '{part}'", line)

    # ---------------------------------------------------------------------------------------------------------- operands
    def operand(self, text: str, line: int) -> Operand | None:
        """One operand; ``_`` is None. The result is remembered by its text."""
        found = self._operand(text, line)
        if found is not None:
            self.memo[text] = found
        return found

    def _operand(self, text: str, line: int) -> Operand | None:
        first = text[:1]
        if first == "[":
            return self._address(text, line)
        if _NAME.fullmatch(text):
            return None if text == "_" else self.name(text, line)
        if number := _NUMBER.fullmatch(text):
            value = literal(number[2])
            if value is not None:
                return negated(value) if number[1] else value
        if first == "{" and text[-1] == "}":
            return Vector(tuple(self.operand(p, line) for p in self.split(text[1:-1], line)))
        if first == "!" and _NAME.fullmatch(text[1:].strip()):
            reg = self.name(text[1:].strip(), line)
            if isinstance(reg, Reg):
                return NotPred(reg)
        if "|" in text and "||" not in text:
            left, _, right = (p.strip() for p in text.partition("|"))
            if _NAME.fullmatch(left) and _NAME.fullmatch(right):
                return PredicatePair(self._predicate(left, line), self._predicate(right, line))
        if generic := _GENERIC.match(text):
            text = generic[1] + text[generic.end() :]
            if _NAME.fullmatch(text):
                return self.name(text, line)
        if element := _ELEMENT.fullmatch(text):
            return Address(Symbol(self.symbol_name(element[1], line)), self._element_offset(element[1], element[2], line))
        tokens = self._tokens(text, line)
        if offset := _OFFSET.match(text):
            base = self.name(offset[1], line)
            if isinstance(base, Imm):  # WARP_SZ - 1
                return self._rest(tokens, constant(tokens))
            if isinstance(base, Symbol):
                tokens.next()
                return Symbol(base.name, self._rest(tokens, integer(tokens, "an address offset")))
            raise tokens.error(f"'{text}' adds to a register, which only an address in [ ] may do")
        return self._rest(tokens, constant(tokens))

    def _predicate(self, text: str, line: int) -> Reg | None:
        if text == "_":
            return None
        reg = self.name(text, line)
        if not isinstance(reg, Reg):
            raise self.names.source.error_at_line(f"'{text}' is not a register", line)
        return reg

    def _address(self, text: str, line: int) -> Address:
        if simple := _ADDRESS.fullmatch(text):
            base = self.name(simple[1], line)
            offset = 0
            if written := (simple[2] or simple[3] or "").replace(" ", ""):
                offset = integer(self._tokens(written, line), "an address offset")
            if isinstance(base, Reg | Symbol):
                return Address(base, offset)
        if text[-1] != "]":
            raise self.names.source.error_at_line(f"operand '{text}' cannot be read", line)
        parts = self.split(text[1:-1], line)
        tokens = self._tokens(parts[0], line)
        coords = tuple(c for c in (self.operand(p, line) for p in parts[1:]) if c is not None)
        if _NAME.match(parts[0]):
            base = self.name(tokens.next(), line)
            if not isinstance(base, Reg | Symbol | Imm):
                raise tokens.error("an address needs a register, a variable or a constant as its base")
            offset = integer(tokens, "an address offset") if tokens.peek() else 0
            return self._rest(tokens, Address(base, offset, coords))
        return self._rest(tokens, Address(Imm(integer(tokens, "an address")), 0, coords))

    def _element_offset(self, name: str, index: str, line: int) -> int:
        """Byte offset of ``name[index]`` with a constant index."""
        variable = self._symbol(name) or self.names.module_variables.get(name)
        tokens = self._tokens(index, line)
        if variable is None or variable.type not in SIZES:
            raise self.names.source.error_at_line(f"'{name}' is not an array of known element size", line)
        return self._rest(tokens, integer(tokens, "an array index")) * SIZES[variable.type] * variable.vector

    def call_operand(self, text: str, line: int) -> Operand | None:
        """An operand of ``call``: as any other, and ``(a, b)`` lists."""
        if text[:1] != "(" or text[-1:] != ")":
            return self.operand(text, line)
        inside = text[1:-1].strip()
        items = [self.operand(p, line) for p in self.split(inside, line)] if inside else []
        return Tuple(tuple(i for i in items if i is not None))

    def split(self, text: str, line: int) -> list[str]:
        """Split at the commas outside brackets. Raises for an empty operand or an unbalanced bracket."""
        parts = _PART.findall(text)
        if not parts or ",".join(parts) != text:
            shown = " ".join(text.split())
            shown = shown if len(shown) <= 40 else shown[:37] + "..."
            raise self.names.source.error_at_line(f"the operands '{shown}' cannot be read (is a ';', ',' or bracket missing?)", line)
        return [p.strip() for p in parts]

    def _tokens(self, text: str, line: int) -> Tokens:
        return Tokens(self.names.source, text, self.names.source.offset_of_line(line))

    def _rest(self, tokens: Tokens, value: T) -> T:
        if tokens.peek():
            raise tokens.error(f"unexpected {tokens.shown()} in an operand (is a ',' or ';' missing?)")
        return value
