// Values of V that are NaN or infinite, in key tiles that some rows of the query tile see only in part.
//
// Tensor cores multiply whole tiles: a hidden key has P = 0, and 0 * NaN would reach every row. So such a tile loses its wild values
// (they become 0) before the product, and the rows that do see them get them at the very end, when O lies in SMEM: O + NaN and
// O + inf are what a sum with a wild term is. That pass is slow and reads V again from HBM, but it runs only if there was a wild value.
#pragma once
#include "rf_mask.cuh"
#include "rf_swizzle.cuh"

namespace rf {

/// Bits 15 and 31: is the lower, the upper half NaN or infinite? Its exponent is all ones, so that adding one carries into the sign.
template <class T>
__device__ __forceinline__ unsigned wild_halves(unsigned x) {
    constexpr unsigned EXPONENT = is_fp16<T> ? 0x7c007c00u : 0x7f807f80u, ONE = is_fp16<T> ? 0x04000400u : 0x00800080u;
    return (x & EXPONENT) + ONE & 0x80008000u;
}

/// Wild values of a tile become 0; true if this thread met one. Every thread looks at the chunks that it has stored itself.
template <class T, int ROWS, int d, int THREADS>
__device__ __forceinline__ bool clear_wild(uint4* X_smem, int thread) {
    using Lies = Swizzle<round_up(d, 16)>;
    bool met = false;
#pragma unroll 1
    for (int chunk = thread; chunk < ROWS * Lies::CHUNKS; chunk += THREADS) {
        uint4& at = X_smem[Lies::position(chunk / Lies::CHUNKS, chunk % Lies::CHUNKS)];
        uint4 x = at;
        const unsigned wild = wild_halves<T>(x.x) | wild_halves<T>(x.y) | wild_halves<T>(x.z) | wild_halves<T>(x.w);
        if (wild == 0) continue;
        const auto tame = [](unsigned y) { return y & ~((wild_halves<T>(y) >> 15) * 0xffffu); };
        at = make_uint4(tame(x.x), tame(x.y), tame(x.z), tame(x.w));
        met = true;
    }
    return met;
}

/// Adds to each row of a warp's O the wild V of the keys of a tile that it sees. V: the tile's rows in HBM.
template <class T, int d>
__device__ __forceinline__ void add_wild(uint4* O_smem, const Rows<const T, d>& V, const Visible& visible) {
    using Lies = Swizzle<round_up(d, 16)>;
    T* const O = reinterpret_cast<T*>(O_smem);
#pragma unroll 1
    for (int row = 0; row < PATCH_ROWS; ++row) {
#pragma unroll 1
        for (int col = lane_index(); col < d; col += LANES) {
            T& at = O[Lies::position(row, col / CHUNK) * CHUNK + col % CHUNK];
            float sum = to_float(at);
#pragma unroll 1
            for (int key = visible.begin(row); key < visible.end(row); ++key) {
                const T v = V[key][col];
                if (wild_halves<T>(v.bits)) sum += to_float(v);
            }
            at = from_float<T>(sum);
        }
    }
}

}  // namespace rf
