// 2^x of many floats by rf_exp2.cuh, for test_fa2_lazy.py: one a thread.
#include "rf_exp2.cuh"

extern "C" __global__ void exponentials(const float* __restrict__ x, float* __restrict__ y, const int n, const int degree)
{
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n) return;
    y[at] = degree == 3 ? rf::exp2_polynomial<3>(x[at]) : degree == 4 ? rf::exp2_polynomial<4>(x[at]) : rf::exp2_polynomial<5>(x[at]);
}
