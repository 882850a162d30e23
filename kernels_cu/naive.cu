// (1) Attention as three kernels: scores, softmax, output. The N x Nkv matrices S and P travel through HBM.
//
// (2) First rung. The products are tiled through SMEM and all accesses are coalesced, so that what it loses is due to S and P alone.
//
// (3) Math (Algorithm 0 of arXiv 2205.14135):
//       S = softmax_scale Q K^T                       (then the score modification; hidden keys: -inf)
//       P = exp(S - rowmax S) / rowsum exp(S - rowmax S),   LSE = rowmax S + ln rowsum exp(S - rowmax S)
//       O = P V
//
// (4) Who owns what:
//       naive_scores   CTA = tile (i, j) of S in (b, h), blockIdx.x = ((b*H + h)*Tr + i)*Tc + j, 4 Br threads
//       naive_softmax  warp = row of S, row = blockIdx.x * (warps per CTA) + warp, counted through all heads; a lane owns every 32nd column
//       naive_output   CTA = query tile i of (b, h), blockIdx.x = (b*H + h)*Tr + i, 4 Br threads
//     In the products a warp owns 8 rows of the tile, a lane the columns L, L + 32, ... (picture in rf_patch.cuh).
//
// (5) HBM bytes (w bytes per element of Q, K, V, O and P; S is float; no tile is skipped, masked or not; s_reads = 1 when a row of S
//     fits in SMEM, else 3):
//       Q   read  = B*H*Tc*N*d*w
//       K   read  = B*H*Tr*Nkv*d*w
//       S   write = B*H*N*Nkv*4
//       S   read  = B*H*N*Nkv*4 * s_reads
//       P   write = B*H*N*Nkv*w
//       P   read  = B*H*N*Nkv*w
//       V   read  = B*H*Tr*Nkv*dv*w
//       O   write = B*H*N*dv*w
//       LSE write = B*H*N*4
//
// (6) SMEM bytes (Bp = Bc rounded up to 32), all float:
//       naive_scores  smem = 4 * (Br*d + d*(Bp + 2))                          Q, K transposed
//       naive_softmax smem = 4 * warps*Nkv if s_reads == 1 else 0             a row of S per warp
//       naive_output  smem = 4 * (Bc*dv + Br*Bp)                               V, P
//
// (7) Numerics: products and softmax in fp32. S is stored as float, because fp16 cannot hold scores beyond 65504; P, in [0, 1], is
//     rounded to the storage type. A row that sees no key, or only scores of -inf: O = 0, LSE = -inf. NaN in a visible key or in the
//     query: NaN in that row's O and LSE. What a hidden key or value holds reaches nothing.
//
// (8) Needs: d and dv multiples of 8 up to 256; Br and Bc multiples of 16 up to 128; H a multiple of Hkv; N, Nkv >= 1; contiguous rows.
#include "rf_products.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, Br = RF_BR, Bc = RF_BC, ROWS = rf::ROWS, THREADS = Br / ROWS * rf::LANES;
constexpr bool ROW_ON_CHIP = RF_ROW_ON_CHIP;
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 128, "Br and Bc must be multiples of 16 up to 128");

constexpr int Q_FLOATS = Br * d, K_FLOATS = d * rf::transposed_pitch<Bc>, V_FLOATS = Bc * dv, P_FLOATS = Br * rf::padded<Bc>;
static_assert(4 * (Q_FLOATS + K_FLOATS) == RF_SCORES_SMEM, "the launch plan states another amount of shared memory for naive_scores");
static_assert(4 * (V_FLOATS + P_FLOATS) == RF_OUTPUT_SMEM, "the launch plan states another amount of shared memory for naive_output");

extern __shared__ __align__(16) float smem[];

// -------------------------------------------------------------------------------------------------- S = softmax_scale Q K^T
extern "C" __global__ void __launch_bounds__(THREADS, 1)
naive_scores(const T* __restrict__ Q,  // [B, H, N, d]
             const T* __restrict__ K,  // [B, Hkv, Nkv, d]
             float* __restrict__ S,    // [B, H, N, Nkv]
             const int H, const int Hkv, const int N, const int Nkv, const float softmax_scale)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const unsigned Tr = rf::ceil_div(N, Br), Tc = rf::ceil_div(Nkv, Bc), bh = blockIdx.x / Tc / Tr;  // b*H + h
    const int i0 = blockIdx.x / Tc % Tr * Br, key0 = blockIdx.x % Tc * Bc, patch = rf::warp_index() * ROWS, row0 = i0 + patch;
    const size_t q_row = static_cast<size_t>(bh) * N;  // of S
    const unsigned kv = rf::kv_head(bh, H, Hkv);
    const auto Q_rows = rf::head_rows<d>(Q, bh, H, N), K_rows = rf::head_rows<d>(K, kv, Hkv, Nkv);

    float* const Q_smem = smem;               // [Br][d]
    float* const K_smem = Q_smem + Q_FLOATS;  // [d][Bp + 2], transposed

    // -- Q_i, K_j: HBM -> SMEM ---------------------------------------------------------------------------------------------
    rf::load_tile<Br, THREADS>(Q_smem, Q_rows.from(i0), min(Br, N - i0));
    rf::load_tile_transposed<Bc, THREADS>(K_smem, K_rows.from(key0), min(Bc, Nkv - key0));
    __syncthreads();  // so that every warp sees the whole Q_i and K_j

    // -- S: registers -> HBM -----------------------------------------------------------------------------------------------
    float S_reg[ROWS][rf::slots<Bc>];
    rf::product_QK<d, Bc>(S_reg, Q_smem + patch * d, K_smem);
    rf::finish_scores(S_reg, softmax_scale, rf::Score{static_cast<int>(bh % H)}, rf::Visible{{N, Nkv}, row0, key0, Bc});
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row0 + r < N) rf::store_row(S + (q_row + row0 + r) * Nkv + key0, S_reg[r], min(Bc, Nkv - key0));
}

