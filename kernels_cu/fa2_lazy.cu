// (1) FlashAttention-2 with two ideas of FlashAttention-4: fa2_pipe.cu that rescales lazily and computes part of its exponentials by FMA.
//
// (2) Changed since fa2_pipe: O and l are rescaled only when some row of the warp has outgrown its m by more than a threshold; otherwise
//     m stays behind the maximum, which the division at the end undoes exactly. And of every 100 exponentials, RF_POLY_PERCENT are
//     polynomials on the FMA pipe (rf_exp2.cuh), so that the special-function unit has less to do. HBM bytes and SMEM stay.
//
// (3) Math (c = |softmax_scale| log2(e); tau: the threshold; arXiv 2603.05451, section 3.1, where tau is 8):
//       m = -inf, l = 0, O = 0
//       for each key tile j that some row of the tile sees:
//         S     = Q_i K_j^T                      (hidden keys: -inf)
//         m'    = max(m, rowmax S) where c (max(m, rowmax S) - m) > tau, elsewhere m
//         if m' differs from m in some row of the warp (one vote: all its rows take the same way):
//           alpha = 2^(c (m - m'))               (1, exactly, where it does not: what other rows see changes no bit of a row)
//           l     = alpha l
//           O     = alpha O
//         P     = 2^(c (S - m'))                 (at most 2^tau)
//         l     = l + rowsum P
//         O     = O + P V_j
//       O = O / l,   LSE = |softmax_scale| m + ln l
//     A score modification takes |softmax_scale| S and gives S; then the other two factors |softmax_scale| are 1.
//     Whatever m is, O / l and m + ln l are the same: numerator and denominator carry the same factor.
//
// (4) Who owns what: CTA = query tile i of (b, h), blockIdx.x = (b*H + h)*Tr + Tr-1 - i (under a mask the last tile of a head has most to
//     do, so it starts first), with RF_WARPS warps of Br / RF_WARPS rows: one or two strips of 16. A lane has parts of two rows of each
//     strip, which it shares with its quad (picture in rf_mma_sm80.cuh): m and l of both, l of its own columns only.
//
// (5) HBM bytes (w = 2 bytes per element; query tile i meets the key tiles s(i) .. n(i)-1: 0 .. Tc-1 without a mask, s(i) = n(i) = 0 if none):
//       Q   read  = B*H*N*d*w
//       K   read  = B*H*d*w * sum(min(Bc*n(i), Nkv) - Bc*s(i) for i in range(Tr))     without a mask: B*H*Tr*Nkv*d*w
//       V   read  = B*H*dv*w * sum(min(Bc*n(i), Nkv) - Bc*s(i) for i in range(Tr))
//       O   write = B*H*N*dv*w
//       LSE write = B*H*N*4
//
// (6) SMEM bytes (D, DV = d, dv rounded up to 16), 16-bit: Q, K, V; O takes the place of Q:
//       fa2_lazy smem = 2 * (Br*max(D, DV) + Bc*(D + DV))
//
// (7) Numerics, besides what fa2_pipe says: a late m overflows nothing. c (S - m') <= tau for every score of a tile, rounding included
//     (S <= max(m, rowmax S), and rounding keeps order), so P <= 2^tau <= 2^15 < 65504. The key that set m weighed 1, so l >= 1; and
//     l <= 2^tau Nkv < 2^46. |O| <= 2^tau Nkv max|V| ends below 2^128 for every fp16 V, and for bf16 while |V| < 2^(98 - tau). The first key
//     that counts is growth by inf: no weight meets m = -inf. A NaN score does not reach m; it reaches l. A polynomial of
//     degree 3 is off by up to 8.8e-5 of itself, less than the rounding of P; but LSE may be off by as much, which is more than plain
//     attention loses where scores are small. With degree 4, 3.0e-6, it is within the bar of all rungs.
//
// (8) Needs: fp16 or bf16 and compute capability 8.0; d and dv multiples of 8 up to 256; Br and Bc multiples of 16 up to 128; H a multiple of
//     Hkv; N, Nkv >= 1; contiguous rows; a threshold up to 15.
#include "rf_async.cuh"
#include "rf_exp2.cuh"
#include "rf_mask.cuh"
#include "rf_products_mma.cuh"
#include "rf_wild.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, D = rf::round_up(d, 16), DV = rf::round_up(dv, 16);
constexpr int Br = RF_BR, Bc = RF_BC, THREADS = RF_WARPS * rf::LANES, ROWS = Br / RF_WARPS, STRIPS = ROWS / rf::PATCH_ROWS;
static_assert(sizeof(T) == 2, "tensor cores multiply 16-bit numbers: RF_DTYPE must be fp16 or bf16");
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 128, "Br and Bc must be multiples of 16 up to 128");
static_assert(STRIPS * rf::PATCH_ROWS * RF_WARPS == Br && (STRIPS == 1 || STRIPS == 2), "RF_WARPS must be Br / 16 or Br / 32");

