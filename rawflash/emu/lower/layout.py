"""Byte offsets of everything the generated code and Python share at run time.

Five records, all plain memory owned by NumPy buffers: LAUNCH (one per launch), WORKER (one per worker thread, with the CTA it
executes now), WARP (one per warp of that CTA), MEMO (one per memory access in the code and worker: the last pattern of lane
addresses it saw, and what that pattern costs) and COPY (one per cp.async in flight).
"""

from __future__ import annotations

# Generic address windows. Global addresses are host addresses, far below.
SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 2 << 60
FUNCTION_WINDOW = 3 << 60
CONST_WINDOW = 4 << 60  # behind it a host address
WINDOW_SHIFT = 60

STACK_ENTRIES = 128
SPARES = 3  # patterns that an access site remembers besides its last one
QUANTUM = 256  # iterations of a spin loop before the other warps get their turn


class Launch:
    NCTAID = 0  # 3 x i32
    NTID = 12  # 3 x i32
    SMEM_BYTES = 24  # i32
    NWARPS = 28  # i32
    PARAMS = 32  # ptr
    ALLOCS = 40  # ptr to ALLOC records, sorted by address
    N_ALLOCS = 48  # i64
    WARP_STRIDE = 56  # i64
    LOCAL_STRIDE = 64  # i64: bytes of local memory per lane
    N_CTAS = 72  # i64
    CTA_ORDER = 80  # ptr to i64 permutation, or null
    WARP_ORDER = 88  # ptr to i32 permutation, or null
    MAX_ITERATIONS = 96  # i64
    GRIDID = 104  # i64
    STOP = 112  # i64: lowest position in the order of CTAs that failed; later ones need not be run
    SHADOW_DELTA = 120  # i64: shadow byte address = data address + delta
    SMEM_DYNAMIC = 128  # i32
    HOST_CALL = 136  # ptr: i32 (worker, warp, kind, lane, a, b)
    N_SLOTS = 144  # i64
    SYMBOLS = 152  # ptr to i64 addresses of module variables
    L2 = 160  # ptr to the L2 record, when a cache is simulated
    STALLED = 168  # ptr: i32 (worker, fresh), asked when all warps of a CTA only spin; null if the kernel has no such loop
    SIZE = 256


class Alloc:
    LO = 0  # i64
    HI = 8  # i64
    SLOT = 16  # i64: counter slot
    FLAGS = 24  # i64: 1 = read only, 2 = constant bank
    SIZE = 32
    READ_ONLY = 1
    CONSTANT = 2


class Worker:
    CTAID = 0  # 3 x i32
    LINEAR = 16  # i64
    SMEM = 24  # ptr
    LAUNCH = 32  # ptr
    BLOCKS = 40  # ptr to (i64 executions, i64 active lanes) per basic block
    MEMOS = 48  # ptr
    COUNTS = 56  # ptr to SITE counters
    WARPS = 64  # ptr
    ITERATIONS = 72  # i64: back edges left
    SMEM_SHADOW = 80  # ptr
    LOCAL_SHADOW_DELTA = 88  # i64
    RACE = 96  # ptr: shared-memory race shadow, or null
    EPOCH = 104  # i32: barrier interval of this CTA
    CHANGED = 108  # i32: memory that a spinning warp may be watching was changed in this round
    CTAS_DONE = 112  # i64
    ERR_KIND = 120  # i32
    ERR_SITE = 124  # i32
    ERR_LANE = 128  # i32
    ERR_WARP = 132  # i32
    ERR_ADDR = 136  # i64
    ERR_AUX = 144  # i64
    ERR_AUX2 = 152  # i64
    BARRIERS = 160  # i64: barrier instructions executed by warps
    GLOBAL_RACE = 168  # i64: address of the global race records
    GLOBAL_ORIGIN = 176  # i64: device address of the first record
    GENERATION = 184  # i32: advanced by device-wide fences
    ADDRS = 192  # 32 x i64 scratch for the slow path
    DATA = 448  # 4 x 32 x i64 scratch for data
    BAR_ACC = 1472  # 16 x {i32 arrived threads, i32 popc, i32 and, i32 or}
    BAR_RESULT = 1728  # 16 x {i32 popc, i32 and, i32 or, i32 pad}
    PAIRED = 1984  # i32 count, then up to 7 x {i32 site, i32 site}: barriers of one id that warps met at different places
    POSITION = 2048  # i64: place of the current CTA in the order
    L2_LOCAL = 2056  # i64: first sector of this worker's local memory, as the simulated cache numbers them
    SPARES = 2080  # ptr to the MEMO records of earlier patterns, SPARES of them per site
    ROUNDS = 2064  # i32: rounds of the current CTA
    IDLE = 2068  # i32: of them the last ones in which its warps only spun
    FRESH = 2072  # i32: something has happened since its worker last reported that nothing does
    SIZE = 2112


