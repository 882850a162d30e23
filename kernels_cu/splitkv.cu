// (1) Split-KV (flash-decoding): the keys of a query tile are shared between CTAs, and a second kernel merges what they found.
//
// (2) Changed since fa2: few queries and many keys leave fa2 with fewer CTAs than the GPU has SMs. Here `splits` CTAs take a part of the keys
//     each, with (O, m, l) of a part in fp32 workspaces. The query heads of one kv head share a tile, so K and V are read once per kv head
//     and not once per query head.
//
// (3) Math (fa2 on each part; the merge is the online softmax with a part in the place of a key):
//       part s:  O_s, m_s, l_s over the keys of part s, undivided      a part in which the row sees no key: m_s = -inf, l_s = 0, no O_s
//       merge:   m = max m_s,   l = sum exp(m_s - m) l_s,   O = sum exp(m_s - m) O_s / l,   LSE = m + ln l
//     The merge takes parts 32 at a time, with the running m, l, O and alpha of every other rung. Parts from elsewhere, divided and with
//     LSE_s, are merged by the same kernel as (O_s, LSE_s, 1).
//
// (4) Who owns what: packed row p = i*G + h of a kv head is query i of its h-th query head, G = H / Hkv, so that what rows see grows with p.
//       splitkv        CTA = split s of packed tile t of (b, g), blockIdx.x = ((b*Hkv + g)*Tg + t)*splits + s, 4 Br threads as in fa2;
//                      the n key tiles that the tile meets are cut into parts = min(splits, n) runs, split s >= parts is empty
//       splitkv_merge  warp = row of O, row = blockIdx.x * 8 + warp; lane L holds m and l of parts L, L + 32, ... and columns L, L + 32, ...
//
// (5) HBM bytes (w bytes per element; tile t of Tg = ceil(G*N / Br) has rg(t) packed rows, meets kg(t) keys in whole key tiles, Nkv without a
//     mask, and has parts(t) splits that are not empty; live = pairs of a packed row and a split in which it sees a key, G*N*splits without
//     a mask. With 1 split, splitkv writes O and LSE itself and nothing is merged. Exact unless a row's scores in a split are all -inf):
//       Q        read  = B*Hkv*d*w * sum(rg(t)*parts(t) for t in range(Tg))
//       K        read  = B*Hkv*d*w * sum(kg(t) for t in range(Tg))               without a mask: B*Hkv*Tg*Nkv*d*w
//       V        read  = B*Hkv*dv*w * sum(kg(t) for t in range(Tg))
//       O_part   write = B*Hkv*live*dv*4 * (splits > 1)
//       O_part   read  = B*Hkv*live*dv*4 * (splits > 1)
//       ml_part  write = B*H*N*splits*8 * (splits > 1)
//       ml_part  read  = B*H*N*splits*8 * (splits > 1)
//       O        write = B*H*N*dv*w
//       LSE      write = B*H*N*4
//
// (6) SMEM bytes (Bp = Bc rounded up to 32), all float: Q, K transposed, V, P:
//       splitkv       smem = 4 * (Br*d + d*(Bp + 2) + Bc*dv + Br*Bp)
//       splitkv_merge smem = 0
//
// (7) Numerics: fp32 from SMEM to the merged O. Parts keep m and l apart, because fp32 loses 2^-24 |LSE_s| of LSE_s = m_s + ln l_s, and a
//     weight exp(LSE_s - m) as much of itself. A row that sees no key, or only scores of -inf, in a part or in all: weight 0, or O = 0,
//     LSE = -inf; its O_s is not read. NaN in a visible key or in the query: NaN in that row's O and LSE. What a hidden key or value
//     holds reaches nothing.
//
// (8) Needs: d and dv multiples of 8 up to 256; Br and Bc multiples of 16 up to 128; H a multiple of Hkv; N, Nkv >= 1; contiguous rows.
#include "rf_products.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, Br = RF_BR, Bc = RF_BC, ROWS = rf::ROWS, THREADS = Br / ROWS * rf::LANES;
constexpr bool MERGED = RF_MERGED;  // more than one split
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 128, "Br and Bc must be multiples of 16 up to 128");

constexpr int Q_FLOATS = Br * d, K_FLOATS = d * rf::transposed_pitch<Bc>, V_FLOATS = Bc * dv, P_FLOATS = Br * rf::padded<Bc>;
static_assert(4 * (Q_FLOATS + K_FLOATS + V_FLOATS + P_FLOATS) == RF_SPLITKV_SMEM, "the launch plan states another amount of shared memory");

