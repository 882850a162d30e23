// Which keys a query row sees. Every rung asks here, so that a mask is written once.
//
// A hidden key is always *selected* away, never added or multiplied away: -inf + NaN and 0 * NaN are NaN.
#pragma once

namespace rf {

/// none: all keys.  bottom_right: key j <= i + Nkv - N.  top_left: key j <= i.
enum class Causal { none, bottom_right, top_left };

/// Row i sees exactly the keys 0 .. visible_end-1; 0: it sees none.
template <Causal CAUSAL>
__device__ __forceinline__ int visible_end(int i, int N, int Nkv) {
    if constexpr (CAUSAL == Causal::none) return Nkv;
    const int end = CAUSAL == Causal::bottom_right ? Nkv + (i + 1 - N) : i + 1;
    return max(0, min(end, Nkv));
}

/// The same for a patch of rows against a tile of keys: row row0 + r sees the tile's keys 0 .. (*this)(r)-1; <= 0: none.
///
/// Grows with r or stays, so that all rows see the keys below (0), and no row of R rows sees those from (R - 1) on.
template <Causal CAUSAL>
struct Visible {
    int first, limit;

    __device__ __forceinline__ Visible(int row0, int key0, int Bc, int N, int Nkv)
        : first((CAUSAL == Causal::bottom_right ? Nkv - N : 0) + row0 + 1 - key0), limit(min(Bc, Nkv - key0)) {}

    __device__ __forceinline__ int operator()(int r) const { return CAUSAL == Causal::none ? limit : min(first + r, limit); }
};

}  // namespace rf
