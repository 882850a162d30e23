// (1) The softmax of long rows, and its K largest entries: what fusing and the online recurrence save before any attention is involved.
//
// (2) Before the first rung: the recurrence on its own. softmax_naive reads a row twice but overflows; softmax_safe subtracts the maximum and
//     reads it three times; softmax_online finds maximum and sum in one pass and is back at two. Followed by top-k, Y itself need not exist.
//
// (3) Math (Algorithms 1 to 4 of arXiv 1805.02867), per row:
//       naive     l = sum exp(x)                                     y = exp(x) / l
//       safe      m = max x,   l = sum exp(x - m)                    y = exp(x - m) / l
//       online    m' = max(m, x),   l = l exp(m - m') + exp(x - m')  y = exp(x - m) / l
//     Two partial (m, l) merge like one more step; the K largest y are the softmax of the K largest x.
//
// (4) Who owns what: CTA = row, blockIdx.x, 256 threads; thread t owns the columns t, t + 256, ...; each warp keeps its own K largest, warp 0
//     merges them (picture in rf_topk.cuh).
//
// (5) HBM bytes (w bytes per element of X and Y; values are float, indices int):
//       softmax_naive.X        read  = 2*batch*V*w
//       softmax_naive.Y        write = batch*V*w                     with X: 3 accesses per element
//       softmax_safe.X         read  = 3*batch*V*w
//       softmax_safe.Y         write = batch*V*w                     with X: 4
//       softmax_online.X       read  = 2*batch*V*w
//       softmax_online.Y       write = batch*V*w                     with X: 3
//       topk.Y                 read  = batch*V*w                     after safe: 5, after online: 4
//       topk.values            write = batch*K*4
//       topk.indices           write = batch*K*4
//       softmax_topk_safe.X    read  = 2*batch*V*w                   2
//       softmax_topk_safe.values    write = batch*K*4
//       softmax_topk_safe.indices   write = batch*K*4
//       softmax_topk_online.X  read  = batch*V*w                     1
//       softmax_topk_online.values  write = batch*K*4
//       softmax_topk_online.indices write = batch*K*4
//
// (6) SMEM bytes, static: a partial result per warp, and its K largest:
//       softmax_naive smem       = 8*4
//       softmax_safe smem        = 8*8
//       softmax_online smem      = 8*8
//       topk smem                = 8*8*K
//       softmax_topk_safe smem   = 8*8 + 8*8*K
//       softmax_topk_online smem = 8*8 + 8*8*K
//
// (7) Numerics: fp32. NaN in a row: y is NaN and the K largest are those of the numbers, with value NaN. A row of -inf: y = 0. Equal
//     values: the smaller index first. V < K: the rest has value 0 and index -1.
//
// (8) Needs: 1 <= V < 2^30, K between 1 and 64, contiguous rows.
#include "rf_topk.cuh"
#include "rf_types.cuh"

using T = rf::RF_DTYPE;
constexpr int K = RF_K, WARPS = 8, THREADS = WARPS * rf::LANES;
static_assert(K >= 1 && K <= 64, "K must be between 1 and 64");

/// Maximum and sum of exponentials of what has been read: l = sum exp(x - m), and 0 while m = -inf.
struct Partial {
    float m = rf::negative_infinity(), l = 0.0f;

    __device__ __forceinline__ void merge(float m_other, float l_other) {
        const float m_new = fmaxf(m, m_other), m_safe = rf::finite_or_zero(m_new);
        l = l * rf::exp_fast(m - m_safe) + l_other * rf::exp_fast(m_other - m_safe);
        m = m_new;
    }

    __device__ __forceinline__ void step(float x) {
        const float m_new = fmaxf(m, x), m_safe = rf::finite_or_zero(m_new);
        l = l * rf::exp_fast(m - m_safe) + rf::exp_fast(x - m_safe);
        m = m_new;
    }
};

