// (1) Online softmax attention, one query row at a time: the row streams K and V; nothing of size N x N exists.
//
// (2) Changed since naive: the three kernels are fused by the recurrence of the running maximum, so S and P never reach HBM. But nothing is
//     shared between rows: every query row reads all of K and V for itself, N times Nkv*d elements instead of Tr times.
//
// (3) Math (online softmax of arXiv 1805.02867, with O carried along). For each query row, for each group j of 32 keys:
//       s     = softmax_scale q . k                   (then the score modification; hidden keys: -inf)
//       m'    = max(m, max s)
//       alpha = exp(m - m')
//       p     = exp(s - m')
//       l     = alpha l + sum p
//       O     = alpha O + sum p v
//     O = O / l,   LSE = m + ln l
//
// (4) Who owns what: warp = query row, 8 rows per CTA of 256 threads, row = blockIdx.x * 8 + warp, counted through all heads. A lane owns
//     the columns L, L + 32, ... of q and O, and key L of a group of 32.
//
// (5) HBM bytes (w bytes per element; pairs = visible (query, key) pairs of one head, N*Nkv without a mask):
//       Q   read  = B*H*N*d*w
//       K   read  = B*H*pairs*d*w
//       V   read  = B*H*pairs*dv*w
//       O   write = B*H*N*dv*w
//       LSE write = B*H*N*4
//
// (6) SMEM bytes:
//       online smem = 0
//
// (7) Numerics: fp32 in registers, whatever HBM holds. A row that sees no key, or only scores of -inf: O = 0, LSE = -inf. NaN in
//     a visible key or in the query: NaN in that row's O and LSE. Hidden keys and values are not read.
//
// (8) Needs: d and dv multiples of 8 up to 256; H a multiple of Hkv; N, Nkv >= 1; contiguous rows. Br and Bc play no part.
#include "rf_patch.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, WARPS = 8, THREADS = WARPS * rf::LANES;
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
online(const T* __restrict__ Q,  // [B, H, N, d]
       const T* __restrict__ K,  // [B, Hkv, Nkv, d]
       const T* __restrict__ V,  // [B, Hkv, Nkv, dv]
       T* __restrict__ O,        // [B, H, N, dv]
       float* __restrict__ LSE,  // [B, H, N]
       const int B, const int H, const int Hkv, const int N, const int Nkv, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const int lane = rf::lane_index();
    const size_t row = static_cast<size_t>(blockIdx.x) * WARPS + rf::warp_index();  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    const unsigned bh = row / N;
    const int i = row - static_cast<size_t>(bh) * N;
    const unsigned kv = rf::kv_head(bh, H, Hkv);
    const auto Q_rows = rf::head_rows<d>(Q, bh, H, N), K_rows = rf::head_rows<d>(K, kv, Hkv, Nkv);
    const auto V_rows = rf::head_rows<dv>(V, kv, Hkv, Nkv);
    const auto O_rows = rf::head_rows<dv>(O, bh, H, N);

    // -- state -------------------------------------------------------------------------------------------------------------
    float q[rf::slots<d>], O_reg[rf::slots<dv>] = {};
    float m = rf::negative_infinity(), l = 0.0f;

    // -- q: HBM -> registers -----------------------------------------------------------------------------------------------
    rf::load_row(q, Q_rows[i], d);

    const rf::Mask mask{N, Nkv};
    const rf::Score score{static_cast<int>(bh % H)};
    const int end = mask.end(i);
    for (int key0 = mask.begin(i); key0 < end; key0 += rf::LANES) {
        const int group = min(rf::LANES, end - key0);
        const auto K_group = K_rows.from(key0);
        const auto V_group = V_rows.from(key0);

        // -- s = softmax_scale q . k, K: HBM -> registers ------------------------------------------------------------------
        float s = rf::negative_infinity();
#pragma unroll 4
        for (int key = 0; key < group; ++key) {
            float k[rf::slots<d>], dot = 0.0f;
            rf::load_row(k, K_group[key], d);
#pragma unroll
            for (int c = 0; c < rf::slots<d>; ++c) dot = fmaf(q[c], k[c], dot);
            dot = rf::warp_reduce(dot, rf::Sum{});
            if (lane == key) s = score(dot * softmax_scale, i, key0 + key);
        }

        // -- m' = max(m, max s), alpha = exp(m - m') -----------------------------------------------------------------------
        const float m_new = fmaxf(m, rf::warp_reduce(s, rf::Max{}));
        const float m_safe = rf::finite_or_zero(m_new);
        const float alpha = rf::exp_fast(m - m_safe);
        m = m_new;

        // -- p = exp(s - m'), l = alpha l + sum p --------------------------------------------------------------------------
        const float p = rf::exp_fast(s - m_safe);
        l = __fmul_rn(l, alpha);  // [rescale]
        l += rf::warp_reduce(p, rf::Sum{});

        // -- O = alpha O + sum p v, V: HBM -> registers --------------------------------------------------------------------
#pragma unroll
        for (int c = 0; c < rf::slots<dv>; ++c) O_reg[c] = __fmul_rn(O_reg[c], alpha);  // [rescale]
#pragma unroll 4
        for (int key = 0; key < group; ++key) {
            const float p_key = rf::from_lane(p, key);
            float v[rf::slots<dv>];
            rf::load_row(v, V_group[key], dv);
#pragma unroll
            for (int c = 0; c < rf::slots<dv>; ++c) O_reg[c] = fmaf(p_key, v[c], O_reg[c]);
        }
    }

    // -- O = O / l, LSE = m + ln l: registers -> HBM -----------------------------------------------------------------------
    const float inverse_l = rf::inverse_or_zero(l);
#pragma unroll
    for (int c = 0; c < rf::slots<dv>; ++c) O_reg[c] *= inverse_l;
    rf::store_row(O_rows[i], O_reg, dv);
    if (lane == 0) LSE[row] = rf::log_sum_exp(m, l);
}
