// The two matrix products of attention on one warp's patch (rf_patch.cuh), in fp32 FMA.
//
// The left operand (Q or P) is the same for all lanes: one 16-byte broadcast feeds 4 steps of the sum. The right operand (K
// transposed, or V) is read by 32 neighbouring lanes from 32 neighbouring words. Neither has bank conflicts. Four steps cost 8 + 4 C
// shared loads for 32 C FMAs (C slots per lane).
#pragma once
#include "rf_patch.cuh"

namespace rf {

/// x = p[0..3], 16-byte aligned. One number of 128 bits is one load. A float4 is four to the compiler, which joins them and their
/// neighbours again, but not always in the same way: one source would make different PTX, and other counts, each time.
__device__ __forceinline__ void broadcast4(float (&x)[4], const float* p) {
    const unsigned __int128 y = *reinterpret_cast<const unsigned __int128*>(p);
#pragma unroll
    for (int e = 0; e < 4; ++e) x[e] = __uint_as_float(static_cast<unsigned>(y >> (32 * e)));
}

/// S[r][c] = sum_k Q_smem[r][k] K_smem[k][key of slot c].  Q_smem: the warp's first row, pitch D.  K_smem: transposed tile.
template <int D, int BC>
__device__ __forceinline__ void product_QK(float (&S)[ROWS][slots<BC>], const float* Q_smem, const float* K_smem) {
    constexpr int pitch = transposed_pitch<BC>;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < slots<BC>; ++c) S[r][c] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < D; k += 4) {
        float Q_reg[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) broadcast4(Q_reg[r], Q_smem + r * D + k);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
            for (int c = 0; c < slots<BC>; ++c) {
                const float K_reg = K_smem[(k + e) * pitch + lane_index() + LANES * c];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) S[r][c] = fmaf(Q_reg[r][e], K_reg, S[r][c]);
            }
    }
}

/// O[r][c] += sum over the keys that row r sees of P_smem[r][key] V_smem[key][column of slot c].
///
/// P_smem: the warp's first row, pitch padded<BC>.  V_smem: pitch D.  Keys that only some rows see are taken one at a time and
/// selected, because V of a hidden key may be NaN and 0 * NaN is NaN; rows of V that no row sees are not read.
template <int D, int BC, class Rows>
__device__ __forceinline__ void add_product_PV(float (&O)[ROWS][slots<D>], const float* P_smem, const float* V_smem, const VisibleTo<Rows>& visible) {
    constexpr int pitch = padded<BC>;
    const auto add_selected = [&](int key, int end) {
#pragma unroll 1
        for (; key < end; ++key) {
#pragma unroll
            for (int c = 0; c < slots<D>; ++c) {
                const float V_reg = V_smem[key * D + column<D>(c)];
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    if (key >= visible.begin(r) && key < visible.end(r)) O[r][c] = fmaf(P_smem[r * pitch + key], V_reg, O[r][c]);
            }
        }
    };
    int key = 0;
    if constexpr (Mask::CUTS_BEGIN) {
        key = min((visible.begin(ROWS - 1) + 3) / 4 * 4, visible.end(ROWS - 1));
        add_selected(visible.begin(0), key);  // the first row sees these
    }
#pragma unroll 1
    for (; key + 4 <= visible.end(0); key += 4) {  // all rows see these
        float P_reg[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) broadcast4(P_reg[r], P_smem + r * pitch + key);
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
            for (int c = 0; c < slots<D>; ++c) {
                const float V_reg = V_smem[(key + e) * D + column<D>(c)];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) O[r][c] = fmaf(P_reg[r][e], V_reg, O[r][c]);
            }
    }
    add_selected(key, visible.end(ROWS - 1));  // the last row sees these
}

}  // namespace rf
