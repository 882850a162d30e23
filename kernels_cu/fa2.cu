// (1) FlashAttention-2, forward: a CTA keeps one query tile and its O in registers while all K and V tiles stream past.
//
// (2) Changed since fa1_qout: O stays unnormalised until one division at the end. A step multiplies O by alpha and P V by nothing, divides
//     nothing, and needs one factor exp(m - m') per row instead of two. The bytes are those of fa1_qout.
//
// (3) Math (Algorithm 1 of arXiv 2307.08691, without the inverse that its line 10 prints on the rescale factor). Query tile i:
//       m = -inf, l = 0, O = 0
//       for each key tile j that some row of the tile sees:
//         S     = softmax_scale Q_i K_j^T             (then the score modification; hidden keys: -inf)
//         m'    = max(m, rowmax S)
//         alpha = exp(m - m')
//         P     = exp(S - m')
//         l     = alpha l + rowsum P
//         O     = alpha O + P V_j
//       O = O / l,   LSE = m + ln l
//
// (4) Who owns what: CTA = query tile i of (b, h), blockIdx.x = (b*H + h)*Tr + i, with 4 Br threads. A warp owns 8 rows, a lane the
//     columns L, L + 32, ... of S and O, and m and l of row L % 8 (picture in rf_patch.cuh).
//
// (5) HBM bytes (w bytes per element; query tile i meets the key tiles s(i) .. n(i)-1: 0 .. Tc-1 without a mask, s(i) = n(i) = 0 if none):
//       Q   read  = B*H*N*d*w
//       K   read  = B*H*d*w * sum(min(Bc*n(i), Nkv) - Bc*s(i) for i in range(Tr))     without a mask: B*H*Tr*Nkv*d*w
//       V   read  = B*H*dv*w * sum(min(Bc*n(i), Nkv) - Bc*s(i) for i in range(Tr))
//       O   write = B*H*N*dv*w
//       LSE write = B*H*N*4
//
// (6) SMEM bytes (Bp = Bc rounded up to 32), all float: Q, K transposed, V, P:
//       fa2 smem  = 4 * (Br*d + d*(Bp + 2) + Bc*dv + Br*Bp)
//
// (7) Numerics: fp32 from SMEM on, whatever HBM holds. A row that sees no key, or only scores of -inf: O = 0, LSE = -inf. NaN in
//     a visible key or in the query: NaN in that row's O and LSE. What a hidden key or value holds reaches nothing.
//
// (8) Needs: d and dv multiples of 8 up to 256; Br and Bc multiples of 16 up to 128; H a multiple of Hkv; N, Nkv >= 1; contiguous rows.
#include "rf_products.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, Br = RF_BR, Bc = RF_BC, ROWS = rf::ROWS, THREADS = Br / ROWS * rf::LANES;
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 128, "Br and Bc must be multiples of 16 up to 128");