template <bool PARTIAL>
struct Stored { using type = T; };
template <>
struct Stored<true> { using type = float; };

/// The rows of a patch of packed rows: which query each of them is, and in which of the G heads.
struct PackedRows {
    int query[ROWS], head[ROWS];

    __device__ __forceinline__ PackedRows(int p0, int G) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) query[r] = (p0 + r) / G, head[r] = (p0 + r) % G;
    }

    __device__ __forceinline__ int operator()(int r) const { return query[r]; }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
splitkv(const T* __restrict__ Q,                                // [B, H, N, d]
        const T* __restrict__ K,                                // [B, Hkv, Nkv, d]
        const T* __restrict__ V,                                // [B, Hkv, Nkv, dv]
        typename Stored<MERGED>::type* __restrict__ O_part,     // [splits, B, H, N, dv], O itself when there is one split
        float* __restrict__ ml_part,                            // [splits, B, H, N, 2]: m, l; LSE [B, H, N] when there is one split
        const int B, const int H, const int Hkv, const int N, const int Nkv, const int splits, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const int G = H / Hkv, rows = G * N, split = blockIdx.x % splits, lane = rf::lane_index();
    const unsigned Tg = rf::ceil_div(rows, Br), bg = blockIdx.x / splits / Tg;                       // b*Hkv + g
    const int i0 = blockIdx.x / splits % Tg * Br, patch = rf::warp_index() * ROWS, p0 = i0 + patch;  // packed rows
    const auto K_rows = rf::head_rows<d>(K, bg, Hkv, Nkv);
    const auto V_rows = rf::head_rows<dv>(V, bg, Hkv, Nkv);
    const auto head = [=](int p) { return bg * G + p % G; };                                         // b*H + h of a packed row
    const auto q_row = [=](int p) { return static_cast<size_t>(head(p)) * N + p / G; };              // its row of LSE and of a part
    const rf::Mask mask{N, Nkv};
    const PackedRows row(p0, G);
    const auto score_of = [&](int r) { return rf::Score{static_cast<int>(bg % Hkv * G) + row.head[r]}; };

    // -- SMEM --------------------------------------------------------------------------------------------------------------
    extern __shared__ __align__(16) float smem[];
    float* const Q_smem = smem;               // [Br][d]
    float* const K_smem = Q_smem + Q_FLOATS;  // [d][Bp + 2], transposed
    float* const V_smem = K_smem + K_FLOATS;  // [Bc][dv]
    float* const P_smem = V_smem + V_FLOATS;  // [Br][Bp]

    // -- state -------------------------------------------------------------------------------------------------------------
    float O_reg[ROWS][rf::slots<dv>] = {};
    float m = rf::negative_infinity(), l = 0.0f;

    // -- this split's keys -------------------------------------------------------------------------------------------------
    const rf::Keys keys = mask.tiles(i0 / G, (min(i0 + Br, rows) - 1) / G, Bc);  // that some row of the tile sees
    const int met = (keys.end - keys.begin + Bc - 1) / Bc, parts = min(splits, met);
    const auto cut = [=](int s) { return keys.begin + static_cast<int>(static_cast<long long>(met) * s / parts) * Bc; };
    const int begin = split < parts ? cut(split) : 0, end = split < parts ? cut(split + 1) : 0;

    // -- Q_i: HBM -> SMEM --------------------------------------------------------------------------------------------------
    if (begin < end)
        for (int chunk = threadIdx.x; chunk < Br * d / 4; chunk += THREADS) {
            const int p = i0 + chunk / (d / 4), col = chunk % (d / 4) * 4;
            reinterpret_cast<float4*>(Q_smem)[chunk] = p < rows ? rf::load4(rf::head_rows<d>(Q, head(p), H, N)[p / G] + col) : float4{};
        }

    for (int key0 = begin; key0 < end; key0 += Bc) {
        // -- K_j, V_j: HBM -> SMEM -----------------------------------------------------------------------------------------
        __syncthreads();  // so that no warp still reads the tiles that are about to be overwritten
        rf::load_tile_transposed<Bc, THREADS>(K_smem, K_rows.from(key0), min(Bc, Nkv - key0));
        rf::load_tile<Bc, THREADS>(V_smem, V_rows.from(key0), min(Bc, Nkv - key0));
        __syncthreads();  // so that every warp sees the whole Q_i, K_j and V_j

        const rf::VisibleTo<PackedRows> visible{mask, row, key0, Bc};
        if (p0 >= rows || !visible.any(ROWS)) continue;  // no row of this warp sees a key of this tile

        // -- S = softmax_scale Q_i K_j^T -----------------------------------------------------------------------------------
        float S[ROWS][rf::slots<Bc>];
        rf::product_QK<d, Bc>(S, Q_smem + patch * d, K_smem);
        rf::finish_scores_of(S, softmax_scale, score_of, visible);

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

    // -- O_s, m_s, l_s: registers -> HBM; a single split: O = O / l, LSE = m + ln l ------------------------------------------
    const float last = MERGED ? l : rf::inverse_or_zero(l);
    const size_t part = static_cast<size_t>(split) * B * H * N;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float last_row = rf::from_lane(last, r);
        if (p0 + r >= rows) continue;
        if constexpr (MERGED) {
            if (last_row != 0.0f) rf::store_row(O_part + (part + q_row(p0 + r)) * dv, O_reg[r], dv);
        } else {
#pragma unroll
            for (int c = 0; c < rf::slots<dv>; ++c) O_reg[r][c] *= last_row;
            rf::store_row(rf::head_rows<dv>(O_part, head(p0 + r), H, N)[(p0 + r) / G], O_reg[r], dv);
        }
    }
    if (lane < ROWS && p0 + lane < rows) {
        if constexpr (MERGED) reinterpret_cast<float2*>(ml_part)[part + q_row(p0 + lane)] = make_float2(m, l);
        else ml_part[q_row(p0 + lane)] = rf::log_sum_exp(m, l);
    }
}

