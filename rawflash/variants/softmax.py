"""Row softmax and top-k (kernels_cu/softmax.cu, after arXiv 1805.02867): launch plans and closed-form HBM bytes.

Not attention, so not in LADDER: the recurrence that the ladder rests on, by itself. X and Y are [batch, V] in the storage type,
values [batch, K] float32, indices [batch, K] int32.

    naive        softmax_naive                 3 accesses per element, overflows beyond x = 88
    safe         softmax_safe                  4
    online       softmax_online                3
    safe_topk    softmax_safe, topk            5
    onl_topk     softmax_online, topk          4
    fused_safe   softmax_topk_safe             2
    fused_onl    softmax_topk_online           1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawflash.errors import UsageError
from rawflash.io_model import TensorIO
from rawflash.problem import DTYPES
from rawflash.variants.base import Launch, Plan

__all__ = ["FILE", "SOFTMAXES", "SoftmaxProblem", "softmax_bytes", "softmax_plan"]

FILE = "softmax.cu"
_THREADS = 256

# Name -> kernels, in order.
SOFTMAXES: dict[str, tuple[str, ...]] = {
    "naive": ("softmax_naive",),
    "safe": ("softmax_safe",),
    "online": ("softmax_online",),
    "safe_topk": ("softmax_safe", "topk"),
    "onl_topk": ("softmax_online", "topk"),
    "fused_safe": ("softmax_topk_safe",),
    "fused_onl": ("softmax_topk_online",),
}

# Kernel -> tensors that it reads and how often, tensors of V and of K columns that it writes.
_READS: dict[str, tuple[str, int]] = {
    "softmax_naive": ("X", 2),
    "softmax_safe": ("X", 3),
    "softmax_online": ("X", 2),
    "topk": ("Y", 1),
    "softmax_topk_safe": ("X", 2),
    "softmax_topk_online": ("X", 1),
}
_WRITES_Y = ("softmax_naive", "softmax_safe", "softmax_online")


@dataclass(frozen=True)
class SoftmaxProblem:
    """`batch` rows of `V` numbers, of which the `K` largest may be wanted. Raises UsageError for sizes that the kernels cannot take."""

    batch: int
    V: int
    K: int = 5
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        if not 1 <= self.V < 2**30 or not 1 <= self.batch < 2**31:
            raise UsageError(f"{self.batch} rows of {self.V} numbers: give 1 to 2^31 - 1 rows of 1 to 2^30 - 1 numbers")
        if not 1 <= self.K <= 64:
            raise UsageError(f"K={self.K} is not supported: K must be between 1 and 64")
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype={self.dtype!r} is unknown: choose one of {', '.join(DTYPES)}")


def _kernels(name: str) -> tuple[str, ...]:
    if name not in SOFTMAXES:
        raise UsageError(f"there is no softmax called {name!r}; the known ones are {', '.join(SOFTMAXES)}")
    return SOFTMAXES[name]


def softmax_plan(name: str, p: SoftmaxProblem) -> Plan:
    """Launches of a softmax: buffers are Y, or values and indices, or all three. Raises UsageError for an unknown name."""
    row, top = ("Y",), ("values", "indices")
    launches = tuple(
        Launch(
            kernel,
            (p.batch, 1, 1),
            (_THREADS, 1, 1),
            0,
            (_READS[kernel][0], *(row if kernel in _WRITES_Y else top), np.int32(p.V)),
        )
        for kernel in _kernels(name)
    )
    kinds = {"Y": ((p.batch, p.V), DTYPES[p.dtype]), "values": ((p.batch, p.K), np.dtype(np.float32))}
    kinds["indices"] = ((p.batch, p.K), np.dtype(np.int32))
    wanted = {argument for launch in launches for argument in launch.args if isinstance(argument, str)}
    return Plan({"RF_DTYPE": p.dtype, "RF_K": p.K}, {tensor: kinds[tensor] for tensor in kinds if tensor in wanted}, launches)


def softmax_bytes(name: str, p: SoftmaxProblem) -> TensorIO:
    """Modelled HBM bytes: {tensor: (read, written)}."""
    row, top = p.batch * p.V * DTYPES[p.dtype].itemsize, p.batch * p.K * 4
    io: TensorIO = {}
    for kernel in _kernels(name):
        tensor, times = _READS[kernel]
        read, written = io.get(tensor, (0, 0))
        io[tensor] = (read + times * row, written)
        for output, size in [("Y", row)] if kernel in _WRITES_Y else [("values", top), ("indices", top)]:
            io[output] = (0, size)
    return io
