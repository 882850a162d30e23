"""The syntax tree of a PTX module: what was written, with where it was written. No meaning is attached here.

Every node that can be blamed carries ``line`` (1-based line of the PTX text). Instructions also carry ``loc``, the
source position of the latest ``.loc`` directive, so that errors and counters can speak of the line of the ``.cu``.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Loc:
    """A source position from ``.loc``: file name as in ``.file`` and 1-based line. Inlined code keeps the innermost line."""

    file: str
    line: int


# ---------------------------------------------------------------------------------------------------------- operands
@dataclass(frozen=True)
class Reg:
    """A register, special registers included: ``%r1``, ``%tid.x`` (the component belongs to the name)."""

    name: str


@dataclass(frozen=True)
class Imm:
    """A literal. ``kind`` is "int" (``value`` a Python int, sign as written), "f32" (``0f3F800000``) or "f64"
    (``0d...`` or a decimal such as ``1.5``); for floats ``value`` holds the bit pattern as an unsigned int."""

    value: int
    kind: str = "int"


@dataclass(frozen=True)
class Symbol:
    """The name of a variable, label or function used as an operand (``mov.u64 %rd1, table;``), plus a byte offset.

    ``mask`` is set only in initialisers: ``0xff00(table)`` is the byte of the address that the mask selects.
    """

    name: str
    offset: int = 0
    mask: int | None = None


@dataclass(frozen=True)
class Address:
    """``[base+offset]``: base is a Reg, a Symbol or an Imm (absolute address). ``param`` arrays ``[p+4]`` are the same.

    ``coords`` is set for tensors and textures only: ``[map, {x, y}]``, further items of the bracket in order.
    """

    base: Reg | Symbol | Imm
    offset: int = 0
    coords: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Vector:
    """``{a, b, c, d}``. An element ``_`` (sink) is None."""

    items: tuple[Operand | None, ...]


@dataclass(frozen=True)
class PredicatePair:
    """``p|q`` as destination of setp / shfl.sync / match.all: both registers; None for ``_``."""

    first: Reg | None
    second: Reg | None


@dataclass(frozen=True)
class NotPred:
    """``!p`` as a source operand."""

    reg: Reg


@dataclass(frozen=True)
class Tuple:
    """``(a, b)`` argument and return lists of ``call``."""

    items: tuple[Operand, ...]


Operand = Reg | Imm | Symbol | Address | Vector | PredicatePair | NotPred | Tuple


# -------------------------------------------------------------------------------------------------------- statements
@dataclass(frozen=True)
class Instruction:
    """``@!p opcode.mod.mod a, b, c;``: ``opcode`` is the first part, ``mods`` the dotted rest in order, without dots.

    ``a|b`` destinations are PredicatePair; a whole operand ``_`` is ``Reg("_")``. ``guard`` is the register name of the predicate or None.
    """

    opcode: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str | None = None
    guard_negated: bool = False
    line: int = 0
    loc: Loc | None = None

    @property
    def spelling(self) -> str:
        """The full dotted spelling, e.g. ``fma.rn.ftz.f32``."""
        return ".".join((self.opcode, *self.mods))


@dataclass(frozen=True)
class Label:
    """``name:``"""

    name: str
    line: int = 0


@dataclass(frozen=True)
class BranchTargets:
    """``name: .branchtargets a, b, c;`` (for brx.idx)"""

    name: str
    targets: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True)
class CallPrototype:
    """``name: .callprototype (ret) _ (params);`` (for indirect calls)"""

    name: str
    returns: tuple[Variable, ...]
    params: tuple[Variable, ...]
    line: int = 0


Statement = Instruction | Label | BranchTargets | CallPrototype


# ------------------------------------------------------------------------------------------------------ declarations
@dataclass(frozen=True)
class Variable:
    """A variable in a state space: ``.shared .align 16 .b8 tile[1024]``.

    ``space`` is reg/param/shared/global/const/local; ``type`` the element type without dot (``b8``, ``f32``);
    ``vector`` 1, 2 or 4; ``dims`` the array extents (() for a scalar; (0,) for ``extern`` of unknown size ``[]``);
    ``init`` the flattened initialiser: ints, f32/f64 Imm, or Symbol (address of a variable, ``generic(x)`` included),
    zero-padded by whoever reads it; ``ptr_space``/``ptr_align`` from ``.ptr .global .align 16`` of kernel parameters.
    """

    name: str
    space: str
    type: str
    align: int | None = None
    vector: int = 1
    dims: tuple[int, ...] = ()
    init: tuple[Imm | Symbol, ...] | None = None
    linkage: str | None = None  # visible, extern, weak, common
    ptr_space: str | None = None
    ptr_align: int | None = None
    is_ptr: bool = False
    line: int = 0


@dataclass
class Function:
    """A ``.entry`` or ``.func``. ``body`` is None for a declaration. Nested ``{ }`` scopes are flattened: registers and
    variables declared in an inner scope that would collide with an outer name are renamed (``%r1`` -> ``%r1$2``)."""

    name: str
    is_entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...] = ()
    registers: dict[str, str] = field(default_factory=dict)  # every register by full name ("%f12") -> type ("f32")
    variables: dict[str, Variable] = field(default_factory=dict)  # .shared/.local/.param declared inside the body
    body: list[Statement] | None = None
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)  # maxntid, reqntid, minnctapersm, maxnreg, ...
    linkage: str | None = None
    noreturn: bool = False
    line: int = 0


@dataclass
class Module:
    """One PTX file."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int
    variables: dict[str, Variable] = field(default_factory=dict)  # module-scope .global/.const/.shared
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    text: str = ""
