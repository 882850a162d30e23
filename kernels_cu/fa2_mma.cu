// (1) FlashAttention-2 on tensor cores: the loop of fa2.cu with both products as mma.sync on 16-bit numbers, summed in fp32.
//
// (2) Changed since fa2: tiles stay 16-bit in SMEM, swizzled, and reach registers by ldmatrix; Q stays in registers; P never leaves
//     them: the sums of S, rounded to 16 bits, are the left operand of P V. HBM bytes are the same. SMEM traffic falls by the reuse
//     of a 16 x 16 patch, and 2048 multiply-adds are one instruction.
//
// (3) Math (as fa2, with powers of 2; c = |softmax_scale| log2(e), and Q takes the sign of softmax_scale, which is exact):
//       m = -inf, l = 0, O = 0
//       for each key tile j that some row of the tile sees:
//         S     = Q_i K_j^T                      (hidden keys: -inf)
//         m'    = max(m, rowmax S)
//         alpha = 2^(c (m - m'))
//         P     = 2^(c (S - m'))                 (1 at the maximum, exactly; a product c S - c m' in one step would round there)
//         l     = alpha l + rowsum P
//         O     = alpha O + P V_j
//       O = O / l,   LSE = |softmax_scale| m + ln l
//     A score modification takes |softmax_scale| S and gives S; then the other two factors |softmax_scale| are 1.
//
// (4) Who owns what: CTA = query tile i of (b, h), blockIdx.x = (b*H + h)*Tr + i, with 2 Br threads. A warp owns 16 rows; a lane has
//     parts of two of them, which it shares with its quad (picture in rf_mma_sm80.cuh): m and l of both, l of its own columns only.
//
// (5) HBM bytes (w = 2 bytes per element; query tile i meets the key tiles s(i) .. n(i)-1: 0 .. Tc-1 without a mask, s(i) = n(i) = 0 if none):
//       Q   read  = B*H*N*d*w
//       K   read  = B*H*d*w * sum(min(Bc*n(i), Nkv) - Bc*s(i) for i in range(Tr))     without a mask: B*H*Tr*Nkv*d*w
//       V   read  = B*H*dv*w * sum(min(Bc*n(i), Nkv) - Bc*s(i) for i in range(Tr))
//       O   write = B*H*N*dv*w
//       LSE write = B*H*N*4
//
// (6) SMEM bytes (D, DV = d, dv rounded up to 16), 16-bit: Q, K, V; O takes the place of Q:
//       fa2_mma smem = 2 * (Br*max(D, DV) + Bc*(D + DV))
//
// (7) Numerics: P is rounded to 16 bits for its product, l sums it unrounded. A row that sees no key, or only scores of -inf: O = 0,
//     LSE = -inf. NaN in a visible key or in the query: NaN in that row's O and LSE. What a hidden key or value holds reaches nothing:
//     scores are selected; a tile that some rows see in part is searched for V that is NaN or infinite, and if a CTA met one (one
//     vote), a slow pass at the end reads these tiles of V again and adds it to the rows that see it (rf_wild.cuh).
//
// (8) Needs: fp16 or bf16 and compute capability 8.0; d and dv multiples of 8 up to 256; Br and Bc multiples of 16 up to 128; H a multiple of
//     Hkv; N, Nkv >= 1; contiguous rows.
#include "rf_mask.cuh"
#include "rf_products_mma.cuh"
#include "rf_wild.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, D = rf::round_up(d, 16), DV = rf::round_up(dv, 16);
constexpr int Br = RF_BR, Bc = RF_BC, ROWS = rf::PATCH_ROWS, THREADS = Br / ROWS * rf::LANES;
static_assert(sizeof(T) == 2, "tensor cores multiply 16-bit numbers: RF_DTYPE must be fp16 or bf16");
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 128, "Br and Bc must be multiples of 16 up to 128");

