// Rows of the N x Nkv matrix in HBM, a warp for each: what an elementwise kernel does, 4 neighbours per lane where rows allow it.
#pragma once
#include "rf_types.cuh"
#include "rf_warp.cuh"

namespace rf {

/// Number of this warp among all warps of the grid.
__device__ __forceinline__ size_t warp_row() { return static_cast<size_t>(blockIdx.x) * (blockDim.x / LANES) + warp_index(); }

__device__ __forceinline__ void store_vector4(fp32* p, float4 x) { *reinterpret_cast<float4*>(p) = x; }

template <class Half>
__device__ __forceinline__ void store_vector4(Half* p, float4 x) {
    *reinterpret_cast<ushort4*>(p) =
        make_ushort4(from_float<Half>(x.x).bits, from_float<Half>(x.y).bits, from_float<Half>(x.z).bits, from_float<Half>(x.w).bits);
}

/// row[col] = f(row[col], col) for the n columns of a row: HBM -> registers -> HBM, in place.
template <class T, class F>
__device__ __forceinline__ void update_row(T* row, int n, const F& f) {
    if (n % 4 == 0 && is_aligned4(row)) {
        for (int col = 4 * lane_index(); col < n; col += 4 * LANES) {
            const float4 x = load_vector4(row + col);
            store_vector4(row + col, make_float4(f(x.x, col), f(x.y, col + 1), f(x.z, col + 2), f(x.w, col + 3)));
        }
    } else {
        for (int col = lane_index(); col < n; col += LANES) row[col] = from_float<T>(f(to_float(row[col]), col));
    }
}

}  // namespace rf