// ----------------------------------------------------------------------------------------------------------- P = softmax(S)
extern "C" __global__ void
naive_softmax(const float* __restrict__ S,  // [B, H, N, Nkv]
              T* __restrict__ P,            // [B, H, N, Nkv]
              float* __restrict__ LSE,      // [B, H, N]
              const int B, const int H, const int N, const int Nkv)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const int lane = rf::lane_index(), warp = rf::warp_index();
    const size_t row = static_cast<size_t>(blockIdx.x) * (blockDim.x / rf::LANES) + warp;  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    const float* const S_row = S + row * Nkv;
    T* const P_row = P + row * Nkv;
    float* const S_smem = smem + static_cast<size_t>(warp) * Nkv;  // a lane reads back only what it wrote: no barrier

    // -- m = rowmax S, S: HBM -> SMEM --------------------------------------------------------------------------------------
    float m = rf::negative_infinity(), l = 0.0f;
    for (int key = lane; key < Nkv; key += rf::LANES) {
        const float s = S_row[key];
        if constexpr (ROW_ON_CHIP) S_smem[key] = s;
        m = fmaxf(m, s);
    }
    m = rf::warp_reduce(m, rf::Max{});
    const float m_safe = rf::finite_or_zero(m);

    // -- l = rowsum exp(S - m) ---------------------------------------------------------------------------------------------
    for (int key = lane; key < Nkv; key += rf::LANES) {
        const float p = rf::exp_fast((ROW_ON_CHIP ? S_smem[key] : S_row[key]) - m_safe);
        if constexpr (ROW_ON_CHIP) S_smem[key] = p;
        l += p;
    }
    l = rf::warp_reduce(l, rf::Sum{});

    // -- P = exp(S - m) / l, LSE = m + ln l: SMEM -> HBM -------------------------------------------------------------------
    const float inverse_l = rf::inverse_or_zero(l);
    for (int key = lane; key < Nkv; key += rf::LANES) {
        const float p = ROW_ON_CHIP ? S_smem[key] : rf::exp_fast(S_row[key] - m_safe);
        P_row[key] = rf::from_float<T>(p * inverse_l);
    }
    if (lane == 0) LSE[row] = rf::log_sum_exp(m, l);
}

// ------------------------------------------------------------------------------------------------------------------ O = P V
extern "C" __global__ void __launch_bounds__(THREADS, 1)
naive_output(const T* __restrict__ P,  // [B, H, N, Nkv]
             const T* __restrict__ V,  // [B, Hkv, Nkv, dv]
             T* __restrict__ O,        // [B, H, N, dv]
             const int H, const int Hkv, const int N, const int Nkv)
{
    // -- where am I --------------------------------------------------------------------------------------------------------
    const unsigned Tr = rf::ceil_div(N, Br), bh = blockIdx.x / Tr;  // b*H + h
    const int patch = rf::warp_index() * ROWS, row0 = blockIdx.x % Tr * Br + patch;
    const size_t q_row = static_cast<size_t>(bh) * N;  // of P
    const unsigned kv = rf::kv_head(bh, H, Hkv);
    const auto V_rows = rf::head_rows<dv>(V, kv, Hkv, Nkv);
    const auto O_rows = rf::head_rows<dv>(O, bh, H, N);

    float* const V_smem = smem;                                           // [Bc][dv]
    float* const P_smem = V_smem + V_FLOATS + patch * rf::padded<Bc>;     // [Br][Bp], the warp's own rows of it

    float O_reg[ROWS][rf::slots<dv>] = {};
    for (int key0 = 0; key0 < Nkv; key0 += Bc) {
        // -- V_j, P_ij: HBM -> SMEM ----------------------------------------------------------------------------------------
        const int valid = min(Bc, Nkv - key0);
        __syncthreads();  // so that no warp still reads V_{j-1}
        rf::load_tile<Bc, THREADS>(V_smem, V_rows.from(key0), valid);
        float P_reg[ROWS][rf::slots<Bc>] = {};
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            if (row0 + r < N) rf::load_row(P_reg[r], P + (q_row + row0 + r) * Nkv + key0, valid);
        rf::store_P(P_smem, P_reg);
        __syncthreads();  // so that every warp sees the whole V_j, and its own rows of P_ij

        // -- O = O + P_ij V_j ----------------------------------------------------------------------------------------------
        rf::add_product_PV<dv, Bc>(O_reg, P_smem, V_smem, rf::Visible{{N, Nkv}, row0, key0, Bc});
    }

    // -- O: registers -> HBM -----------------------------------------------------------------------------------------------
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row0 + r < N) rf::store_row(O_rows[row0 + r], O_reg[r], dv);
}