constexpr int WIDEST = D > DV ? D : DV, Q_CHUNKS = Br * WIDEST / rf::CHUNK, K_CHUNKS = Bc * D / rf::CHUNK, V_CHUNKS = Bc * DV / rf::CHUNK;
static_assert(16 * (Q_CHUNKS + K_CHUNKS + V_CHUNKS) == RF_FA2_MMA_SMEM, "the launch plan states another amount of shared memory");

constexpr bool Q_STAYS = d + 2 * dv <= 384;  // in registers; a longer row is read from SMEM for every key tile, so that O has registers enough

extern "C" __global__ void __launch_bounds__(THREADS, 1)
fa2_mma(const T* __restrict__ Q,  // [B, H, N, d]
        const T* __restrict__ K,  // [B, Hkv, Nkv, d]
        const T* __restrict__ V,  // [B, Hkv, Nkv, dv]
        T* __restrict__ O,        // [B, H, N, dv]
        float* __restrict__ LSE,  // [B, H, N]
        const int H, const int Hkv, const int N, const int Nkv, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const unsigned Tr = rf::ceil_div(N, Br), bh = blockIdx.x / Tr;       // b*H + h
    const int i = blockIdx.x % Tr, thread = threadIdx.x, lane = rf::lane_index();
    const int patch = rf::warp_index() * ROWS, row0 = i * Br + patch;   // this warp's first row: in the tile, in the head
    const size_t q_row = static_cast<size_t>(bh) * N;  // of LSE
    const unsigned kv = rf::kv_head(bh, H, Hkv);
    const auto Q_rows = rf::head_rows<d>(Q, bh, H, N), K_rows = rf::head_rows<d>(K, kv, Hkv, Nkv);
    const auto V_rows = rf::head_rows<dv>(V, kv, Hkv, Nkv);
    const auto O_rows = rf::head_rows<dv>(O, bh, H, N);
    const rf::Mask mask{N, Nkv};
    const rf::Score score{static_cast<int>(bh % H)};

    // -- SMEM --------------------------------------------------------------------------------------------------------------
    extern __shared__ __align__(128) uint4 smem[];
    uint4* const Q_smem = smem + patch * WIDEST / rf::CHUNK;  // [16][D], this warp's rows of Q_i; O [16][DV] at the end
    uint4* const K_smem = smem + Q_CHUNKS;                    // [Bc][D]
    uint4* const V_smem = K_smem + K_CHUNKS;                  // [Bc][DV]
    const rf::Patches<D, rf::Order::down> Q_patches(Q_smem);
    const rf::Patches<D, rf::Order::across> K_patches(K_smem);
    const rf::Patches<DV, rf::Order::down> V_patches(V_smem);

    // -- state -------------------------------------------------------------------------------------------------------------
    rf::Strip<DV> O_reg = {};
    float m[2] = {rf::negative_infinity(), rf::negative_infinity()}, l[2] = {};
    bool wild = false;

    // -- Q_i: HBM -> SMEM -> registers, with the sign of softmax_scale -------------------------------------------------------
    rf::load_tile<ROWS, rf::LANES>(Q_smem, Q_rows.from(row0), min(ROWS, N - row0), lane);
    __syncwarp();  // so that every lane sees the warp's rows of Q
    const float sign = softmax_scale > 0.0f ? 1.0f : softmax_scale < 0.0f ? -1.0f : 0.0f;
    const float scale = sign == 0.0f ? 1.0f : fabsf(softmax_scale);  // 0: S is 0, whatever it is multiplied by
    const float c = rf::folded(scale) * rf::LOG2_E;
    const auto read_Q = [&](auto k) { return rf::multiply<T>(Q_patches.load(rf::Int<0>{}, k), sign); };
    rf::Patch Q_reg[D / 16];
    if constexpr (Q_STAYS) rf::unrolled<D / 16>([&](auto k) { Q_reg[k] = read_Q(k); });
    const auto Q_patch = [&](auto k) { if constexpr (Q_STAYS) return Q_reg[k]; else return read_Q(k); };

    const int first = i * Br, last = min(first + Br, N) - 1;
    const rf::Keys keys = mask.tiles(first, last, Bc);  // that some row of the tile sees
    for (int key0 = keys.begin; key0 < keys.end; key0 += Bc) {
        // -- K_j, V_j: HBM -> SMEM -----------------------------------------------------------------------------------------
        __syncthreads();  // so that no warp still reads the tiles that are about to be overwritten
        rf::load_tile<Bc, THREADS>(K_smem, K_rows.from(key0), min(Bc, Nkv - key0), thread);
        rf::load_tile<Bc, THREADS>(V_smem, V_rows.from(key0), min(Bc, Nkv - key0), thread);
        if (!mask.shows_all(first, last, key0, Bc)) wild |= rf::clear_wild<T, Bc, dv, THREADS>(V_smem, thread);
        __syncthreads();  // so that every warp sees the whole K_j and V_j

        const rf::Visible visible{mask, row0, key0, Bc};
        if (row0 >= N || !visible.any(ROWS)) continue;  // no row of this warp sees a key of this tile

        // -- S = Q_i K_j^T -------------------------------------------------------------------------------------------------
        rf::Strip<Bc> S;
        rf::product_QK<T, D, Bc>(S, Q_patch, K_patches);
        rf::modify(S, scale, score, visible);
        if (!visible.all(ROWS)) rf::hide(S, visible);

#pragma unroll
        for (int h = 0; h < 2; ++h) {
            // -- m' = max(m, rowmax S), alpha = 2^(c (m - m')) -------------------------------------------------------------
            const float m_new = fmaxf(m[h], rf::row_max(S, h)), m_safe = rf::finite_or_zero(m_new);
            const float alpha = rf::exp2_fast(c * (m[h] - m_safe));
            m[h] = m_new;

            // -- P = 2^(c (S - m')), l = alpha l + rowsum P, O = alpha O ---------------------------------------------------
            float row_sum[2] = {};
#pragma unroll
            for (int n = 0; n < Bc / 8; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& x = S[n][2 * h + e];
                    x = rf::exp2_fast(c * (x - m_safe));
                    row_sum[e] += x;
                }
            l[h] = __fmul_rn(l[h], alpha);  // [rescale]
            l[h] += row_sum[0] + row_sum[1];
#pragma unroll
            for (int n = 0; n < DV / 8; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e) O_reg[n][2 * h + e] = __fmul_rn(O_reg[n][2 * h + e], alpha);  // [rescale]
        }

        // -- O = O + P V_j -------------------------------------------------------------------------------------------------
        rf::add_product_PV<T, DV, Bc>(O_reg, S, V_patches);
    }

    // -- O = O / l, LSE = |softmax_scale| m + ln l: registers -> SMEM -> HBM ------------------------------------------------
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float l_row = rf::quad_reduce(l[h], rf::Sum{}), inverse_l = rf::inverse_or_zero(l_row);
#pragma unroll
        for (int n = 0; n < DV / 8; ++n) O_reg[n][2 * h] *= inverse_l, O_reg[n][2 * h + 1] *= inverse_l;
        const int row = row0 + rf::quad_row() + 8 * h;
        if (rf::quad_lane() == 0 && row < N) LSE[q_row + row] = rf::log_sum_exp(m[h] * rf::folded(fabsf(softmax_scale)), l_row);
    }
    __syncwarp();  // so that no lane still reads Q where O is about to be written
    rf::store_O<T, DV>(Q_smem, O_reg);
    __syncwarp();  // so that every lane sees the warp's rows of O
    if ((rf::Mask::CUTS_BEGIN || rf::Mask::CUTS_END) && __syncthreads_or(wild)) {
        for (int key0 = keys.begin; key0 < keys.end; key0 += Bc)
            if (!mask.shows_all(first, last, key0, Bc)) rf::add_wild<T, dv>(Q_smem, V_rows.from(key0), {mask, row0, key0, Bc});
        __syncwarp();  // so that every lane sees what was added
    }
    if (row0 < N) rf::store_tile<ROWS>(O_rows.from(row0), Q_smem, N - row0);
}