class Warp:
    RESUME = 0
    MASK = 4
    EXITED = 8
    SP = 12
    RPC = 16
    INDEX = 20
    ENTRY_MASK = 24
    STATUS = 28  # 0 ready, 1 waits at a barrier, 2 done
    BAR_ID = 32
    BAR_THREADS = 36
    LOCAL = 40  # ptr
    ARRIVALS = 48  # i32: arrivals in the queue that wait for copies (cp.async.mbarrier.arrive)
    SYNC = 52  # i32: warp-level synchronisations executed, for the race detector
    BAR_SITE = 56  # i32: where this warp waits
    SAME = 60  # i32: 1 if the last suspension of a spinning warp found every live register as the one before left it
    TID = 64  # 3 x 32 x i32
    STACK = 448  # STACK_ENTRIES x {i32 mask, i32 block, i32 rpc, i32 pad}
    GROUPS = 448 + 16 * STACK_ENTRIES  # 32 x i32: cp.async groups that each lane has committed
    QUEUE = GROUPS + 128  # ptr to COPY records, a ring
    HEAD = GROUPS + 136  # i32: oldest record in use; a record's place is its number modulo CAPACITY
    TAIL = GROUPS + 140  # i32: number of the next record
    CAPACITY = GROUPS + 144  # i32: power of two, grows up to QUEUE_LIMIT
    STACK_SUM = GROUPS + 160  # i64: a digest of the stack at the last suspension of a spinning warp
    SPINS = GROUPS + 168  # i32: iterations of spin loops left before the warp lets the others run
    QUIET = GROUPS + 172  # i32: suspensions with SAME since anything happened in the CTA
    BAR_ROUND = GROUPS + 176  # i32: round in which the warp arrived at its barrier
    REGISTERS = GROUPS + 192


class Copy:
    """One cp.async instruction of a warp whose bytes are not in shared memory yet, or an arrival that waits for such."""

    MASK = 0  # i32: lanes that have not been completed
    WIDTH = 4  # i32: bytes per lane
    KIND = 8  # i32: COPY_BYTES or COPY_ARRIVAL
    SITE = 12  # i32
    BASE = 16  # i64: shared address of the first active lane
    STRAIGHT = 24  # i32: the destinations of all 32 lanes lie one after the other
    REL32 = 64  # 32 x i32: destinations relative to BASE
    GROUP = 192  # 32 x i32: which of its groups each lane's copy belongs to
    DATA = 320  # 32 x WIDTH bytes, captured when the instruction was issued
    SIZE = 832


COPY_BYTES, COPY_ARRIVAL = 0, 1
QUEUE_START, QUEUE_LIMIT = 16, 256


