"""The tree back to text, one line a statement, so that tests can compare trees as text."""

from __future__ import annotations

from rawflash.emu.ptx.tree import (
    Address,
    BranchTargets,
    CallPrototype,
    Function,
    Imm,
    Label,
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


def operand(node: Operand | None) -> str:
    """``$`` marks a Symbol, ``f32:``/``f64:`` a float's bits; an integer is decimal."""
    if node is None:
        return "_"
    if isinstance(node, Reg):
        return node.name
    if isinstance(node, Imm):
        return str(node.value) if node.kind == "int" else f"{node.kind}:{node.value:x}"
    if isinstance(node, Symbol):
        mask = "" if node.mask is None else f"{node.mask:#x}&"
        return f"{mask}${node.name}" + (f"{node.offset:+d}" if node.offset else "")
    if isinstance(node, Address):
        coords = "".join(", " + operand(c) for c in node.coords)
        return f"[{operand(node.base)}{f'{node.offset:+d}' if node.offset else ''}{coords}]"
    if isinstance(node, Vector):
        return "{" + ", ".join(map(operand, node.items)) + "}"
    if isinstance(node, Tuple):
        return "(" + ", ".join(map(operand, node.items)) + ")"
    if isinstance(node, PredicatePair):
        return f"{operand(node.first)}|{operand(node.second)}"
    assert isinstance(node, NotPred)
    return "!" + node.reg.name


def statement(node: Statement) -> str:
    if isinstance(node, Label):
        return node.name + ":"
    if isinstance(node, BranchTargets):
        return f"{node.name}: targets {', '.join(node.targets)}"
    if isinstance(node, CallPrototype):
        return f"{node.name}: ({', '.join(map(variable, node.returns))}) <- ({', '.join(map(variable, node.params))})"
    guard = f"@{'!' if node.guard_negated else ''}{node.guard} " if node.guard else ""
    return f"{guard}{node.spelling} {', '.join(map(operand, node.operands))}".rstrip()


def variable(node: Variable) -> str:
    dims = "".join(f"[{d}]" for d in node.dims)
    init = "" if node.init is None else " = " + " ".join(map(operand, node.init))
    parts = [
        node.linkage,
        f"{node.space}.{node.type}" + (f"x{node.vector}" if node.vector > 1 else ""),
        f"align{node.align}" if node.align else None,
        f"ptr({node.ptr_space},{node.ptr_align})" if node.is_ptr else None,
        node.name,
    ]
    return " ".join(p for p in parts if p) + dims + init


def body(function: Function) -> list[str]:
    return [statement(s) for s in function.body or []]