constexpr int Q_FLOATS = Br * d, K_FLOATS = d * rf::transposed_pitch<Bc>, V_FLOATS = Bc * dv, P_FLOATS = Br * rf::padded<Bc>;
static_assert(4 * (Q_FLOATS + K_FLOATS + V_FLOATS + P_FLOATS) == RF_FA2_SMEM, "the launch plan states another amount of shared memory");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
fa2(const T* __restrict__ Q,  // [B, H, N, d]
    const T* __restrict__ K,  // [B, Hkv, Nkv, d]
    const T* __restrict__ V,  // [B, Hkv, Nkv, dv]
    T* __restrict__ O,        // [B, H, N, dv]
    float* __restrict__ LSE,  // [B, H, N]
    const int H, const int Hkv, const int N, const int Nkv, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const unsigned Tr = rf::ceil_div(N, Br), bh = blockIdx.x / Tr;       // b*H + h
    const int i = blockIdx.x % Tr, lane = rf::lane_index();
    const int patch = rf::warp_index() * ROWS, row0 = i * Br + patch;   // this warp's first row: in the tile, in the head
    const size_t q_row = static_cast<size_t>(bh) * N;  // of LSE
    const unsigned kv = rf::kv_head(bh, H, Hkv);
    const auto Q_rows = rf::head_rows<d>(Q, bh, H, N), K_rows = rf::head_rows<d>(K, kv, Hkv, Nkv);
    const auto V_rows = rf::head_rows<dv>(V, kv, Hkv, Nkv);
    const auto O_rows = rf::head_rows<dv>(O, bh, H, N);
    const rf::Mask mask{N, Nkv};
    const rf::Score score{static_cast<int>(bh % H)};

    // -- SMEM --------------------------------------------------------------------------------------------------------------
    extern __shared__ __align__(16) float smem[];
    float* const Q_smem = smem;               // [Br][d]
    float* const K_smem = Q_smem + Q_FLOATS;  // [d][Bp + 2], transposed
    float* const V_smem = K_smem + K_FLOATS;  // [Bc][dv]
    float* const P_smem = V_smem + V_FLOATS;  // [Br][Bp]

    // -- state -------------------------------------------------------------------------------------------------------------
    float O_reg[ROWS][rf::slots<dv>] = {};
    float m = rf::negative_infinity(), l = 0.0f;

    // -- Q_i: HBM -> SMEM --------------------------------------------------------------------------------------------------
    rf::load_tile<Br, THREADS>(Q_smem, Q_rows.from(i * Br), min(Br, N - i * Br));

    const rf::Keys keys = mask.tiles(i * Br, min(i * Br + Br, N) - 1, Bc);  // that some row of the tile sees
    for (int key0 = keys.begin; key0 < keys.end; key0 += Bc) {
        // -- K_j, V_j: HBM -> SMEM -----------------------------------------------------------------------------------------
        __syncthreads();  // so that no warp still reads the tiles that are about to be overwritten
        rf::load_tile_transposed<Bc, THREADS>(K_smem, K_rows.from(key0), min(Bc, Nkv - key0));
        rf::load_tile<Bc, THREADS>(V_smem, V_rows.from(key0), min(Bc, Nkv - key0));
        __syncthreads();  // so that every warp sees the whole Q_i, K_j and V_j

        const rf::Visible visible{mask, row0, key0, Bc};
        if (row0 >= N || !visible.any(ROWS)) continue;  // no row of this warp sees a key of this tile

        // -- S = softmax_scale Q_i K_j^T -----------------------------------------------------------------------------------
        float S[ROWS][rf::slots<Bc>];
        rf::product_QK<d, Bc>(S, Q_smem + patch * d, K_smem);
        rf::finish_scores(S, softmax_scale, score, visible);

        // -- m' = max(m, rowmax S), alpha = exp(m - m') --------------------------------------------------------------------
        const float m_new = fmaxf(m, rf::reduce_patch(S, rf::Max{}));
        const float m_safe = rf::finite_or_zero(m_new);
        const float alpha = rf::exp_fast(m - m_safe);
        m = m_new;

        // -- P = exp(S - m'), O = alpha O ----------------------------------------------------------------------------------
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float m_row = rf::from_lane(m_safe, r), alpha_row = rf::from_lane(alpha, r);
#pragma unroll
            for (int c = 0; c < rf::slots<Bc>; ++c) S[r][c] = rf::exp_fast(S[r][c] - m_row);
#pragma unroll
            for (int c = 0; c < rf::slots<dv>; ++c) O_reg[r][c] = __fmul_rn(O_reg[r][c], alpha_row);  // [rescale]
        }

        // -- l = alpha l + rowsum P ----------------------------------------------------------------------------------------
        l = __fmul_rn(l, alpha);  // [rescale]
        l += rf::reduce_patch(S, rf::Sum{});

        // -- O = O + P V_j -------------------------------------------------------------------------------------------------
        rf::store_P(P_smem + patch * rf::padded<Bc>, S);
        __syncwarp();  // so that every lane sees the P of the warp's rows
        rf::add_product_PV<dv, Bc>(O_reg, P_smem + patch * rf::padded<Bc>, V_smem, visible);
    }

    // -- O = O / l, LSE = m + ln l: registers -> HBM -----------------------------------------------------------------------
    const float inverse_l = rf::inverse_or_zero(l);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float inverse_l_row = rf::from_lane(inverse_l, r);
#pragma unroll
        for (int c = 0; c < rf::slots<dv>; ++c) O_reg[r][c] *= inverse_l_row;
        if (row0 + r < N) rf::store_row(O_rows[row0 + r], O_reg[r], dv);
    }
    if (lane < ROWS && row0 + lane < N) LSE[q_row + row0 + lane] = rf::log_sum_exp(m, l);
}