/// op over all threads of the CTA, in every thread. `partial` [WARPS] in SMEM may be used once per launch.
template <class Op>
__device__ __forceinline__ float cta_reduce(float x, Op op, float* partial) {
    const int warp = rf::warp_index();
    x = rf::warp_reduce(x, op);
    if (rf::lane_index() == 0) partial[warp] = x;
    __syncthreads();  // so that every warp sees the partial results of all
    x = partial[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) x = op(x, partial[w]);
    return x;
}

__device__ __forceinline__ Partial cta_merge(Partial x, float* m_smem, float* l_smem) {
    const int warp = rf::warp_index();
#pragma unroll
    for (int step = rf::LANES / 2; step > 0; step /= 2)
        x.merge(__shfl_xor_sync(rf::ALL_LANES, x.m, step), __shfl_xor_sync(rf::ALL_LANES, x.l, step));
    if (rf::lane_index() == 0) m_smem[warp] = x.m, l_smem[warp] = x.l;
    __syncthreads();  // so that every warp sees the partial results of all
    x = {m_smem[0], l_smem[0]};
#pragma unroll
    for (int w = 1; w < WARPS; ++w) x.merge(m_smem[w], l_smem[w]);
    return x;
}

/// Y = exp(X - m) / l, one more pass over X.
__device__ __forceinline__ void write_row(T* Y, const T* X, int V, float m, float l) {
    const float m_safe = rf::finite_or_zero(m), inverse_l = rf::inverse_or_zero(l);
    for (int v = threadIdx.x; v < V; v += THREADS) Y[v] = rf::from_float<T>(rf::exp_fast(rf::to_float(X[v]) - m_safe) * inverse_l);
}

