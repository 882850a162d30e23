// Strips: 16 rows of S, P and O as tensor cores leave them, one or more to a warp, and the two products of attention on them.
//
// X[n] are the four sums of the columns 8 n .. 8 n + 7 (picture in rf_mma_sm80.cuh): a lane holds parts of two rows, g and g + 8, and
// shares each with the three lanes of its quad. half(e) tells which of the two rows X[n][e] belongs to.
#pragma once
#include "rf_mask.cuh"
#include "rf_score.cuh"
#include "rf_softmax.cuh"
#include "rf_swizzle.cuh"

namespace rf {

/// Sums of 16 rows and `columns` columns.
template <int columns>
using Strip = Sums[columns / 8];

__device__ __forceinline__ int quad_row() { return lane_index() / 4; }     // g
__device__ __forceinline__ int quad_lane() { return lane_index() % 4; }    // t
__host__ __device__ constexpr int half(int e) { return e / 2; }

/// op over the quad, in each of its lanes.
template <class Op>
__device__ __forceinline__ float quad_reduce(float x, Op op) {
    x = op(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return op(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

/// x = -inf unless key < end: a selection, so that a NaN does not survive. Volatile, or the compiler would select in every tile.
__device__ __forceinline__ void hide_from(float& x, int key, int end) {
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, %2; selp.f32 %0, %0, 0fFF800000, p; }" : "+f"(x) : "r"(end), "r"(key));
}

/// x = -inf unless begin <= key.
__device__ __forceinline__ void hide_before(float& x, int key, int begin) {
    asm volatile("{ .reg .pred p; setp.le.s32 p, %1, %2; selp.f32 %0, %0, 0fFF800000, p; }" : "+f"(x) : "r"(begin), "r"(key));
}

/// S = -inf for hidden keys.
template <int N8>
__device__ __forceinline__ void hide(Sums (&S)[N8], const Visible& visible) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int row = quad_row() + 8 * half(e), key = 2 * quad_lane() + e % 2, end = visible.end(row) - key;
#pragma unroll
        for (int n = 0; n < N8; ++n) {
            hide_from(S[n][e], 8 * n, end);
            if constexpr (Mask::CUTS_BEGIN) hide_before(S[n][e], 8 * n, visible.begin(row) - key);
        }
    }
}

/// The factor that S still lacks after modify, which folds into the base of the powers: softmax_scale, unless S has it already.
__device__ __forceinline__ float folded(float scale) { return Score::IDENTITY ? scale : 1.0f; }

/// S = score(scale S); nothing when scores stay as they are.
template <int N8>
__device__ __forceinline__ void modify(Sums (&S)[N8], float scale, const Score& score, const Visible& visible) {
    if constexpr (Score::IDENTITY) return;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int row = visible.row(quad_row() + 8 * half(e)), key = visible.key0 + 2 * quad_lane() + e % 2;
#pragma unroll
        for (int n = 0; n < N8; ++n) S[n][e] = score(scale * S[n][e], row, key + 8 * n);
    }
}

/// Maximum of row g + 8 h of S.
template <int N8>
__device__ __forceinline__ float row_max(const Sums (&S)[N8], int h) {
    float left = S[0][2 * h], right = S[0][2 * h + 1];
#pragma unroll
    for (int n = 1; n < N8; ++n) left = fmaxf(left, S[n][2 * h]), right = fmaxf(right, S[n][2 * h + 1]);
    return quad_reduce(fmaxf(left, right), Max{});
}

