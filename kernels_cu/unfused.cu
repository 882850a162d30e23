// (1) Attention as a framework of 2022 launched it: a product, elementwise kernels that each read and write the N x Nkv matrix, a product.
//
// (2) Changed since naive: mask and dropout are kernels of their own, and S is stored in the storage type as well as P. A pass over
//     the matrix costs 2*B*H*N*Nkv*w bytes whatever little it computes: this is the baseline that the papers measured themselves against.
//     (Frameworks that add a mask of -10000 or -inf read that as well; the papers' figures leave no room for it, so the mask is computed.)
//
// (3) Math (Algorithm 0 of arXiv 2205.14135 with mask and dropout; each line is a kernel):
//       S      = softmax_scale Q K^T                 scale inside the product, as the alpha of baddbmm; or (scaled) S = Q K^T, then
//       S      = softmax_scale S                       a pass of its own, as models that divided the scores did
//       S      = the score modification of S                                              launched only when there is a softcap
//       S      = S where the row sees the key, else -inf                                  launched only when there is a mask
//       P      = exp(S - rowmax S) / rowsum exp(S - rowmax S),   LSE = rowmax S + ln rowsum exp(S - rowmax S)
//       P_drop = P / (1 - dropout_p) where Z, else 0;   Z = Philox(seed, element) kept    launched only when dropout_p > 0
//       O      = P_drop V
//
// (4) Who owns what: in the products as in naive. In the passes a warp owns a row, a lane 4 neighbours of every 128 elements (or every
//     32nd element, where Nkv is no multiple of 4), and element n takes number n % 4 of Philox's counter n / 4.
//
// (5) HBM bytes (w bytes per element of everything but LSE and Z; scaled, capped, masked, dropped = 1 when that kernel is launched, else 0;
//     s_reads = 1 when a row of S fits in SMEM, else 3). In the papers' units, U = B*H*N*d*w and S = B*H*N*N*w: scores write 1 S, mask
//     2 S, softmax 2 S, dropout 2.5 S (Z at w = 2), output reads 1 S: 8.5 S. They count 4 U for Q, K, V and O; tiles read more often:
//       Q      read  = B*H*Tc*N*d*w
//       K      read  = B*H*Tr*Nkv*d*w
//       S      write = B*H*N*Nkv*w * (1 + scaled + capped + masked)
//       S      read  = B*H*N*Nkv*w * (s_reads + scaled + capped + masked)
//       P      write = B*H*N*Nkv*w
//       P      read  = B*H*N*Nkv*w
//       P_drop write = B*H*N*Nkv*w * dropped
//       P_drop read  = B*H*N*Nkv*w * dropped
//       Z      write = B*H*N*Nkv * dropped
//       V      read  = B*H*Tr*Nkv*dv*w
//       O      write = B*H*N*dv*w
//       LSE    write = B*H*N*4
//
// (6) SMEM bytes (Bp = Bc rounded up to 32), all float:
//       unfused_scores  smem = 4 * (Br*d + d*(Bp + 2))                       Q, K transposed
//       unfused_scale   smem = 0
//       unfused_softcap smem = 0
//       unfused_mask    smem = 0
//       unfused_softmax smem = 4 * warps*Nkv if s_reads == 1 else 0          a row of S per warp
//       unfused_dropout smem = 0
//       unfused_output  smem = 4 * (Bc*dv + Br*Bp)                            V, P
//
// (7) Numerics: fp32 in each kernel, rounded to the storage type between them. So fp16 scores beyond 65504 become infinite here, as they
//     did there. A row that sees no key, or only scores of -inf: O = 0, LSE = -inf (a framework gave NaN). NaN in a visible key or in the
//     query: NaN in that row's O and LSE. What a hidden key or value holds reaches nothing. LSE is that of P, before dropout.
//
// (8) Needs: d and dv multiples of 8 up to 256; Br and Bc multiples of 16 up to 128; H a multiple of Hkv; N, Nkv >= 1; contiguous rows.
#include "rf_philox.cuh"
#include "rf_products.cuh"
#include "rf_rows.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, dv = RF_DV, Br = RF_BR, Bc = RF_BC, ROWS = rf::ROWS, THREADS = Br / ROWS * rf::LANES;
constexpr bool ROW_ON_CHIP = RF_ROW_ON_CHIP;
static_assert(d % 8 == 0 && d <= 256 && dv % 8 == 0 && dv <= 256, "d and dv must be multiples of 8 up to 256");
static_assert(Br % 16 == 0 && Br <= 128 && Bc % 16 == 0 && Bc <= 128, "Br and Bc must be multiples of 16 up to 128");

