// (1) FlashAttention, forward: K/V tiles outer, Q tiles inner; every step leaves a normalised O, with m and l, in HBM.
//
// (2) Changed since online: keys and queries come in tiles that SMEM holds, so a key tile is read from HBM once and serves all queries,
//     and a query tile serves Bc keys per pass. K and V fall from N passes to one; in exchange Q, O, m and l make Tc passes.
//
// (3) Math (Algorithm 1 of arXiv 2205.14135). For each key tile j, for each query tile i that sees a key of it (or j is the first tile):
//       S     = softmax_scale Q_i K_j^T               (then the score modification; hidden keys: -inf)
//       m~    = rowmax S,   P = exp(S - m~),   l~ = rowsum P
//       m'    = max(m, m~)
//       l'    = exp(m - m') l + exp(m~ - m') l~
//       O     = (l exp(m - m') O + exp(m~ - m') P V_j) / l'
//       m, l  = m', l'
//     LSE = m + ln l after the last tile. At its first tile O, l and m of i are 0, 0 and -inf without being read.
//
// (4) Who owns what: CTA = (b, h), blockIdx.x = b*H + h, with 4 Br threads; it loops over all tiles. A warp owns 8 rows of the query
//     tile, a lane the columns L, L + 32, ... of S and O, and m and l of row L % 8 (picture in rf_patch.cuh).
//
// (5) HBM bytes (w bytes per element; rows(i) = rows of query tile i; it meets the key tiles s(i) .. n(i)-1: 0 .. Tc-1 without a mask;
//     v(i) = n(i) - s(i), but at least 1):
//       Q   read  = B*H*d*w * sum(v(i)*rows(i) for i in range(Tr))            without a mask: B*H*Tc*N*d*w
//       K   read  = B*H*d*w * (min(Bc*max(n(i) for i in range(Tr)), Nkv) - Bc*s(0))      without a mask: B*H*Nkv*d*w
//       V   read  = B*H*dv*w * (min(Bc*max(n(i) for i in range(Tr)), Nkv) - Bc*s(0))
//       O   read  = B*H*dv*w * sum((v(i) - 1)*rows(i) for i in range(Tr))      without a mask: B*H*(Tc - 1)*N*dv*w
//       O   write = B*H*dv*w * sum(v(i)*rows(i) for i in range(Tr))            without a mask: B*H*Tc*N*dv*w
//       m   read  = B*H*4 * sum((v(i) - 1)*rows(i) for i in range(Tr))
//       m   write = B*H*4 * sum(v(i)*rows(i) for i in range(Tr))
//       l   read  = B*H*4 * sum((v(i) - 1)*rows(i) for i in range(Tr))
//       l   write = B*H*4 * sum(v(i)*rows(i) for i in range(Tr))
//       LSE write = B*H*N*4
//     Q, K, V and O together, N = Nkv, fp16, no mask: 2*B*H*N*d*(3*Tc + 1), the figure behind Figure 2 (middle) of the paper.
//
// (6) SMEM bytes (Bp = Bc rounded up to 32), all float: Q, K transposed, V, P:
//       fa1 smem  = 4 * (Br*d + d*(Bp + 2) + Bc*dv + Br*Bp)
//
// (7) Numerics: fp32 from SMEM on, but O is rounded to the storage type Tc times on its way through HBM. A row that sees no key, or
//     only scores of -inf: O = 0, LSE = -inf. NaN in a visible key or in the query: NaN in that row's O and LSE. What a hidden
//     key or value holds reaches nothing.
//
// (8) Needs: d and dv multiples of 8 up to 256; Br a multiple of 16 up to 128, Bc up to 512 (fewer passes; low Br then, SMEM must hold
//     K, V and P); H a multiple of Hkv; N, Nkv >= 1; contiguous rows.
#include "rf_products.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, Br = RF_BR, Bc = RF_BC, ROWS = rf::ROWS, THREADS = Br / ROWS * rf::LANES;
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 512, "Br and Bc must be multiples of 16 up to 128 and 512");