/// S = Q K^T of several strips, which share each patch of K.  Q_patch(s, k) is the patch of Q of strip s at columns 16 k; K: a tile with
/// keys in rows.
template <class T, int D, int BC, int STRIPS, class QPatch>
__device__ __forceinline__ void product_QK(Sums (&S)[STRIPS][BC / 8], const QPatch& Q_patch, const Patches<D, Order::across>& K) {
#pragma unroll
    for (int s = 0; s < STRIPS; ++s)
#pragma unroll
        for (int n = 0; n < BC / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) S[s][n][e] = 0.0f;
    unrolled<D / 16>([&](auto k) {
        Patch Q_reg[STRIPS];
        unrolled<STRIPS>([&](auto s) { Q_reg[s] = Q_patch(s, k); });
        unrolled<BC / 16>([&](auto n) {
            const Patch K_reg = K.load(n, k);
#pragma unroll
            for (int s = 0; s < STRIPS; ++s) {
                mma<T>(S[s][2 * n], Q_reg[s], K_reg.reg[0], K_reg.reg[1], S[s][2 * n]);
                mma<T>(S[s][2 * n + 1], Q_reg[s], K_reg.reg[2], K_reg.reg[3], S[s][2 * n + 1]);
            }
        });
    });
}

/// O += P V of several strips, which share each patch of V.  P is rounded to T, two keys to a register, which makes each two of its
/// columns of sums the next left operand.
template <class T, int D, int BC, int STRIPS>
__device__ __forceinline__ void add_product_PV(Sums (&O)[STRIPS][D / 8], const Sums (&P)[STRIPS][BC / 8], const Patches<D, Order::down>& V) {
    unrolled<BC / 16>([&](auto k) {
        Patch P_reg[STRIPS];
#pragma unroll
        for (int s = 0; s < STRIPS; ++s)
#pragma unroll
            for (int x = 0; x < 4; ++x) P_reg[s].reg[x] = pack<T>(P[s][2 * k + x / 2][x % 2 * 2], P[s][2 * k + x / 2][x % 2 * 2 + 1]);
        unrolled<D / 16>([&](auto n) {
            const Patch V_reg = V.load_turned(k, n);
#pragma unroll
            for (int s = 0; s < STRIPS; ++s) {
                mma<T>(O[s][2 * n], P_reg[s], V_reg.reg[0], V_reg.reg[1], O[s][2 * n]);
                mma<T>(O[s][2 * n + 1], P_reg[s], V_reg.reg[2], V_reg.reg[3], O[s][2 * n + 1]);
            }
        });
    });
}

// The same for a single strip.
template <class T, int D, int BC, class QPatch>
__device__ __forceinline__ void product_QK(Sums (&S)[BC / 8], const QPatch& Q_patch, const Patches<D, Order::across>& K) {
    product_QK<T, D, BC>(reinterpret_cast<Sums(&)[1][BC / 8]>(S), [&](auto, auto k) { return Q_patch(k); }, K);
}

template <class T, int D, int BC>
__device__ __forceinline__ void add_product_PV(Sums (&O)[D / 8], const Sums (&P)[BC / 8], const Patches<D, Order::down>& V) {
    add_product_PV<T, D, BC>(reinterpret_cast<Sums(&)[1][D / 8]>(O), reinterpret_cast<const Sums(&)[1][BC / 8]>(P), V);
}

/// Every element of a warp's `chunks` chunks of Q in SMEM times `factor` (see multiply).
template <class T>
__device__ __forceinline__ void multiply_rows(uint4* Q_smem, int chunks, float factor) {
#pragma unroll 1
    for (int n = lane_index(); n < chunks; n += LANES) {
        const uint4 x = Q_smem[n];
        const Patch y = multiply<T>({{x.x, x.y, x.z, x.w}}, factor);
        Q_smem[n] = make_uint4(y.reg[0], y.reg[1], y.reg[2], y.reg[3]);
    }
}

/// O: registers -> SMEM, rounded to T, for store_tile.
template <class T, int D>
__device__ __forceinline__ void store_O(uint4* O_smem, const Sums (&O)[D / 8]) {
    unsigned* const words = reinterpret_cast<unsigned*>(O_smem);
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            words[Swizzle<D>::position(quad_row() + 8 * h, n) * 4 + quad_lane()] = pack<T>(O[n][2 * h], O[n][2 * h + 1]);
}

}  // namespace rf
