"""Calls of device functions become copies of their bodies, so that the rest of the pipeline sees one flat kernel.

Recursion cannot be flattened and is refused. A call through a pointer compares the handle with every function of that
signature and runs the copy that matches. ``vprintf``, ``__assertfail``, ``malloc`` and ``free`` become the pseudo opcode ``rf``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rawflash.emu.errors import PtxSyntaxError, UnsupportedInstruction
from rawflash.emu.ptx.tree import (
    Address,
    BranchTargets,
    CallPrototype,
    Function,
    Imm,
    Instruction,
    Label,
    Module,
    NotPred,
    Operand,
    PredicatePair,
    Reg,
    Statement,
    Symbol,
    Tuple,
    Variable,
    Vector,
)

HOST_FUNCTIONS = {"vprintf": "printf", "__assertfail": "assert", "malloc": "malloc", "free": "free"}


@dataclass
class _Flat:
    """The kernel under construction."""

    module: Module
    registers: dict[str, str]
    variables: dict[str, Variable]
    copies: int = 0
    prototypes: dict[str, CallPrototype] = field(default_factory=dict)


def inline_calls(module: Module, name: str) -> Function:
    """The entry ``name`` with every call replaced by the callee's body. The module is left as it is."""
    entry = module.functions[name]
    if entry.body is None:
        raise PtxSyntaxError(f"'{name}' is declared but has no body", line=entry.line)
    flat = _Flat(module, dict(entry.registers), dict(entry.variables))
    body = _expand(flat, entry.body, (name,))
    return replace(entry, registers=flat.registers, variables=flat.variables, body=body)


def _expand(flat: _Flat, body: list[Statement], stack: tuple[str, ...]) -> list[Statement]:
    flat.prototypes.update({s.name: s for s in body if isinstance(s, CallPrototype)})
    out: list[Statement] = []
    for s in body:
        if isinstance(s, Instruction) and s.opcode == "call":
            out += _call(flat, s, stack)
        elif not isinstance(s, CallPrototype):
            out.append(s)
    return out


def _call(flat: _Flat, s: Instruction, stack: tuple[str, ...]) -> list[Statement]:
    operands = list(s.operands)
    first = operands[0]
    returns = operands.pop(0) if isinstance(first, Tuple) else Tuple(())
    target = operands.pop(0)
    arguments = operands.pop(0) if operands and isinstance(operands[0], Tuple) else Tuple(())
    assert isinstance(returns, Tuple)
    assert isinstance(arguments, Tuple)
    inner: list[Statement]
    if isinstance(target, Symbol) and target.name in HOST_FUNCTIONS:
        kind = HOST_FUNCTIONS[target.name]
        inner = [Instruction("rf", (kind,), (*returns.items, *arguments.items), line=s.line, loc=s.loc)]
    elif isinstance(target, Symbol):
        inner = _copy(flat, target.name, returns.items, arguments.items, s, stack)
    elif isinstance(target, Reg):
        inner = _indirect(flat, target, returns.items, arguments.items, s, stack)
    else:
        raise PtxSyntaxError(f"call target {target} is neither a function nor a register", line=s.line)
    if s.guard is None:
        return inner
    flat.copies += 1
    skip = f"$skip{flat.copies}"
    jump = Instruction("bra", (), (Symbol(skip),), s.guard, not s.guard_negated, s.line, s.loc)
    return [jump, *inner, Label(skip, s.line)]


def _indirect(
    flat: _Flat,
    target: Reg,
    results: tuple[Operand, ...],
    arguments: tuple[Operand, ...],
    s: Instruction,
    stack: tuple[str, ...],
) -> list[Statement]:
    """``call (ret), %rd1, (args), prototype``: try every function whose signature fits."""
    from rawflash.emu.lower.layout import FUNCTION_WINDOW

    candidates = []
    for handle, f in enumerate(flat.module.functions.values(), start=1):
        if f.is_entry or f.body is None or f.name not in _address_taken(flat.module):
            continue
        if len(f.params) == len(arguments) and len(f.returns) == len(results):
            candidates.append((FUNCTION_WINDOW | handle, f.name))
    flat.copies += 1
    tag = flat.copies
    predicate = f"%rf_call{tag}"
    flat.registers[predicate] = "pred"
    out: list[Statement] = []
    end = f"$called{tag}"
    for handle, name in candidates:
        skip = f"$other{tag}_{handle & 0xFFFF}"
        out.append(Instruction("setp", ("ne", "u64"), (Reg(predicate), target, Imm(handle)), line=s.line, loc=s.loc))
        out.append(Instruction("bra", (), (Symbol(skip),), predicate, False, s.line, s.loc))
        try:
            out += _copy(flat, name, results, arguments, s, stack)
        except UnsupportedInstruction:  # recursive, which only matters if the pointer really holds it
            out.append(Instruction("rf", ("badcall",), (), line=s.line, loc=s.loc))
        out.append(Instruction("bra", (), (Symbol(end),), line=s.line, loc=s.loc))
        out.append(Label(skip, s.line))
    out.append(Instruction("rf", ("badcall",), (), line=s.line, loc=s.loc))
    out.append(Label(end, s.line))
    return out


