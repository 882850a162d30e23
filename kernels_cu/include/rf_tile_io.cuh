// Tiles on their way from HBM to SMEM, converted to float. Every element is loaded by exactly one thread of the CTA; rows past
// the end of the tensor become zeros, so that SMEM never holds what an earlier tile, or kernel, left there.
#pragma once
#include "rf_layout.cuh"
#include "rf_types.cuh"
#include "rf_warp.cuh"

namespace rf {

/// HBM -> SMEM as it lies: X_smem[row * D + col] = X[row][col], 0 for row >= valid. Call with all THREADS threads.
///
/// A thread moves 4 neighbours: a warp reads 512 (or 256) bytes without a gap and stores 512 without a bank conflict.
template <int ROWS, int THREADS, class T, int D>
__device__ __forceinline__ void load_tile(float* X_smem, const Rows<T, D>& X, int valid) {
    static_assert(D % 4 == 0, "a row is a whole number of 4-element chunks");
    float4* const to = reinterpret_cast<float4*>(X_smem);
    const auto from = [&](int chunk) { return ROWS_FOLLOW ? X.first + chunk * 4 : X[chunk / (D / 4)] + chunk % (D / 4) * 4; };
    if (valid >= ROWS && is_aligned4(X.first)) {  // a whole tile
#pragma unroll 4
        for (int chunk = threadIdx.x; chunk < ROWS * D / 4; chunk += THREADS) to[chunk] = load_vector4(from(chunk));
    } else {
#pragma unroll 1
        for (int chunk = threadIdx.x; chunk < ROWS * D / 4; chunk += THREADS)
            to[chunk] = chunk < valid * (D / 4) ? load4(from(chunk)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

/// Columns of a transposed tile of ROWS rows: whole warps of columns.
template <int ROWS>
constexpr int padded = round_up(ROWS, LANES);

/// Distance of two rows of a transposed tile. The 2 makes the stores conflict-free.
template <int ROWS>
constexpr int transposed_pitch = padded<ROWS> + 2;

__device__ __forceinline__ void store_column4(float* to, int pitch, float4 x) {
    to[0 * pitch] = x.x;
    to[1 * pitch] = x.y;
    to[2 * pitch] = x.z;
    to[3 * pitch] = x.w;
}

/// HBM -> SMEM transposed: X_smem[col * pitch + row] = X[row][col], 0 for valid <= row < padded<ROWS>.
///
/// A warp takes 8 rows x 16 columns: lane L reads the 4 columns 4 (L % 4) .. of row L / 4, so each row gives whole sectors (32 or
/// 64 bytes), and stores column e of its four to bank (4 (L % 4) + e) pitch + L / 4 = 8 (L % 4) + L / 4 + const: all 32 differ.
template <int ROWS, int THREADS, class T, int D>
__device__ __forceinline__ void load_tile_transposed(float* X_smem, const Rows<T, D>& X, int valid) {
    static_assert(D % 4 == 0, "a row is a whole number of 4-element chunks");
    constexpr int pitch = transposed_pitch<ROWS>, groups = ceil_div(D, 16), units = padded<ROWS> / 8 * groups;
    const int row = lane_index() / 4, col = lane_index() % 4 * 4;
    if (valid >= padded<ROWS> && is_aligned4(X.first) && D % 16 == 0) {  // a whole tile
#pragma unroll 4
        for (int unit = warp_index(); unit < units; unit += THREADS / LANES) {
            const int row0 = unit / groups * 8, col0 = unit % groups * 16;
            store_column4(X_smem + (col0 + col) * pitch + row0 + row, pitch, load_vector4(X[row0 + row] + col0 + col));
        }
    } else {
#pragma unroll 1
        for (int unit = warp_index(); unit < units; unit += THREADS / LANES) {
            const int r = unit / groups * 8 + row, c = unit % groups * 16 + col;
            if (c < D) store_column4(X_smem + c * pitch + r, pitch, r < valid ? load4(X[r] + c) : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
        }
    }
}

}  // namespace rf