constexpr int Q_FLOATS = Br * d, K_FLOATS = d * rf::transposed_pitch<Bc>, V_FLOATS = Bc * dv, P_FLOATS = Br * rf::padded<Bc>;
static_assert(4 * (Q_FLOATS + K_FLOATS + V_FLOATS + P_FLOATS) == RF_FA1_SMEM, "the launch plan states another amount of shared memory");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
fa1(const T* __restrict__ Q,  // [B, H, N, d]
    const T* __restrict__ K,  // [B, Hkv, Nkv, d]
    const T* __restrict__ V,  // [B, Hkv, Nkv, dv]
    T* O,                     // [B, H, N, dv]
    float* __restrict__ LSE,  // [B, H, N]
    float* m_hbm,             // [B, H, N]
    float* l_hbm,             // [B, H, N]
    const int H, const int Hkv, const int N, const int Nkv, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const unsigned bh = blockIdx.x;                                      // b*H + h
    const int lane = rf::lane_index(), patch = rf::warp_index() * ROWS;  // this warp's first row in a tile
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

    const rf::Keys all_keys = mask.tiles(0, N - 1, Bc);  // that some row sees
    for (int key0 = all_keys.begin; key0 < all_keys.end; key0 += Bc) {
        // -- K_j, V_j: HBM -> SMEM -----------------------------------------------------------------------------------------
        __syncthreads();  // so that no warp still reads K_{j-1} and V_{j-1}
        rf::load_tile_transposed<Bc, THREADS>(K_smem, K_rows.from(key0), min(Bc, Nkv - key0));
        rf::load_tile<Bc, THREADS>(V_smem, V_rows.from(key0), min(Bc, Nkv - key0));

        for (int i0 = 0; i0 < N; i0 += Br) {
            rf::Keys keys = mask.tiles(i0, min(i0 + Br, N) - 1, Bc);                  // that some row of the tile sees
            if (keys.begin >= keys.end) keys = {all_keys.begin, all_keys.begin + 1};  // none: one step writes its O, m and l
            if (key0 < keys.begin || key0 >= keys.end) continue;                      // no row of the tile sees a key of this one
            const bool first = key0 == keys.begin;

            // -- Q_i: HBM -> SMEM ------------------------------------------------------------------------------------------
            __syncthreads();  // so that no warp still reads Q_{i-1}
            rf::load_tile<Br, THREADS>(Q_smem, Q_rows.from(i0), min(Br, N - i0));
            __syncthreads();  // so that every warp sees the whole Q_i, K_j and V_j

            const int row0 = i0 + patch;
            if (row0 >= N) continue;  // this warp has no row
            const rf::Visible visible{mask, row0, key0, Bc};
            const size_t my_row = q_row + row0 + lane;  // whose m and l this lane carries through HBM
            const bool has_row = lane < ROWS && row0 + lane < N;

            // -- S = softmax_scale Q_i K_j^T -------------------------------------------------------------------------------
            float S[ROWS][rf::slots<Bc>];
            rf::product_QK<d, Bc>(S, Q_smem + patch * d, K_smem);
            rf::finish_scores(S, softmax_scale, score, visible);

            // -- m~ = rowmax S, P = exp(S - m~), l~ = rowsum P -------------------------------------------------------------
            const float m_tile = rf::reduce_patch(S, rf::Max{});
            const float m_tile_safe = rf::finite_or_zero(m_tile);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float m_row = rf::from_lane(m_tile_safe, r);
#pragma unroll
                for (int c = 0; c < rf::slots<Bc>; ++c) S[r][c] = rf::exp_fast(S[r][c] - m_row);
            }
            const float l_tile = rf::reduce_patch(S, rf::Sum{});

            // -- m, l: HBM -> registers ------------------------------------------------------------------------------------
            float m = rf::negative_infinity(), l = 0.0f;
            if (!first && has_row) m = m_hbm[my_row], l = l_hbm[my_row];

            // -- m' = max(m, m~), l' = exp(m - m') l + exp(m~ - m') l~ -----------------------------------------------------
            const float m_new = fmaxf(m, m_tile);
            const float m_safe = rf::finite_or_zero(m_new);
            const float alpha = rf::exp_fast(m - m_safe), beta = rf::exp_fast(m_tile - m_safe);
            l = __fmul_rn(l, alpha);                        // [rescale]
            const float l_new = l + __fmul_rn(l_tile, beta);  // [rescale]
            if (has_row) m_hbm[my_row] = m_new, l_hbm[my_row] = l_new;  // registers -> HBM

            // -- O = (l exp(m - m') O + exp(m~ - m') P V_j) / l' -----------------------------------------------------------
            float O_reg[ROWS][rf::slots<dv>] = {};
            rf::store_P(P_smem + patch * rf::padded<Bc>, S);
            __syncwarp();  // so that every lane sees the P of the warp's rows
            rf::add_product_PV<dv, Bc>(O_reg, P_smem + patch * rf::padded<Bc>, V_smem, visible);
            const float inverse_l = rf::inverse_or_zero(l_new);
            const float old_weight = l * inverse_l, new_weight = beta * inverse_l;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float old_weight_row = rf::from_lane(old_weight, r), new_weight_row = rf::from_lane(new_weight, r);
                if (row0 + r >= N) continue;
                T* const O_row = O_rows[row0 + r];
                float O_old[rf::slots<dv>] = {};
                if (!first) rf::load_row(O_old, O_row, dv);  // HBM -> registers
#pragma unroll
                for (int c = 0; c < rf::slots<dv>; ++c) {
                    O_old[c] = __fmul_rn(O_old[c], old_weight_row);        // [rescale]
                    O_reg[r][c] = __fmul_rn(O_reg[r][c], new_weight_row);  // [rescale]
                    O_reg[r][c] += O_old[c];
                }
                rf::store_row(O_row, O_reg[r], dv);  // registers -> HBM
            }
            if (key0 + Bc >= keys.end && has_row) LSE[my_row] = rf::log_sum_exp(m_new, l_new);  // the tile's last step
        }
    }
}
