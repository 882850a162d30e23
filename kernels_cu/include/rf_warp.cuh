// Names of places in a CTA and among the heads, and sums and maxima over the 32 lanes of a warp.
#pragma once

namespace rf {

constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

__device__ __forceinline__ int lane_index() { return threadIdx.x % LANES; }

/// Number of this warp in a one-dimensional CTA. The shuffle tells the compiler that it is one value for the whole warp; so
/// call it where all lanes are.
__device__ __forceinline__ int warp_index() { return __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x) / LANES, 0); }

/// b*Hkv + g from b*H + h: the key/value head of a query head (g = h / (H / Hkv)).
__device__ __forceinline__ unsigned kv_head(unsigned bh, unsigned H, unsigned Hkv) { return bh / H * Hkv + bh % H / (H / Hkv); }

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a - 1) / b + 1; }  // a >= 1: cannot overflow
__host__ __device__ constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

/// A number in a type, so that it stays a constant when it is handed to a function.
template <int VALUE>
struct Int {
    __device__ __forceinline__ constexpr operator int() const { return VALUE; }
};

/// f(Int<0>{}), ..., f(Int<N - 1>{}): a loop whose counter may become part of an instruction.
template <int N, int I = 0, class F>
__device__ __forceinline__ void unrolled(const F& f) {
    if constexpr (I < N) {
        f(Int<I>{});
        unrolled<N, I + 1>(f);
    }
}

struct Max {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

/// condition ? a : b as one instruction. Left to itself the compiler makes branches of some of these, and lanes diverge.
__device__ __forceinline__ float select(bool condition, float a, float b) {
    float y;
    asm("{ .reg .pred p; setp.ne.s32 p, %3, 0; selp.f32 %0, %1, %2, p; }" : "=f"(y) : "f"(a), "f"(b), "r"(static_cast<int>(condition)));
    return y;
}

/// False, since all grids have one dimension; but no compiler knows that, and none moves arithmetic across a branch. `if (never()) continue;`
/// keeps the registers of what follows apart from those of what comes before.
__device__ __forceinline__ bool never() {
    unsigned y;
    asm volatile("mov.u32 %0, %%tid.y;" : "=r"(y));
    return y != 0;
}

/// op over the 32 values of x, in every lane.
template <class Op>
__device__ __forceinline__ float warp_reduce(float x, Op op) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

/// ROWS reductions at once: lane L gets op over all lanes of x[L % ROWS]. Destroys x.
///
/// Lanes that differ in bit `half` share the rows between them, each sending the half that it does not keep: 7 + 2 shuffles
/// for 8 rows, where one reduction per row would take 40.
template <int ROWS, class Op>
__device__ __forceinline__ float reduce_rows(float (&x)[ROWS], Op op) {
    static_assert(ROWS > 0 && LANES % ROWS == 0, "ROWS is a power of two of at most 32");
#pragma unroll
    for (int half = ROWS / 2; half > 0; half /= 2) {
        const bool upper = lane_index() & half;
#pragma unroll
        for (int r = 0; r < half; ++r) {
            const float sent = select(upper, x[r], x[r + half]);
            x[r] = op(select(upper, x[r + half], x[r]), __shfl_xor_sync(ALL_LANES, sent, half));
        }
    }
    float y = x[0];
#pragma unroll
    for (int step = ROWS; step < LANES; step *= 2) y = op(y, __shfl_xor_sync(ALL_LANES, y, step));
    return y;
}

}  // namespace rf