constexpr int WIDEST = D > DV ? D : DV, Q_CHUNKS = Br * WIDEST / rf::CHUNK, K_CHUNKS = Bc * D / rf::CHUNK, V_CHUNKS = Bc * DV / rf::CHUNK;
static_assert(16 * (Q_CHUNKS + K_CHUNKS + V_CHUNKS) == RF_FA2_LAZY_SMEM, "the launch plan states another amount of shared memory");

constexpr float THRESHOLD = RF_LAZY_THRESHOLD;  // in powers of 2; below 0: rescale in every tile, as fa2_pipe does
constexpr bool LAZY = THRESHOLD >= 0.0f;
constexpr int POLYNOMIALS = RF_POLY_PERCENT;    // of 100 exponentials
static_assert(THRESHOLD <= 15.0f, "RF_LAZY_THRESHOLD must be at most 15: P goes up to 2 to that, and fp16 ends at 65504");
static_assert(POLYNOMIALS >= 0 && POLYNOMIALS <= 100, "RF_POLY_PERCENT must be between 0 and 100");

/// 2^x for the n-th exponential of a lane in its row of a tile: on the FMA pipe for an even choice of these numbers, else on the SFU.
__device__ __forceinline__ float exp2_shared(int n, float x) {
    return (n + 1) * POLYNOMIALS / 100 > n * POLYNOMIALS / 100 ? rf::exp2_polynomial<RF_POLY_DEGREE>(x) : rf::exp2_fast(x);
}

constexpr bool Q_STAYS = STRIPS * (d + 2 * dv) <= 384;  // in registers; more is read from SMEM for every key tile, so that O has its own

