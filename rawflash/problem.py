"""The attention problem: sizes, storage type, mask, scale, softcap, seed; and its inputs.

    s[b,h,i,j]  = softmax_scale * Q[b,h,i,:] . K[b,g,j,:]            g = h * Hkv // H; with a softcap c: c * tanh(s / c)
    O[b,h,i,:]  = sum_j softmax_j(s[b,h,i,j]) V[b,g,j,:]             j over the visible keys
    LSE[b,h,i]  = ln sum_j exp(s[b,h,i,j])

Row i sees the keys j with  begin(i) <= j < end(i). Its diagonal is key i + Nkv - N, or key i with causal=top_left; a causal mask hides
what lies right of it, a window what lies more than window_left keys left or window_right keys right of it.

Shapes: Q [B, H, N, d], K [B, Hkv, Nkv, d], V [B, Hkv, Nkv, dv], O [B, H, N, dv], LSE [B, H, N] (always float32): the axes of every array
that Python sees. In a device's memory Q, K, V and O have this order of axes (layout=bhnd), or the heads of a row lie side by side,
[B, N, H, d] (layout=bnhd): `stored` goes from one to the other and back.

Storage: fp32 and fp16 are NumPy's float32 and float16. NumPy has no bf16, so a bf16 array is a uint16 array of its bit
patterns; `round_to` and `to_f64` convert.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawflash.errors import UsageError

__all__ = ["CAUSAL", "DISTRIBUTIONS", "DTYPES", "Problem", "make_inputs", "round_to", "to_f64"]

# Name of a storage type -> the NumPy type that holds it.
DTYPES: dict[str, np.dtype] = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(np.uint16)}
CAUSAL = ("none", "bottom_right", "top_left")
LAYOUTS = ("bhnd", "bnhd")
# Outside of this s / c or c * tanh(s / c) leaves the range of float32.
SOFTCAP_RANGE = (1e-9, 1e9)

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float32]]] = {
    "randn": lambda rng, shape: rng.standard_normal(shape, dtype=np.float32),
    "uniform": lambda rng, shape: rng.random(shape, dtype=np.float32) * 2 - 1,
    "large": lambda rng, shape: rng.standard_normal(shape, dtype=np.float32) * 8,
    "ones": lambda rng, shape: np.ones(shape, np.float32),
    "zeros": lambda rng, shape: np.zeros(shape, np.float32),
}


def _size(name: str, value: object, least: int) -> int:
    """`value` as an int >= `least`; a bool, a float or a text is refused."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise UsageError(f"problem.{name}={value!r} is not a size: give an integer of at least {least}")
    return number


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"problem.{name}={value!r} is unknown: choose one of {', '.join(allowed)}")
    return str(value)


def _window(name: str, value: object) -> int | None:
    if value is None or (value == -1 and not isinstance(value, bool)):
        return None
    try:
        return _size(name, value, 0)
    except UsageError:
        raise UsageError(
            f"problem.{name}={value!r} is not a number of keys: give a whole number of at least 0, or -1 or null for no limit"
        ) from None


