"""printf and assert: the lanes' arguments are handed to Python, one active lane after the other."""

from __future__ import annotations

from rawflash.emu.lower import access
from rawflash.emu.lower.builder import WarpBuilder
from rawflash.emu.lower.irtext import LANES, Value
from rawflash.emu.lower.layout import Launch
from rawflash.emu.ptx.tree import Address, Instruction, Operand, Reg, Symbol

KINDS = {"printf": 1, "assert": 2}
ARGUMENTS = {"printf": 2, "assert": 5}


def _argument(b: WarpBuilder, operand: Operand) -> Value:
    """One call argument as 32 i64 lanes: a register, or a .param variable in the caller's frame."""
    if isinstance(operand, Reg):
        return b.splat(b.resize(b.read_register(operand.name), "i64"))
    if isinstance(operand, Symbol):
        offset = b.address(Address(operand))
        stride = b.load("i64", b.gep("%l", Launch.LOCAL_STRIDE))
        out = b.alloca("[32 x i64]")
        with b.loop(LANES) as lane:
            at = b.bin("add", b.bin("mul", b.resize(lane, "i64"), stride), offset)
            value = b.load("i64", b.gep("%local", at), align=1)
            b.store(value, b.gep(out, b.bin("mul", b.resize(lane, "i64"), b.i64(8))))
        return b.load("i64", out, LANES)
    raise b.unsupported(f"argument {operand} of a host call")


def host_call(b: WarpBuilder, i: Instruction) -> None:
    """Call Python with (worker, warp, kind, lane, pointer to the lane's arguments as i64)."""
    b.code.uses_host = True
    kind = i.mods[0]
    count = ARGUMENTS[kind]
    arguments = [_argument(b, o) for o in i.operands[-count:]]
    table = b.alloca(f"[{32 * count} x i64]")
    for n, v in enumerate(arguments):
        for k in range(LANES):
            b.store(b.extract(v, k), b.gep(table, 8 * (k * count + n)))
    mask = b.lane_mask()
    function = b.load("ptr", b.gep("%l", Launch.HOST_CALL))
    with b.loop(LANES) as lane:
        active = b.cmp("icmp ne", b.bin("and", b.bin("lshr", mask, lane), b.i32(1)), b.i32(0))
        with b.when(active):
            row = b.gep(table, b.bin("mul", b.resize(lane, "i64"), b.i64(8 * count)))
            code = b.define(f"call i32 {function.ir}(ptr %w, ptr %warp, i32 {KINDS[kind]}, {lane.typed}, {row.typed})", "i32")
            b.fail_if(b.cmp("icmp ne", code, b.i32(0)), "assert" if kind == "assert" else "host", lane)
    if len(i.operands) > count:  # the return value: printf gives the number of arguments, which nobody reads
        target = i.operands[0]
        if isinstance(target, Reg):
            b.write(target, b.i32(0))
        elif isinstance(target, Symbol):
            access.store(b, "local", b.address(Address(target)), [b.i32(0)], 32)