extern "C" __global__ void __launch_bounds__(THREADS, 1)
fa2_lazy(const T* __restrict__ Q,  // [B, H, N, d]
         const T* __restrict__ K,  // [B, Hkv, Nkv, d]
         const T* __restrict__ V,  // [B, Hkv, Nkv, dv]
         T* __restrict__ O,        // [B, H, N, dv]
         float* __restrict__ LSE,  // [B, H, N]
         const int H, const int Hkv, const int N, const int Nkv, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const unsigned Tr = rf::ceil_div(N, Br), bh = blockIdx.x / Tr;       // b*H + h
    const int i = Tr - 1 - blockIdx.x % Tr, thread = threadIdx.x, lane = rf::lane_index();
    const int patch = rf::warp_index() * ROWS, row0 = i * Br + patch;    // this warp's first row: in the tile, in the head
    const size_t q_row = static_cast<size_t>(bh) * N;  // of LSE
    const unsigned kv = rf::kv_head(bh, H, Hkv);
    const auto Q_rows = rf::head_rows<d>(Q, bh, H, N), K_rows = rf::head_rows<d>(K, kv, Hkv, Nkv);
    const auto V_rows = rf::head_rows<dv>(V, kv, Hkv, Nkv);
    const auto O_rows = rf::head_rows<dv>(O, bh, H, N);
    const rf::Mask mask{N, Nkv};
    const rf::Score score{static_cast<int>(bh % H)};

    // -- SMEM --------------------------------------------------------------------------------------------------------------
    extern __shared__ __align__(128) uint4 smem[];
    uint4* const Q_smem = smem + patch * WIDEST / rf::CHUNK;  // [ROWS][D], this warp's rows of Q_i; O [ROWS][DV] at the end
    uint4* const K_smem = smem + Q_CHUNKS;                    // [Bc][D]
    uint4* const V_smem = K_smem + K_CHUNKS;                  // [Bc][DV]
    const rf::Patches<D, rf::Order::down> Q_patches(Q_smem);
    const rf::Patches<D, rf::Order::across> K_patches(K_smem);
    const rf::Patches<DV, rf::Order::down> V_patches(V_smem);

    // -- state -------------------------------------------------------------------------------------------------------------
    rf::Strip<DV> O_reg[STRIPS] = {};
    float m[STRIPS][2], l[STRIPS][2] = {};
    bool wild = false;
#pragma unroll
    for (auto& of_strip : m) of_strip[0] = of_strip[1] = rf::negative_infinity();

    // -- Q_i, K_0: HBM -> SMEM; Q_i -> registers, with the sign of softmax_scale ---------------------------------------------
    const int first = i * Br, last = min(first + Br, N) - 1;
    const rf::Keys keys = mask.tiles(first, last, Bc);  // that some row of the tile sees
    const auto copy = [&](uint4* to, const auto& X, int key0) {
        rf::copy_tile<Bc, THREADS>(to, X.from(key0), min(Bc, Nkv - key0), thread);
    };
    rf::copy_tile<ROWS, rf::LANES>(Q_smem, Q_rows.from(row0), min(ROWS, N - row0), lane);
    if (keys.begin < keys.end) copy(K_smem, K_rows, keys.begin);
    rf::wait_for_copies();
    __syncwarp();  // so that every lane sees the warp's rows of Q
    const float sign = softmax_scale > 0.0f ? 1.0f : softmax_scale < 0.0f ? -1.0f : 0.0f;
    const float scale = sign == 0.0f ? 1.0f : fabsf(softmax_scale);  // 0: S is 0, whatever it is multiplied by
    const float c = rf::folded(scale) * rf::LOG2_E;
    if (sign != 1.0f) rf::multiply_rows<T>(Q_smem, ROWS * D / rf::CHUNK, sign);
    __syncwarp();  // so that every lane sees them with their sign
    rf::Patch Q_reg[STRIPS][D / 16];
    if constexpr (Q_STAYS)
        rf::unrolled<STRIPS>([&](auto s) { rf::unrolled<D / 16>([&](auto k) { Q_reg[s][k] = Q_patches.load(s, k); }); });
    const auto Q_patch = [&](auto s, auto k) { if constexpr (Q_STAYS) return Q_reg[s][k]; else return Q_patches.load(s, k); };

    for (int key0 = keys.begin; key0 < keys.end; key0 += Bc) {
        const rf::Visible visible{mask, row0, key0, Bc};
        const bool some_visible = row0 < N && visible.any(ROWS);  // to a row of this warp

        // -- V_j: HBM -> SMEM, behind S = Q_i K_j^T ------------------------------------------------------------------------
        rf::wait_for_copies();
        __syncthreads();  // so that every warp sees the whole K_j, and none still reads V_{j-1}
        copy(V_smem, V_rows, key0);
        rf::Strip<Bc> S[STRIPS];
        if (some_visible) rf::product_QK<T, D, Bc>(S, Q_patch, K_patches);

        // -- K_{j+1}: HBM -> SMEM, behind the softmax and O = O + P V_j ----------------------------------------------------
        rf::wait_for_copies();
        if (!mask.shows_all(first, last, key0, Bc)) wild |= rf::clear_wild<T, Bc, dv, THREADS>(V_smem, thread);
        __syncthreads();  // so that every warp sees the whole V_j, and none still reads K_j
        if (key0 + Bc < keys.end) copy(K_smem, K_rows, key0 + Bc);
        if (!some_visible) continue;
#pragma unroll
        for (int s = 0; s < STRIPS; ++s) {
            const rf::Visible of_strip{mask, row0 + s * rf::PATCH_ROWS, key0, Bc};
            rf::modify(S[s], scale, score, of_strip);
            if (!of_strip.all(rf::PATCH_ROWS)) rf::hide(S[s], of_strip);
        }

        // -- m' = max(m, rowmax S), where that outgrows m; elsewhere m' = m -----------------------------------------------------
        float m_new[STRIPS][2];
        bool outgrown[STRIPS][2], some_outgrown = false, started = false;  // started: else l and O are 0 still
#pragma unroll
        for (int s = 0; s < STRIPS; ++s)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                m_new[s][h] = fmaxf(m[s][h], rf::row_max(S[s], h));
                outgrown[s][h] = !LAZY || c * (m_new[s][h] - m[s][h]) > THRESHOLD;  // inf at the first key that counts; NaN, so no, before
                some_outgrown |= outgrown[s][h];
                started |= m[s][h] > rf::negative_infinity();
            }

        // -- in some row of this warp: alpha = 2^(c (m - m')), 1 in the others, l = alpha l, O = alpha O ------------------------
        if (!LAZY || __any_sync(rf::ALL_LANES, some_outgrown)) {
            const bool rescale = !LAZY || __any_sync(rf::ALL_LANES, started);
#pragma unroll
            for (int s = 0; s < STRIPS; ++s)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    if (rescale) {
                        const float alpha = outgrown[s][h] ? rf::exp2_fast(c * (m[s][h] - rf::finite_or_zero(m_new[s][h]))) : 1.0f;
                        l[s][h] = __fmul_rn(l[s][h], alpha);  // [rescale]
#pragma unroll
                        for (int n = 0; n < DV / 8; ++n)
#pragma unroll
                            for (int e = 0; e < 2; ++e) O_reg[s][n][2 * h + e] = __fmul_rn(O_reg[s][n][2 * h + e], alpha);  // [rescale]
                    }
                    if (outgrown[s][h]) m[s][h] = m_new[s][h];
                }
        }

        // -- P = 2^(c (S - m)), l = l + rowsum P ------------------------------------------------------------------------------