class Memo:
    """One remembered pattern. REL are byte offsets from the first active lane; inactive lanes hold 0."""

    REL = 0  # 32 x i64
    MASK = 256  # i32
    CLASS = 260  # i32: 0 scattered, 1 contiguous, 2 all lanes at one address
    LOW = 264  # i64: required value of base & key mask; -1 = nothing remembered
    BASE_MIN = 272  # i64: smallest base for which every byte stays inside the allocation
    BASE_MAX = 280  # i64: largest such base
    HITS = 288  # i64: executions since the pattern was learnt
    COST = 296  # i64: sectors or wavefronts of one execution
    IDEAL = 304  # i64: the least a request of this width can cost
    BYTES = 312  # i64: distinct bytes of one execution
    LANE_BYTES = 320  # i64: bytes that the active lanes ask for, repeats included
    COUNTS = 328  # ptr to the SITE record to flush into
    # what never changes, written once per worker
    SITE = 336  # i32
    WIDTH = 340  # i32: bytes per lane
    SPACE = 344  # i32
    WRITE = 348  # i32
    KEY = 352  # i64: address bits that the cost depends on
    COUNTED = 360  # i32: 1 = work out sectors or wavefronts, 2 = the same for rows of matrices
    ALIGN = 364  # i32: addresses must be a multiple of this
    REL32 = 384  # 32 x i32: REL again, for 32-bit addresses
    # groups of accesses through one address register (lower/groups.py): where a member stands ...
    OFFSET = 512  # i64: the member's address minus the register
    NEXT = 520  # i64: bytes from this memo to the next member's, 0 at the last
    # ... and, in the leader's memo, for which registers all members' memos hold
    JOINT_KEY = 528  # i64: as KEY
    JOINT_LOW = 536  # i64: as LOW
    JOINT_MIN = 544  # i64: as BASE_MIN
    JOINT_MAX = 552  # i64: as BASE_MAX
    JOINT_HITS = 560  # i64: executions of the whole group, not yet in the members' HITS
    NARROW = 568  # i32: the register has 32 bits, addresses wrap there
    SIZE = 576


class Site:
    """Accumulated counts of one access site and one allocation slot, all i64."""

    REQUESTS = 0
    COST = 8
    IDEAL = 16
    BYTES = 24
    LANE_BYTES = 32
    SIZE = 40


class L2:
    """The simulated L2 cache of a launch: arrays over its lines, set after set, and counters."""

    TAGS = 0  # ptr to i64 per line: line number + 1, or 0 for none
    STAMPS = 8  # ptr to i64 per line: when it was last used
    VALID = 16  # ptr to 4 x i32 per line: the bytes of each sector that are there
    DIRTY = 24  # ptr to i32 per line: bits 0-3, sectors that DRAM does not have yet
    OWNERS = 32  # ptr to i32 per line: row of counters
    COUNTS = 40  # ptr to L2Row records: slot 0 (no argument), the arguments, local memory
    SETS = 48  # i64
    WAYS = 56  # i64
    CLOCK = 64  # i64: lookups so far
    ORIGIN = 72  # i64: address of line 0
    SIZE = 128


class L2Row:
    """Sectors counted for one argument, all i64."""

    READ_HITS = 0
    READ_MISSES = 8
    WRITE_HITS = 16
    WRITE_MISSES = 24
    FILLS = 32  # read from DRAM
    WRITEBACKS = 40  # written to DRAM
    FLUSH_FILLS = 48  # the same, for what is dirty at the end
    FLUSH_WRITEBACKS = 56
    SIZE = 64


# Error kinds written by generated code.
ERRORS = {
    1: "out_of_bounds",
    2: "misaligned",
    3: "read_only",
    4: "uninitialized",
    5: "hung",
    6: "divergent_barrier",
    7: "bad_mask",
    8: "trap",
    9: "race",
    10: "deadlock",
    11: "window",
    12: "assert",
    13: "bad_shuffle",
    14: "host",
    15: "call",
    16: "spin",
    17: "bad_barrier",
    18: "bad_mbarrier",
    19: "bad_copy",
}
ERROR_KIND = {name: kind for kind, name in ERRORS.items()}

# Return codes of the warp function.
DONE, BARRIER, YIELD, FAILED = 0, 1, 2, -1