def _address_taken(module: Module) -> set[str]:
    """Functions whose name is used other than as the target of a direct call."""
    taken = {item.name for v in module.variables.values() for item in v.init or () if isinstance(item, Symbol)}
    for f in module.functions.values():
        for s in f.body or ():
            if isinstance(s, Instruction) and s.opcode != "call":
                taken.update(o.name for o in s.operands if isinstance(o, Symbol))
    return taken & set(module.functions)


def _copy(
    flat: _Flat, name: str, results: tuple[Operand, ...], arguments: tuple[Operand, ...], s: Instruction, stack: tuple[str, ...]
) -> list[Statement]:
    callee = flat.module.functions.get(name)
    if callee is None or callee.body is None:
        raise UnsupportedInstruction(
            s.spelling,
            ptx_line=s.line,
            loc=s.loc,
            hint=f"the module calls '{name}', which it does not define; link it in or avoid the call",
        )
    if name in stack:
        raise UnsupportedInstruction(
            s.spelling, ptx_line=s.line, loc=s.loc, hint=f"'{name}' is recursive; the emulator flattens calls, so write it as a loop"
        )
    if len(callee.params) != len(arguments) or len(callee.returns) != len(results):
        raise PtxSyntaxError(f"call of '{name}' with {len(arguments)} arguments, it takes {len(callee.params)}", line=s.line)
    flat.copies += 1
    rename = _Rename(flat, callee, f"${name}{flat.copies}", f"$ret{flat.copies}")
    before: list[Statement] = []
    after: list[Statement] = []
    for formal, actual in zip(callee.params, arguments, strict=True):
        rename.bind(formal, actual, before, s, is_result=False)
    for formal, actual in zip(callee.returns, results, strict=True):
        rename.bind(formal, actual, after, s, is_result=True)
    body = [rename.statement(x) for x in callee.body]
    expanded = _expand(flat, body, (*stack, name))
    return [*before, *expanded, Label(rename.end, s.line), *after]


class _Rename:
    """One copy of a callee: its registers, variables and labels under fresh names, its parameters bound to the arguments."""

    def __init__(self, flat: _Flat, callee: Function, suffix: str, end: str):
        self.flat, self.callee, self.suffix, self.end = flat, callee, suffix, end
        self.names: dict[str, str] = {}
        for r, ty in callee.registers.items():
            self.names[r] = r + suffix
            flat.registers[r + suffix] = ty
        for v in callee.variables.values():
            if v.space == "shared":
                flat.variables[v.name] = v  # one instance per CTA, however often the function is copied
                continue
            self.names[v.name] = v.name + suffix
            flat.variables[v.name + suffix] = replace(v, name=v.name + suffix)
        assert callee.body is not None
        for x in callee.body:
            if isinstance(x, Label | BranchTargets | CallPrototype):
                self.names[x.name] = x.name + suffix

    def bind(self, formal: Variable, actual: Operand, moves: list[Statement], s: Instruction, is_result: bool) -> None:
        if formal.space == "reg":
            fresh = formal.name + self.suffix
            self.names[formal.name] = fresh
            self.flat.registers[fresh] = formal.type
            source, target = (Reg(fresh), actual) if is_result else (actual, Reg(fresh))
            moves.append(Instruction("mov", (formal.type,), (target, source), line=s.line, loc=s.loc))
        elif isinstance(actual, Symbol):
            self.names[formal.name] = actual.name  # the caller's .param variable is the callee's parameter
        else:
            fresh = formal.name + self.suffix
            self.names[formal.name] = fresh
            self.flat.variables[fresh] = replace(formal, name=fresh)
            op, where = ("ld", (actual, Address(Symbol(fresh)))) if is_result else ("st", (Address(Symbol(fresh)), actual))
            moves.append(Instruction(op, ("param", formal.type), where, line=s.line, loc=s.loc))

    def statement(self, x: Statement) -> Statement:
        if isinstance(x, Label):
            return replace(x, name=self.names[x.name])
        if isinstance(x, BranchTargets):
            return replace(x, name=self.names[x.name], targets=tuple(self.names[t] for t in x.targets))
        if isinstance(x, CallPrototype):
            return replace(x, name=self.names[x.name])
        guard = self.names.get(x.guard, x.guard) if x.guard is not None else None
        if x.opcode == "ret":
            return Instruction("bra", (), (Symbol(self.end),), guard, x.guard_negated, x.line, x.loc)
        return replace(x, operands=tuple(self.operand(o) for o in x.operands), guard=guard)

    def operand(self, o: Operand) -> Operand:
        if isinstance(o, Reg):
            return Reg(self.names.get(o.name, o.name))
        if isinstance(o, Symbol):
            return Symbol(self.names.get(o.name, o.name), o.offset)
        if isinstance(o, Address):
            base = self.operand(o.base)
            assert isinstance(base, Reg | Symbol | Imm)
            return Address(base, o.offset)
        if isinstance(o, Vector):
            return Vector(tuple(self.operand(x) if x is not None else None for x in o.items))
        if isinstance(o, Tuple):
            return Tuple(tuple(self.operand(x) for x in o.items))
        if isinstance(o, NotPred):
            inner = self.operand(o.reg)
            assert isinstance(inner, Reg)
            return NotPred(inner)
        if isinstance(o, PredicatePair):
            pair = [self.operand(r) if r is not None else None for r in (o.first, o.second)]
            return PredicatePair(*pair)  # type: ignore[arg-type]
        return o