#pragma unroll
        for (int s = 0; s < STRIPS; ++s)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float m_safe = rf::finite_or_zero(m[s][h]);
                float row_sum[2] = {};
#pragma unroll
                for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& x = S[s][n][2 * h + e];
                        x = exp2_shared(2 * n + e, c * (x - m_safe));
                        row_sum[e] += x;
                    }
                l[s][h] += row_sum[0] + row_sum[1];
            }

        // -- O = O + P V_j -------------------------------------------------------------------------------------------------
        rf::add_product_PV<T, DV, Bc>(O_reg, S, V_patches);
    }

    // -- O = O / l, LSE = |softmax_scale| m + ln l: registers -> SMEM -> HBM ------------------------------------------------
#pragma unroll
    for (int s = 0; s < STRIPS; ++s)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float l_row = rf::quad_reduce(l[s][h], rf::Sum{}), inverse_l = rf::inverse_or_zero(l_row);
#pragma unroll
            for (int n = 0; n < DV / 8; ++n) O_reg[s][n][2 * h] *= inverse_l, O_reg[s][n][2 * h + 1] *= inverse_l;
            const int row = row0 + s * rf::PATCH_ROWS + rf::quad_row() + 8 * h;
            if (rf::quad_lane() == 0 && row < N) LSE[q_row + row] = rf::log_sum_exp(m[s][h] * rf::folded(fabsf(softmax_scale)), l_row);
        }
    const auto O_smem = [&](int s) { return Q_smem + s * rf::PATCH_ROWS * DV / rf::CHUNK; };
    __syncwarp();  // so that no lane still reads Q where O is about to be written
#pragma unroll
    for (int s = 0; s < STRIPS; ++s) rf::store_O<T, DV>(O_smem(s), O_reg[s]);
    __syncwarp();  // so that every lane sees the warp's rows of O
    if ((rf::Mask::CUTS_BEGIN || rf::Mask::CUTS_END) && __syncthreads_or(wild)) {
        for (int key0 = keys.begin; key0 < keys.end; key0 += Bc)
            for (int s = 0; s < STRIPS && !mask.shows_all(first, last, key0, Bc); ++s)
                rf::add_wild<T, dv>(O_smem(s), V_rows.from(key0), {mask, row0 + s * rf::PATCH_ROWS, key0, Bc});
        __syncwarp();  // so that every lane sees what was added
    }
    if (row0 < N) rf::store_tile<ROWS>(O_rows.from(row0), Q_smem, N - row0);
}
