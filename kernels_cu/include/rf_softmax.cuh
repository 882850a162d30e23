// The scalar pieces of the online softmax, with the guards that -inf needs.
//
//   m' = max(m, max_j s_j)    alpha = exp(m - m')    l' = alpha l + sum_j exp(s_j - m')    LSE = m + ln l
//
// m starts at -inf, l at 0. While a row has seen nothing but -inf, m' is -inf and m - m' would be NaN: finite_or_zero(m') is
// subtracted instead, which makes alpha and all weights exp(-inf) = 0. fmaxf drops NaN, so a NaN score does not reach m; it
// reaches l, through exp(NaN), and from there O and LSE. A +inf score gives inf - inf = NaN, as the plain softmax does.
#pragma once

namespace rf {

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float finite_or_zero(float m) { return m == negative_infinity() ? 0.0f : m; }

/// exp(x) as ex2.approx(x log2 e): relative error about 2 + |x| units of 2^-23. exp(-inf) = 0, exp(NaN) = NaN.
__device__ __forceinline__ float exp_fast(float x) { return __expf(x); }

constexpr float LOG2_E = 1.44269504f;

/// 2^x as ex2.approx: relative error 2^-22. 2^-inf = 0, 2^NaN = NaN.
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/// 1/l, but 0 for a row that saw no key (l = 0 exactly; otherwise l >= 1 or NaN).
__device__ __forceinline__ float inverse_or_zero(float l) { return l == 0.0f ? 0.0f : 1.0f / l; }

/// m + ln l, and -inf for a row that saw no key.
__device__ __forceinline__ float log_sum_exp(float m, float l) { return l == 0.0f ? negative_infinity() : m + logf(l); }

}  // namespace rf
