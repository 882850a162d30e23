"""Damaged PTX must end in a typed error or in a run that ends: ``python -m tests.emu.fuzz_ptx FIRST COUNT`` tries seeds.

Each seed takes a small valid kernel and damages it (operands dropped, doubled or swapped, registers, types and labels exchanged,
lines lost or repeated), then compiles and launches it. Prints one line per seed that ends in anything else than an EmuError.
"""

from __future__ import annotations

import random
import re
import sys
import traceback

import numpy as np

from rawflash import emu

PARAMS = emu.EmuParams(max_loop_iterations=2000, threads=1, disk_cache=False)
KERNEL = """
.visible .entry k(.param .u64 x, .param .u64 o)
{
  .reg .b32 %r<20>;
  .reg .b64 %d<20>;
  .reg .f32 %f<10>;
  .reg .b16 %h<10>;
  .reg .pred %p<10>;
  .shared .align 16 .b8 s[1024];
  .local .align 8 .b8 l[64];
  ld.param.u64 %d1, [x];
  ld.param.u64 %d2, [o];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %d3, %r1, 4, %d1;
  mad.wide.u32 %d4, %r1, 4, %d2;
  ld.global.b32 %r2, [%d3];
  mov.u32 %r3, s;
  mad.lo.u32 %r4, %r1, 4, %r3;
  st.shared.b32 [%r4], %r2;
  bar.sync 0;
  xor.b32 %r5, %r1, 1;
  mad.lo.u32 %r6, %r5, 4, %r3;
  ld.shared.b32 %r7, [%r6];
  setp.gt.s32 %p1, %r7, 20;
  @%p1 bra BIG;
  add.cc.u32 %r8, %r7, %r2;
  addc.u32 %r9, %r8, 0;
  cvt.rn.f32.u32 %f1, %r9;
  fma.rn.f32 %f2, %f1, 0f3F000000, %f1;
  cvt.rzi.u32.f32 %r9, %f2;
  bra.uni NEXT;
BIG:
  mov.u32 %r10, 3;
  mov.u32 %r9, 0;
LOOP:
  add.s32 %r9, %r9, %r10;
  sub.s32 %r10, %r10, 1;
  setp.ne.s32 %p2, %r10, 0;
  @%p2 bra LOOP;
NEXT:
  shfl.sync.bfly.b32 %r11, %r9, 2, 31, 0xffffffff;
  vote.sync.ballot.b32 %r12, %p1, 0xffffffff;
  cvt.u16.u32 %h1, %r11;
  mov.b32 {%h2, %h3}, %r12;
  add.u16 %h4, %h1, %h2;
  cvt.u32.u16 %r13, %h4;
  mov.u64 %d5, l;
  st.local.b32 [%d5+4], %r13;
  ld.local.b32 %r14, [%d5+4];
  selp.b32 %r15, %r14, %r11, %p1;
  prmt.b32 %r16, %r15, %r2, 0x5410;
  st.global.b32 [%d4], %r16;
  ret;
}
"""
TOKEN = re.compile(r"%[a-z]+\d*(?:\.[xyz])?|0[xf][0-9A-Fa-f]+|\b\d+\b|\.[a-z]\w*|\b[A-Z]+\b|[a-z]\w*")


def damage(rng: random.Random) -> str:
    """The kernel with one to three small changes."""
    lines = KERNEL.strip().splitlines()
    pool = TOKEN.findall("\n".join(lines[9:-1]))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(9, len(lines) - 1)
        line = lines[at]
        tokens = list(TOKEN.finditer(line))
        kind = rng.randrange(7)
        if kind == 0:
            lines.pop(at)
        elif kind == 1:
            lines.insert(rng.randrange(9, len(lines) - 1), line)
        elif kind == 2 and "," in line:
            head, _, tail = line.partition(",")
            lines[at] = head + (";" if rng.randrange(2) else ", " + tail.strip(" ;") + "," + tail)
        elif kind == 3 and tokens:
            token = rng.choice(tokens)
            lines[at] = line[: token.start()] + line[token.end() :]
        elif tokens:
            token = rng.choice(tokens)
            lines[at] = line[: token.start()] + rng.choice(pool) + line[token.end() :]
    return ".version 8.8\n.target sm_90\n.address_size 64\n" + "\n".join(lines) + "\n"


def attempt(seed: int) -> str:
    """How a seed ends: the name of the error's class, or "ran"."""
    text = damage(random.Random(seed))
    x, out = emu.asarray(np.arange(64, dtype=np.uint32)), emu.asarray(np.zeros(64, np.uint32))
    try:
        emu.RawModule(code=text, params=PARAMS).get_function("k")((1, 1, 1), (64, 1, 1), (x, out))
    except emu.EmuError as error:
        return type(error).__name__
    return "ran"


def main(first: int, count: int) -> int:
    """Try the seeds; 1 if one of them ended otherwise."""
    ends: dict[str, int] = {}
    failed = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", end="\r", flush=True)
        try:
            end = attempt(seed)
            ends[end] = ends.get(end, 0) + 1
        except Exception as error:
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed}: {type(error).__name__}: {error} ({place.filename.rsplit('/', 1)[-1]}:{place.lineno})", flush=True)
    print("ends:", dict(sorted(ends.items())))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
