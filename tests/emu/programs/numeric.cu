// Number formats: double, half, bfloat16, fp8, bits, and the maths library's functions in float and double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ float mantissa_plus_exponent(float x) {
    int e;
    float m = frexpf(x, &e);
    return m + (float)e;
}

#define UNARY(name, type, expression)                                      \
    extern "C" __global__ void name(const type* X, type* out, int n) {     \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                     \
        if (i < n) {                                                       \
            type x = X[i];                                                 \
            out[i] = expression;                                           \
        }                                                                  \
    }

UNARY(f_exp, float, expf(x))
UNARY(f_log, float, logf(x))
UNARY(f_sin, float, sinf(x))
UNARY(f_cos, float, cosf(x))
UNARY(f_tan, float, tanf(x))
UNARY(f_tanh, float, tanhf(x))
UNARY(f_erf, float, erff(x))
UNARY(f_cbrt, float, cbrtf(x))
UNARY(f_atan, float, atanf(x))
UNARY(f_exp2, float, exp2f(x))
UNARY(f_log1p, float, log1pf(x))
UNARY(f_expm1, float, expm1f(x))
UNARY(f_rsqrt, float, rsqrtf(x))
UNARY(f_sqrt, float, sqrtf(x))
UNARY(f_recip, float, 1.0f / x)
UNARY(f_round, float, roundf(x))
UNARY(f_rint, float, rintf(x))
UNARY(f_floor, float, floorf(x))
UNARY(f_trunc, float, truncf(x))
UNARY(f_pow, float, powf(fabsf(x), 1.7f))
UNARY(f_fmod, float, fmodf(x, 0.7f))
UNARY(f_frexp, float, mantissa_plus_exponent(x))
UNARY(f_ldexp, float, ldexpf(x, (i % 9) - 4))
UNARY(d_exp, double, exp(x))
UNARY(d_log, double, log(x))
UNARY(d_sin, double, sin(x))
UNARY(d_cos, double, cos(x))
UNARY(d_tanh, double, tanh(x))
UNARY(d_sqrt, double, sqrt(x))
UNARY(d_recip, double, 1.0 / x)
UNARY(d_pow, double, pow(fabs(x), 1.7))
UNARY(d_erf, double, erf(x))
UNARY(d_floor, double, floor(x))
UNARY(d_fma, double, fma(x, x, -1.0))

extern "C" __global__ void half_math(const half2* a, const half2* b, half2* out, half* scalar) {
    int i = threadIdx.x;
    half2 v = __hfma2(a[i], b[i], __hmul2(a[i], a[i]));
    v = __hmax2(v, __floats2half2_rn(-1.f, 0.25f));
    out[i] = __hadd2(v, __hneg2(b[i]));
    half s = __hsub(__low2half(a[i]), __high2half(b[i]));
    scalar[i] = __hgt(s, __float2half(0.5f)) ? hexp2(s) : __hdiv(s, __float2half(3.f));
}

extern "C" __global__ void bfloat_math(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* out, float* wide) {
    int i = threadIdx.x;
    __nv_bfloat162 v = __hfma2(a[i], b[i], b[i]);
    out[i] = __hmin2(v, a[i]);
    wide[i] = __bfloat162float(__low2bfloat16(a[i])) * 3.f + __high2float(b[i]);
}

extern "C" __global__ void pack_order(unsigned* out) {
    half2 h = __floats2half2_rn(1.f, 2.f);
    __nv_bfloat162 b = __floats2bfloat162_rn(1.f, 2.f);
    out[0] = *(unsigned*)&h;
    out[1] = *(unsigned*)&b;
}

extern "C" __global__ void fp8_round_trip(const float* x, unsigned char* e4m3, unsigned char* e5m2, float* back) {
    int i = threadIdx.x;
    __nv_fp8_e4m3 p(x[i]);
    __nv_fp8_e5m2 q(x[i]);
    e4m3[i] = p.__x;
    e5m2[i] = q.__x;
    back[i] = float(p) + float(q);
}

extern "C" __global__ void bit_tricks(const unsigned* a, const unsigned* b, unsigned* out) {
    int i = threadIdx.x;
    unsigned x = a[i], y = b[i], r[10];
    r[0] = __brev(x);
    r[1] = __byte_perm(x, y, 0x3715);
    r[2] = __funnelshift_l(x, y, i);
    r[3] = __umulhi(x, y);
    r[4] = __ffs(x) + 64 * __clz(y) + 4096 * __popc(x ^ y);
    r[5] = __dp4a((int)x, (int)y, 7);
    r[6] = __vadd4(x, y);
    r[7] = __usad(x, y, 5u);
    r[8] = (x & y) | (~x & 0x0f0f0f0fu);
    r[9] = (unsigned)((long long)(int)x * (int)y >> 20);
    for (int k = 0; k < 10; ++k) out[k * 64 + i] = r[k];
}
