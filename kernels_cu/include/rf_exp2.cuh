// 2^x on the FMA pipe: for the share of the exponentials that the special-function unit need not compute.
//
// Cody & Waite: x = n + f with n = floor(x), so that 2^x = 2^n 2^f and 0 <= f <= 1. 2^f is a polynomial; 2^n is a float whose exponent
// field is n + 127 and nothing else. Adding MAGIC = 3 2^22 + 127, rounded down, does both at once: the unit of such a sum is 1, so that it
// is n + MAGIC, and its lowest bits are n + 127, which a shift moves to where the exponent lies.
//
//                     x + MAGIC, rounded down     0 10010110 1000000000000000 nnnnnnnn        lowest bits: n + 127
//                     shifted left by 23          0 nnnnnnnn 00000000000000000000000          the float 2^n; n = -127: zero
//
// The polynomials are those of FlashAttention-4 (arXiv 2603.05451, table 2): the smallest worst relative error on [0, 1) among those that
// are 1 at 0. Degree 3: 8.8e-5 = 2^-13.5, 4: 3.0e-6 = 2^-18.4, 5: 1.4e-7, as good as ex2.approx. Rounding to fp16 costs up to 2^-11, to
// bf16 2^-8, so degree 3 is enough for P; but the sum of P goes into LSE unrounded.
#pragma once

namespace rf {

/// Coefficients from the highest power down to the first; the one of power 0 is 1.
template <int DEGREE>
struct Exp2Coefficients;
template <>
struct Exp2Coefficients<3> { static constexpr float at[] = {0.0771190897f, 0.2275643945f, 0.6951461434f}; };
template <>
struct Exp2Coefficients<4> { static constexpr float at[] = {0.0134266837f, 0.0522424753f, 0.2412802041f, 0.6930448450f}; };
template <>
struct Exp2Coefficients<5> { static constexpr float at[] = {0.0018671302f, 0.0090170300f, 0.0557999134f, 0.2401644500f, 0.6931513118f}; };

/// 2^x for x < 128 and NaN, with the relative error of the degree; 1 at 0, exactly; 0 below -126, as ex2.approx.ftz flushes; 2^-inf = 0, 2^NaN = NaN.
template <int DEGREE>
__device__ __forceinline__ float exp2_polynomial(float x) {
    constexpr float MAGIC = 3 * (1 << 22) + 127;
    float above;  // max(x, -127), but NaN stays: fmaxf would drop it
    asm("max.ftz.NaN.f32 %0, %1, %2;" : "=f"(above) : "f"(x), "f"(-127.0f));
    const float moved = __fadd_rd(above, MAGIC), f = above - (moved - MAGIC);
    float p = Exp2Coefficients<DEGREE>::at[0];
#pragma unroll
    for (int k = 1; k < DEGREE; ++k) p = fmaf(p, f, Exp2Coefficients<DEGREE>::at[k]);
    p = fmaf(p, f, 1.0f);
    return p * __int_as_float(__float_as_int(moved) << 23);
}

}  // namespace rf
