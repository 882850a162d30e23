"""Declarations: variables with their initialisers, parameters, registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from rawflash.emu.ptx.constants import as_kind, constant, integer, literal
from rawflash.emu.ptx.lexer import Tokens
from rawflash.emu.ptx.tree import Imm, Symbol, Variable

SPACES = {"reg", "param", "shared", "global", "const", "local", "tex"}
VECTORS = {"v2": 2, "v3": 3, "v4": 4, "v8": 8}

Init = Imm | Symbol | list["Init"]


@dataclass(frozen=True)
class RegisterGroup:
    """One item of a ``.reg`` declaration: ``%r<10>`` has ``count`` 10, a plain name None."""

    name: str
    type: str
    vector: int
    count: int | None


def head(tokens: Tokens, linkage: str | None) -> Variable:
    """``.space .align n .v4 .type .ptr .global .align n``: everything before the name."""
    var = Variable(name="", space="", type="", linkage=linkage, line=tokens.line())
    while tokens.peek().startswith("."):
        word = tokens.next()[1:]
        if word == "align":
            if var.is_ptr:
                var = replace(var, ptr_align=integer(tokens, "an alignment"))
            else:
                var = replace(var, align=integer(tokens, "an alignment"))
        elif word == "ptr":
            var = replace(var, is_ptr=True)
        elif word == "attribute":
            skip_parentheses(tokens)
        elif word.split("::")[0] in SPACES:
            space = word.split("::")[0]
            if var.is_ptr:
                var = replace(var, ptr_space=space)
            elif space == "tex":  # the old spelling of `.global .texref`
                var = replace(var, space="global", type="texref")
            else:
                var = replace(var, space=space)
                if space == "const" and tokens.accept("["):  # bank number of old PTX
                    tokens.next()
                    tokens.expect("]")
        elif word in VECTORS:
            var = replace(var, vector=VECTORS[word])
        elif not var.type:
            var = replace(var, type=word)
        elif var.type != "texref":
            raise tokens.error(f"a declaration has two types, '.{var.type}' and '.{word}'")
    if not var.space:
        raise tokens.error("a declaration needs a state space such as .global or .param")
    if not var.type:
        raise tokens.error("a declaration needs a type such as .b32")
    return var


def skip_parentheses(tokens: Tokens) -> None:
    """Consume ``( ... )`` with nesting."""
    tokens.expect("(")
    depth = 1
    while depth:
        token = tokens.next()
        if not token:
            raise tokens.error("a '(' is never closed")
        depth += (token == "(") - (token == ")")


def variables(tokens: Tokens, linkage: str | None) -> Iterator[Variable]:
    """``.global .u32 a = 1, b[4], c;`` one by one, up to and with the ``;``."""
    common = head(tokens, linkage)
    while True:
        var = replace(common, line=tokens.line(), name=tokens.name("a variable name"))
        var = replace(var, dims=dimensions(tokens))
        if tokens.accept("="):
            var = _initialised(var, _initialiser(tokens), tokens)
        yield var
        if tokens.accept(","):
            continue
        tokens.expect(";")
        return


def registers(tokens: Tokens) -> Iterator[RegisterGroup]:
    """``.reg .b32 %r<10>, x, %v<2>;`` one group per item, up to and with the ``;``."""
    common = head(tokens, None)
    while True:
        name = tokens.name("a register name")
        count = None
        if tokens.accept("<"):
            if not tokens.peek().isdigit():
                raise tokens.error(f"the number of registers of '{name}' must be a decimal number")
            count = int(tokens.next())
            tokens.expect(">")
        yield RegisterGroup(name, common.type, common.vector, count)
        if tokens.accept(","):
            continue
        tokens.expect(";")
        return


def parameters(tokens: Tokens) -> tuple[Variable, ...]:
    """``(.param .u64 a, .param .align 8 .b8 b[16])``; ``_`` is a nameless one, ``()`` an empty list."""
    found: list[Variable] = []
    tokens.expect("(")
    if tokens.accept(")"):
        return ()
    while True:
        var = head(tokens, None)
        name = tokens.name("a parameter name")
        found.append(replace(var, name=name, dims=dimensions(tokens)))
        if tokens.accept(","):
            continue
        tokens.expect(")")
        return tuple(found)


def dimensions(tokens: Tokens) -> tuple[int, ...]:
    """``[4][8]``; an extent left open is 0."""
    dims: list[int] = []
    while tokens.accept("["):
        dims.append(0 if tokens.peek() == "]" else integer(tokens, "an array extent"))
        tokens.expect("]")
    return tuple(dims)


# ------------------------------------------------------------------------------------------------------------ initialisers
def _initialiser(tokens: Tokens) -> Init:
    if not tokens.accept("{"):
        return _scalar(tokens)
    items: list[Init] = []
    while not tokens.accept("}"):
        items.append(_initialiser(tokens))
        if not tokens.accept(","):
            tokens.expect("}")
            break
    return items


def _scalar(tokens: Tokens) -> Imm | Symbol:
    """A constant, ``sym``, ``sym+4``, ``generic(sym)+4`` or ``0xff00(sym)``."""
    mask = literal(tokens.peek())
    if mask is not None and tokens.peek(1) == "(":
        tokens.next()
        tokens.expect("(")
        inside = _scalar(tokens)
        tokens.expect(")")
        if not isinstance(inside, Symbol):
            raise tokens.error("a mask applies to the address of a variable")
        return replace(inside, mask=mask.value)
    token = tokens.peek()
    if token == "generic" and tokens.peek(1) == "(":
        tokens.next()
        tokens.next()
        name = tokens.name("a variable name")
        tokens.expect(")")
    elif token != "WARP_SZ" and (token[:1].isalpha() or token[:1] in ("_", "$", "%")) and token != "%":
        name = tokens.next()
    else:
        return constant(tokens)
    offset = integer(tokens, "an address offset") if tokens.peek() in ("+", "-") else 0
    return Symbol(name, offset)


def _initialised(var: Variable, init: Init, tokens: Tokens) -> Variable:
    """Attach an initialiser: close an open extent, pad inner rows with zeros, turn floats into the variable's own type."""
    dims = var.dims + ((var.vector,) if var.vector > 1 else ())
    if 0 in dims[1:]:
        raise tokens.error(f"only the first extent of '{var.name}' may be left open")
    if dims and dims[0] == 0:
        inner = prod(dims[1:])
        rows = isinstance(init, list) and any(isinstance(i, list) for i in init)
        count = len(init) if isinstance(init, list) else 1
        dims = (count if rows else -(-count // inner), *dims[1:])
    flat = _flatten(init, dims, tokens)
    if var.type in ("f32", "f64"):
        flat = [as_kind(i, var.type) if isinstance(i, Imm) else i for i in flat]
    return replace(var, dims=dims[: len(var.dims)], init=tuple(flat))


def _flatten(init: Init, dims: tuple[int, ...], tokens: Tokens) -> list[Imm | Symbol]:
    if not isinstance(init, list):
        return [init]
    flat: list[Imm | Symbol] = []
    room = prod(dims)
    step = prod(dims[1:])
    for item in init:
        if isinstance(item, list):
            if not dims:
                raise tokens.error("an initialiser has more levels of braces than the variable has dimensions")
            row = _flatten(item, dims[1:], tokens)
            flat += row + [Imm(0)] * (step - len(row) if item is not init[-1] else 0)
        else:
            flat.append(item)
    if len(flat) > room:
        raise tokens.error(f"an initialiser has {len(flat)} values for {room} elements")
    return flat