// ------------------------------------------------------------- O = sum exp(m_s - m) O_s / l, LSE = m + ln l, l = sum exp(m_s - m) l_s
extern "C" __global__ void
splitkv_merge(const float* __restrict__ O_part,    // [splits, B, H, N, dv]
              const float2* __restrict__ ml_part,  // [splits, B, H, N]: m, l
              T* __restrict__ O,                   // [B, H, N, dv]
              float* __restrict__ LSE,             // [B, H, N]
              const int B, const int H, const int N, const int splits)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const int lane = rf::lane_index();
    const size_t rows = static_cast<size_t>(B) * H * N, row = static_cast<size_t>(blockIdx.x) * (blockDim.x / rf::LANES) + rf::warp_index();
    if (row >= rows) return;

    float O_reg[rf::slots<dv>] = {};
    float m = rf::negative_infinity(), l = 0.0f;
    for (int first = 0; first < splits; first += rf::LANES) {
        // -- m' = max(m, max m_s), alpha = exp(m - m'), weights exp(m_s - m') of 32 parts -----------------------------------
        const float2 ml = first + lane < splits ? ml_part[(first + lane) * rows + row] : make_float2(rf::negative_infinity(), 0.0f);
        const bool saw_nothing = ml.x == rf::negative_infinity() && ml.y == ml.y;  // l = NaN: it saw a NaN
        const float m_new = fmaxf(m, rf::warp_reduce(ml.x, rf::Max{}));
        const float m_safe = rf::finite_or_zero(m_new);
        const float alpha = rf::exp_fast(m - m_safe), weight = rf::exp_fast(ml.x - m_safe);
        m = m_new;

        // -- l = alpha l + sum of weight l_s, O = alpha O ------------------------------------------------------------------
        l = __fmul_rn(l, alpha);  // [rescale]
        l += rf::warp_reduce(__fmul_rn(weight, ml.y), rf::Sum{});  // [rescale]
#pragma unroll
        for (int c = 0; c < rf::slots<dv>; ++c) O_reg[c] = __fmul_rn(O_reg[c], alpha);  // [rescale]

        // -- O = O + weight O_s: HBM -> registers --------------------------------------------------------------------------
        const unsigned idle = __ballot_sync(rf::ALL_LANES, saw_nothing);
        for (int s = 0; s < min(rf::LANES, splits - first); ++s) {
            if (idle >> s & 1) continue;  // there is no O_s
            float O_s[rf::slots<dv>];
            rf::load_row(O_s, O_part + ((first + s) * rows + row) * dv, dv);
            const float weight_s = rf::from_lane(weight, s);
#pragma unroll
            for (int c = 0; c < rf::slots<dv>; ++c) O_reg[c] = fmaf(weight_s, O_s[c], O_reg[c]);
        }
    }

    // -- O = O / l, LSE = m + ln l: registers -> HBM -----------------------------------------------------------------------
    const float inverse_l = rf::inverse_or_zero(l);
#pragma unroll
    for (int c = 0; c < rf::slots<dv>; ++c) O_reg[c] *= inverse_l;
    rf::store_row(rf::head_rows<dv>(O, row / N, H, N)[row % N], O_reg, dv);
    if (lane == 0) LSE[row] = rf::log_sum_exp(m, l);
}
