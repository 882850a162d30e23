"""Reconvergence points: the immediate post-dominator of every block.

Edges into a block that does nothing but return are left out while another way exists: lanes that return are gone, so
they need not be waited for. Without this, ``if (i >= n) return;`` inside a loop would push the reconvergence of every branch
around it to the end of the kernel, past the barriers that the other lanes still share.
"""

from __future__ import annotations

from rawflash.emu.cfg.blocks import Block

EXIT = -1  # the virtual exit


def immediate_post_dominators(blocks: list[Block]) -> list[int]:
    """For every block the index of its reconvergence point, or EXIT."""
    n = len(blocks)
    successors = _without_returns(blocks)
    post = _post_dominators(successors)
    reaches = _reaching_exit(successors, n)
    result = []
    for i in range(n):
        strict = post[i] & ~(1 << i)
        if i not in reaches:
            result.append(EXIT)
            continue
        best, best_size = EXIT, 0
        while strict:
            low = strict & -strict
            candidate = low.bit_length() - 1
            strict ^= low
            if candidate < n and post[candidate].bit_count() > best_size:
                best, best_size = candidate, post[candidate].bit_count()
        result.append(best)
    return result


def _post_dominators(successors: list[list[int]]) -> list[int]:
    """Bit sets: bit j of entry i says that j is on every path from i to the exit, which is bit n."""
    n = len(successors)
    everything = (1 << (n + 1)) - 1
    post = [everything] * n + [1 << n]
    changed = True
    while changed:
        changed = False
        for i in range(n - 1, -1, -1):
            meet = everything
            for s in successors[i]:
                meet &= post[s]
            new = meet | (1 << i)
            if new != post[i]:
                post[i] = new
                changed = True
    return post


def _without_returns(blocks: list[Block]) -> list[list[int]]:
    """Successors with n for the exit, without the edges into bare returns that can be spared.

    A loop whose only way out is such an edge keeps one: the one most blocks must pass, which is the loop's own condition.
    """
    n = len(blocks)
    bare = {b.index for b in blocks if b.trivial_exit}
    full = [list(dict.fromkeys(b.successors)) or [n] for b in blocks]
    pruned = [[s for s in out if s not in bare] or out for out in full]
    while True:
        stuck = set(range(n)) - _reaching_exit(pruned, n)
        spared = [i for i in stuck if pruned[i] != full[i]]
        if not spared:
            return pruned

        def passed_by(candidate: int, now: list[list[int]] = pruned) -> int:
            trial = [full[i] if i == candidate else out for i, out in enumerate(now)]
            return sum(p >> candidate & 1 for p in _post_dominators(trial)[:n])

        best = max(spared, key=lambda i: (passed_by(i), -i))
        pruned[best] = full[best]


def _reaching_exit(successors: list[list[int]], n: int) -> set[int]:
    predecessors: dict[int, list[int]] = {}
    for i, out in enumerate(successors):
        for s in out:
            predecessors.setdefault(s, []).append(i)
    seen, work = {n}, [n]
    while work:
        for p in predecessors.get(work.pop(), ()):
            if p not in seen:
                seen.add(p)
                work.append(p)
    return seen


def region(blocks: list[Block], start: int, stop: int) -> set[int]:
    """Blocks reachable from the successors of ``start`` without passing through ``stop``: what a divergent branch splits."""
    seen: set[int] = set()
    work = [s for s in blocks[start].successors if s != stop]
    while work:
        i = work.pop()
        if i in seen:
            continue
        seen.add(i)
        work.extend(s for s in blocks[i].successors if s != stop and s not in seen)
    return seen