constexpr int Q_FLOATS = Br * d, K_FLOATS = d * rf::transposed_pitch<Bc>, V_FLOATS = Bc * dv, P_FLOATS = Br * rf::padded<Bc>;
static_assert(4 * (Q_FLOATS + K_FLOATS) == RF_SCORES_SMEM, "the launch plan states another amount of shared memory for unfused_scores");
static_assert(4 * (V_FLOATS + P_FLOATS) == RF_OUTPUT_SMEM, "the launch plan states another amount of shared memory for unfused_output");

extern __shared__ __align__(16) float smem[];

// ---------------------------------------------------------------------------------------------------------- S = scale Q K^T
extern "C" __global__ void __launch_bounds__(THREADS, 1)
unfused_scores(const T* __restrict__ Q,  // [B, H, N, d]
               const T* __restrict__ K,  // [B, Hkv, Nkv, d]
               T* __restrict__ S,        // [B, H, N, Nkv]
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
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < rf::slots<Bc>; ++c) S_reg[r][c] *= softmax_scale;
        if (row0 + r < N) rf::store_row(S + (q_row + row0 + r) * Nkv + key0, S_reg[r], min(Bc, Nkv - key0));
    }
}

// --------------------------------------------------------------------------------------------------------------- S = scale S
extern "C" __global__ void
unfused_scale(T* __restrict__ S,  // [B, H, N, Nkv]
              const int B, const int H, const int N, const int Nkv, const float softmax_scale)
{
    const size_t row = rf::warp_row();  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    rf::update_row(S + row * Nkv, Nkv, [=](float s, int) { return s * softmax_scale; });
}

// --------------------------------------------------------------------------------------------------------------- S = score(S)
extern "C" __global__ void
unfused_softcap(T* __restrict__ S,  // [B, H, N, Nkv]
                const int B, const int H, const int N, const int Nkv)
{
    const size_t row = rf::warp_row();  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    const rf::Score score{static_cast<int>(row / N % H)};
    rf::update_row(S + row * Nkv, Nkv, [=](float s, int key) { return score(s, static_cast<int>(row % N), key); });
}

// --------------------------------------------------------------------------------------- S = S where the row sees the key, else -inf
extern "C" __global__ void
unfused_mask(T* __restrict__ S,  // [B, H, N, Nkv]
             const int B, const int H, const int N, const int Nkv)
{
    const size_t row = rf::warp_row();  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    const rf::Mask mask{N, Nkv};
    const int i = row % N, begin = mask.begin(i), end = mask.end(i);
    rf::update_row(S + row * Nkv, Nkv, [=](float s, int key) { return rf::select(key >= begin && key < end, s, rf::negative_infinity()); });
}