/// The warps' K largest -> SMEM -> warp 0 -> HBM, each value through `softmax`.
template <class Softmax>
__device__ __forceinline__ void write_topk(rf::TopK<K>& top, rf::Entry* lists, float* values, int* indices, Softmax softmax) {
    const int lane = rf::lane_index(), warp = rf::warp_index();
#pragma unroll
    for (int s = 0; s < top.SLOTS; ++s)
        if (s * rf::LANES + lane < K) lists[warp * K + s * rf::LANES + lane] = top.entries[s];
    __syncthreads();  // so that warp 0 sees the lists of all warps
    if (warp > 0) return;
    for (int first = K; first < WARPS * K; first += rf::LANES)
        top.offer(first + lane < WARPS * K ? lists[first + lane] : rf::Entry{rf::negative_infinity(), rf::NO_INDEX});
#pragma unroll
    for (int s = 0; s < top.SLOTS; ++s) {
        const int rank = s * rf::LANES + lane;
        const bool real = top.entries[s].index != rf::NO_INDEX;
        if (rank < K) values[rank] = real ? softmax(top.entries[s].value) : 0.0f, indices[rank] = real ? top.entries[s].index : -1;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
softmax_naive(const T* __restrict__ X,  // [batch, V]
              T* __restrict__ Y,        // [batch, V]
              const int V)
{
    __shared__ float l_smem[WARPS];
    X += static_cast<size_t>(blockIdx.x) * V, Y += static_cast<size_t>(blockIdx.x) * V;
    float l = 0.0f;
    for (int v = threadIdx.x; v < V; v += THREADS) l += rf::exp_fast(rf::to_float(X[v]));
    write_row(Y, X, V, 0.0f, cta_reduce(l, rf::Sum{}, l_smem));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
softmax_safe(const T* __restrict__ X,  // [batch, V]
             T* __restrict__ Y,        // [batch, V]
             const int V)
{
    __shared__ float m_smem[WARPS], l_smem[WARPS];
    X += static_cast<size_t>(blockIdx.x) * V, Y += static_cast<size_t>(blockIdx.x) * V;
    float m = rf::negative_infinity(), l = 0.0f;
    for (int v = threadIdx.x; v < V; v += THREADS) m = fmaxf(m, rf::to_float(X[v]));
    m = cta_reduce(m, rf::Max{}, m_smem);
    for (int v = threadIdx.x; v < V; v += THREADS) l += rf::exp_fast(rf::to_float(X[v]) - rf::finite_or_zero(m));
    write_row(Y, X, V, m, cta_reduce(l, rf::Sum{}, l_smem));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
softmax_online(const T* __restrict__ X,  // [batch, V]
               T* __restrict__ Y,        // [batch, V]
               const int V)
{
    __shared__ float m_smem[WARPS], l_smem[WARPS];
    X += static_cast<size_t>(blockIdx.x) * V, Y += static_cast<size_t>(blockIdx.x) * V;
    Partial x;
    for (int v = threadIdx.x; v < V; v += THREADS) x.step(rf::to_float(X[v]));
    x = cta_merge(x, m_smem, l_smem);
    write_row(Y, X, V, x.m, x.l);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
topk(const T* __restrict__ Y,     // [batch, V]
     float* __restrict__ values,  // [batch, K]
     int* __restrict__ indices,   // [batch, K]
     const int V)
{
    __shared__ rf::Entry lists[WARPS * K];
    Y += static_cast<size_t>(blockIdx.x) * V;
    rf::TopK<K> top;
    for (int v0 = rf::warp_index() * rf::LANES; v0 < V; v0 += THREADS) {
        const int v = v0 + rf::lane_index();
        top.offer({v < V ? rf::to_float(Y[v]) : rf::negative_infinity(), v < V ? v : rf::NO_INDEX});
    }
    write_topk(top, lists, values + blockIdx.x * static_cast<size_t>(K), indices + blockIdx.x * static_cast<size_t>(K), [](float y) { return y; });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
softmax_topk_safe(const T* __restrict__ X,     // [batch, V]
                  float* __restrict__ values,  // [batch, K]
                  int* __restrict__ indices,   // [batch, K]
                  const int V)
{
    __shared__ float m_smem[WARPS], l_smem[WARPS];
    __shared__ rf::Entry lists[WARPS * K];
    X += static_cast<size_t>(blockIdx.x) * V;
    float m = rf::negative_infinity(), l = 0.0f;
    for (int v = threadIdx.x; v < V; v += THREADS) m = fmaxf(m, rf::to_float(X[v]));
    const float m_safe = rf::finite_or_zero(cta_reduce(m, rf::Max{}, m_smem));
    rf::TopK<K> top;
    for (int v0 = rf::warp_index() * rf::LANES; v0 < V; v0 += THREADS) {
        const int v = v0 + rf::lane_index();
        const float x = v < V ? rf::to_float(X[v]) : rf::negative_infinity();
        l += rf::exp_fast(x - m_safe);
        top.offer({x, v < V ? v : rf::NO_INDEX});
    }
    const float inverse_l = rf::inverse_or_zero(cta_reduce(l, rf::Sum{}, l_smem));
    write_topk(top, lists, values + blockIdx.x * static_cast<size_t>(K), indices + blockIdx.x * static_cast<size_t>(K),
               [=](float x) { return rf::exp_fast(x - m_safe) * inverse_l; });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
softmax_topk_online(const T* __restrict__ X,     // [batch, V]
                    float* __restrict__ values,  // [batch, K]
                    int* __restrict__ indices,   // [batch, K]
                    const int V)
{
    __shared__ float m_smem[WARPS], l_smem[WARPS];
    __shared__ rf::Entry lists[WARPS * K];
    X += static_cast<size_t>(blockIdx.x) * V;
    Partial all;
    rf::TopK<K> top;
    for (int v0 = rf::warp_index() * rf::LANES; v0 < V; v0 += THREADS) {
        const int v = v0 + rf::lane_index();
        const float x = v < V ? rf::to_float(X[v]) : rf::negative_infinity();
        all.step(x);
        top.offer({x, v < V ? v : rf::NO_INDEX});
    }
    all = cta_merge(all, m_smem, l_smem);
    const float m_safe = rf::finite_or_zero(all.m), inverse_l = rf::inverse_or_zero(all.l);
    write_topk(top, lists, values + blockIdx.x * static_cast<size_t>(K), indices + blockIdx.x * static_cast<size_t>(K),
               [=](float x) { return rf::exp_fast(x - m_safe) * inverse_l; });
}