def _finite(name: str, value: object, way_out: str) -> float:
    """`value` as a float; a bool, a text, inf and NaN are refused."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise UsageError(f"problem.{name}={value!r} is not a finite number: {way_out}")
    return number


@dataclass(frozen=True)
class Problem:
    """One attention problem. Sizes may be 0 (an empty or keyless problem is a valid one), except d.

    causal        "none", "bottom_right" (row i sees keys j <= i + Nkv - N), "top_left" (j <= i); True means bottom_right
    window_left   most keys left of the diagonal that a row sees; None or -1: no limit
    window_right  the same on the right; a causal mask leaves none there whatever this says
    softcap       bound c of the scores: s becomes c * tanh(s / c); None or 0: off
    dv            components of V and O; None means d, the number of those of Q and K
    layout        order of the axes of Q, K, V and O in memory: "bhnd" or "bnhd"
    softmax_scale None means 1/sqrt(d); any finite number is taken as it is, 0 and negative ones included
    distribution  how make_inputs draws Q, K and V: a key of DISTRIBUTIONS
    dropout_p     probability that an element of P is dropped, below 1; those kept are divided by 1 - dropout_p. Which ones is a
                  function of the seed and of their place (rawflash.dropout). LSE knows nothing of it

    Raises UsageError (a ValueError) for values that cannot be meant.
    """

    B: int = 1
    H: int = 4
    N: int = 512
    d: int = 64
    Hkv: int = None  # type: ignore[assignment]  # None at construction means H
    Nkv: int = None  # type: ignore[assignment]  # None at construction means N
    dtype: str = "fp16"
    causal: str | bool = "none"
    softmax_scale: float | None = None
    seed: int = 0
    distribution: str = "randn"
    dropout_p: float = 0.0
    window_left: int | None = None
    window_right: int | None = None
    softcap: float | None = None
    dv: int = None  # type: ignore[assignment]  # None at construction means d
    layout: str = "bhnd"

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - a frozen dataclass sets its fields once
        for name in ("B", "H", "N", "seed"):
            put(name, _size(name, getattr(self, name), 0))
        put("d", _size("d", self.d, 1))
        put("dv", self.d if self.dv is None else _size("dv", self.dv, 1))
        put("Hkv", self.H if self.Hkv is None else _size("Hkv", self.Hkv, 0))
        put("Nkv", self.N if self.Nkv is None else _size("Nkv", self.Nkv, 0))
        if self.H % self.Hkv if self.Hkv else self.H:
            raise UsageError(
                f"problem.H={self.H} query heads cannot share problem.Hkv={self.Hkv} key/value heads: H must be a multiple of Hkv"
            )
        put("dtype", _choice("dtype", self.dtype, tuple(DTYPES)))
        if isinstance(self.causal, bool):
            put("causal", "bottom_right" if self.causal else "none")
        put("causal", _choice("causal", self.causal, CAUSAL))
        put("layout", _choice("layout", self.layout, LAYOUTS))
        put("distribution", _choice("distribution", self.distribution, tuple(DISTRIBUTIONS)))
        for name in ("window_left", "window_right"):
            put(name, _window(name, getattr(self, name)))
        if self.softmax_scale is not None:
            put("softmax_scale", _finite("softmax_scale", self.softmax_scale, "give one, or null for 1/sqrt(d)"))
        put("softcap", self._softcap())
        self._check_dropout()

    def _softcap(self) -> float | None:
        value = 0.0 if self.softcap is None else _finite("softcap", self.softcap, "give one above 0, or null for none")
        if value and not SOFTCAP_RANGE[0] <= value <= SOFTCAP_RANGE[1]:
            raise UsageError(f"problem.softcap={value} is out of range: give one from 1e-9 to 1e9, such as 30, or null for none")
        return value or None

    def _check_dropout(self) -> None:
        p = self.dropout_p
        if isinstance(p, bool) or not isinstance(p, (int, float, np.floating)) or not 0 <= p < 1:
            raise UsageError(f"problem.dropout_p={p!r} is not a probability below 1: give one, or 0 for no dropout")
        object.__setattr__(self, "dropout_p", float(p))

    # -- sizes ------------------------------------------------------------------------------------------------------------
    @property
    def scale(self) -> float:
        """The factor on Q.K: softmax_scale, or 1/sqrt(d) when that is None."""
        return 1.0 / math.sqrt(self.d) if self.softmax_scale is None else self.softmax_scale

    @property
    def itemsize(self) -> int:
        """Bytes of one element of Q, K, V and O."""
        return self.numpy_dtype.itemsize

    @property
    def numpy_dtype(self) -> np.dtype:
        """NumPy type that stores Q, K, V and O (uint16 bit patterns for bf16)."""
        return DTYPES[self.dtype]

    @property
    def shape_q(self) -> tuple[int, int, int, int]:
        """Shape of Q."""
        return (self.B, self.H, self.N, self.d)

    @property
    def shape_k(self) -> tuple[int, int, int, int]:
        """Shape of K."""
        return (self.B, self.Hkv, self.Nkv, self.d)

    @property
    def shape_v(self) -> tuple[int, int, int, int]:
        """Shape of V."""
        return (self.B, self.Hkv, self.Nkv, self.dv)

    @property
    def shape_o(self) -> tuple[int, int, int, int]:
        """Shape of O."""
        return (self.B, self.H, self.N, self.dv)

    @property
    def stored_shape_o(self) -> tuple[int, ...]:
        """Shape of O as it lies in memory: what a device allocates."""
        B, H, N, dv = self.shape_o
        return self.shape_o if self.layout == "bhnd" else (B, N, H, dv)

    def stored(self, x: NDArray) -> NDArray:
        """Q, K, V or O [B, heads, rows, d] as its axes lie in memory, or back: a view, [B, rows, heads, d] with layout=bnhd."""
        return x if self.layout == "bhnd" else x.swapaxes(1, 2)

    @property
    def shape_lse(self) -> tuple[int, int, int]:
        """Shape of LSE (float32)."""
        return (self.B, self.H, self.N)

    @property
    def needs_no_launch(self) -> bool:
        """True when the result is known without a kernel: no output row, or no key."""
        return 0 in (self.B, self.H, self.N, self.Nkv)

    @property
    def masked(self) -> bool:
        """True when the problem names a mask, causal or window, even one that hides nothing."""
        return self.causal != "none" or self.window_left is not None or self.window_right is not None

    # -- work and bytes -----------------------------------------------------------------------------------------------
    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Most keys that a row sees left and right of the diagonal; None: no limit there."""
        return self.window_left, self.window_right if self.causal == "none" else 0

    def _offsets(self) -> tuple[int | None, int | None]:
        """What clipped to 0 .. Nkv is begin(0) and end(0), and grows by one with each row; None: no limit there."""
        diagonal = 0 if self.causal == "top_left" else self.Nkv - self.N
        left, right = self.limits
        return None if left is None else diagonal - left, None if right is None else diagonal + right + 1

    def visible(self, rows: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """int64 each: row i sees the keys begin[i] .. end[i]-1, none when they are equal. Neither falls from row to row.

        [N] each, or for `rows` alone: what a problem of a billion rows is asked for.
        """
        low, high = self._offsets()
        i = np.arange(self.N, dtype=np.int64) if rows is None else rows
        begin = np.zeros(len(i), np.int64) if low is None else np.clip(i + low, 0, self.Nkv)
        end = np.full(len(i), self.Nkv, np.int64) if high is None else np.clip(i + high, 0, self.Nkv)
        return begin, end

    def visible_keys(self) -> NDArray[np.int64]:
        """[N] int64: how many keys row i sees."""
        begin, end = self.visible()
        return end - begin

    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head that the mask leaves. Exact for any sizes; nothing of length N is made."""
        low, high = self._offsets()
        hidden = 0 if low is None else _clipped_sum(low, self.N, self.Nkv)
        return (self.N * self.Nkv if high is None else _clipped_sum(high, self.N, self.Nkv)) - hidden

    def flops(self) -> int:
        """Nominal FLOPs, 2 per multiply-add of Q K^T and P V over the visible pairs: 2*B*H*(d + dv)*visible_pairs."""
        return 2 * self.B * self.H * (self.d + self.dv) * self.visible_pairs()

    def ideal_bytes(self) -> int:
        """HBM bytes when Q, K, V are read once and O is written once (4*B*H*N*d elements when Hkv=H, Nkv=N and dv=d)."""
        return sum(map(math.prod, (self.shape_q, self.shape_k, self.shape_v, self.shape_o))) * self.itemsize


def _clipped_sum(first: int, count: int, top: int) -> int:
    """Sum of first, first + 1, ... (`count` terms), each clipped to 0 .. top."""
    below = min(max(-first, 0), count)
    rising = min(max(top - first, 0), count) - below
    return rising * (2 * (first + below) + rising - 1) // 2 + (count - below - rising) * top


def round_to(x: NDArray[np.floating], dtype: str) -> NDArray:
    """`x` rounded (to nearest, ties to even) to the storage type `dtype`, in the NumPy type that holds it (DTYPES)."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bf16":
            return x.astype(DTYPES[dtype])
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def to_f64(x: NDArray, dtype: str) -> NDArray[np.float64]:
    """The numbers that the array `x` of storage type `dtype` stands for, as float64 (exact)."""
    numbers = (x.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype == "bf16" else x
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return numbers.astype(np.float64)


def make_inputs(problem: Problem) -> dict[str, NDArray]:
    """Q [B,H,N,d], K [B,Hkv,Nkv,d], V [B,Hkv,Nkv,dv] in the problem's storage type, C-contiguous, a function of the problem alone.

    The numbers do not depend on the layout.
    """
    shapes = {"Q": problem.shape_q, "K": problem.shape_k, "V": problem.shape_v}
    draw = DISTRIBUTIONS[problem.distribution]
    return {
        name: round_to(draw(np.random.default_rng([problem.seed, index]), shape), problem.dtype)
        for index, (name, shape) in enumerate(shapes.items())
    }