// ----------------------------------------------------------------------------------------------------------- P = softmax(S)
extern "C" __global__ void
unfused_softmax(const T* __restrict__ S,   // [B, H, N, Nkv]
                T* __restrict__ P,         // [B, H, N, Nkv]
                float* __restrict__ LSE,   // [B, H, N]
                const int B, const int H, const int N, const int Nkv)
{
    const size_t row = rf::warp_row();  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    const T* const S_row = S + row * Nkv;
    T* const P_row = P + row * Nkv;
    const int lane = rf::lane_index();
    float* const S_smem = smem + static_cast<size_t>(rf::warp_index()) * Nkv;  // a lane reads back only what it wrote: no barrier

    // -- m = rowmax S, S: HBM -> SMEM --------------------------------------------------------------------------------------
    float m = rf::negative_infinity(), l = 0.0f;
    for (int key = lane; key < Nkv; key += rf::LANES) {
        const float s = rf::to_float(S_row[key]);
        if constexpr (ROW_ON_CHIP) S_smem[key] = s;
        m = fmaxf(m, s);
    }
    m = rf::warp_reduce(m, rf::Max{});
    const float m_safe = rf::finite_or_zero(m);

    // -- l = rowsum exp(S - m) ---------------------------------------------------------------------------------------------
    for (int key = lane; key < Nkv; key += rf::LANES) {
        const float p = rf::exp_fast((ROW_ON_CHIP ? S_smem[key] : rf::to_float(S_row[key])) - m_safe);
        if constexpr (ROW_ON_CHIP) S_smem[key] = p;
        l += p;
    }
    l = rf::warp_reduce(l, rf::Sum{});

    // -- P = exp(S - m) / l, LSE = m + ln l: SMEM -> HBM -------------------------------------------------------------------
    const float inverse_l = rf::inverse_or_zero(l);
    for (int key = lane; key < Nkv; key += rf::LANES) {
        const float p = ROW_ON_CHIP ? S_smem[key] : rf::exp_fast(rf::to_float(S_row[key]) - m_safe);
        P_row[key] = rf::from_float<T>(p * inverse_l);
    }
    if (lane == 0) LSE[row] = rf::log_sum_exp(m, l);
}

// ------------------------------------------------------------------------------- P_drop = P / (1 - dropout_p) where Z, else 0
extern "C" __global__ void
unfused_dropout(const T* __restrict__ P,          // [B, H, N, Nkv]
                T* __restrict__ P_drop,           // [B, H, N, Nkv]
                unsigned char* __restrict__ Z,    // [B, H, N, Nkv], 1: kept
                const int B, const int H, const int N, const int Nkv,
                const unsigned drop_below,        // floor(dropout_p 2^32): smaller numbers drop
                const float inverse_keep,         // 1 / (1 - dropout_p)
                const unsigned long long seed)
{
    const size_t row = rf::warp_row();  // (b*H + h)*N + i
    if (row >= static_cast<size_t>(B) * H * N) return;
    const size_t first = row * Nkv;
    if (Nkv % 4 == 0 && rf::is_aligned4(P) && rf::is_aligned4(P_drop)) {
        for (int key = 4 * rf::lane_index(); key < Nkv; key += 4 * rf::LANES) {
            const float4 p = rf::load_vector4(P + first + key);
            const uint4 number = rf::philox((first + key) / 4, seed);
            const bool x = number.x >= drop_below, y = number.y >= drop_below, z = number.z >= drop_below, w = number.w >= drop_below;
            *reinterpret_cast<uchar4*>(Z + first + key) = make_uchar4(x, y, z, w);
            rf::store_vector4(P_drop + first + key, make_float4(rf::select(x, p.x * inverse_keep, 0.0f), rf::select(y, p.y * inverse_keep, 0.0f),
                                                                rf::select(z, p.z * inverse_keep, 0.0f), rf::select(w, p.w * inverse_keep, 0.0f)));
        }
    } else {
        for (int key = rf::lane_index(); key < Nkv; key += rf::LANES) {
            const uint4 four = rf::philox((first + key) / 4, seed);
            const unsigned n = (first + key) % 4, number = n < 2 ? (n == 0 ? four.x : four.y) : (n == 2 ? four.z : four.w);
            const bool kept = number >= drop_below;
            Z[first + key] = kept;
            P_drop[first + key] = rf::from_float<T>(rf::select(kept, rf::to_float(P[first + key]) * inverse_keep, 0.0f));
        }
    }
}

// ------------------------------------------------------------------------------------------------------------------ O = P V
extern "C" __global__ void __launch_bounds__(THREADS, 1)
unfused_output(const T* __restrict__ P,  // [B, H, N, Nkv], P_drop when there is one
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
