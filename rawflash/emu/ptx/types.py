"""The fundamental types of PTX: their sizes and kinds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class PtxType:
    """``kind``: "s" signed, "u" unsigned, "b" untyped bits, "f" floating, "p" predicate, "o" opaque (textures).

    ``bits`` is the whole width, packed types included; ``lanes`` how many values are packed in it; ``element`` the name of
    one value (``f16`` for ``f16x2``). A predicate has no size in memory.
    """

    name: str
    kind: str
    bits: int
    lanes: int = 1
    element: str = ""

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_signed(self) -> bool:
        return self.kind == "s"


def _table() -> dict[str, PtxType]:
    types = [PtxType(f"{kind}{bits}", kind, bits) for kind in "sub" for bits in (8, 16, 32, 64)]
    types += [PtxType("b128", "b", 128), PtxType("pred", "p", 1)]
    types += [PtxType(f"f{bits}", "f", bits) for bits in (16, 32, 64)]
    types += [PtxType("bf16", "f", 16), PtxType("tf32", "f", 32)]
    types += [PtxType(name, "f", 8) for name in ("e4m3", "e5m2", "ue8m0", "ue4m3")]
    types += [PtxType("e2m1", "f", 4), PtxType("e2m3", "f", 6), PtxType("e3m2", "f", 6)]
    types += [PtxType(f"{kind}{bits}", kind, bits) for kind in "su" for bits in (4, 2)] + [PtxType("b1", "b", 1)]
    for element, kind, bits in (("f16", "f", 16), ("bf16", "f", 16), ("s16", "s", 16), ("u16", "u", 16), ("f32", "f", 32)):
        types.append(PtxType(f"{element}x2", kind, 2 * bits, 2, element))
    types += [PtxType(f"{e}x2", "f", 16, 2, e) for e in ("e4m3", "e5m2", "ue8m0")]
    types += [PtxType("e2m1x2", "f", 8, 2, "e2m1"), PtxType("e2m3x2", "f", 16, 2, "e2m3"), PtxType("e3m2x2", "f", 16, 2, "e3m2")]
    types += [PtxType(name, "o", 64) for name in ("texref", "samplerref", "surfref")]
    return {t.name: t for t in types}


TYPES: dict[str, PtxType] = _table()
SIZES: dict[str, int] = {name: t.bytes for name, t in TYPES.items() if t.bits >= 8}  # bytes in memory


def parse_type(mods: Iterable[str]) -> PtxType | None:
    """The last type among an instruction's modifiers (its operand type), or None: ("rn", "ftz", "f32") -> f32."""
    found = None
    for mod in mods:
        found = TYPES.get(mod, found)
    return found


def types_of(mods: Iterable[str]) -> tuple[PtxType, ...]:
    """Every type among the modifiers in order: ("rn", "f16x2", "f32") -> (f16x2, f32)."""
    return tuple(TYPES[mod] for mod in mods if mod in TYPES)
