// A double-buffered pipeline on cp.async: tile t + 1 is in flight while tile t is summed. The last tile is cut with zero-fill.
#include <cuda_pipeline.h>
#define TILE 256
extern "C" __global__ void pipeline_sum(const float4* x, float4* out, int tiles, int n) {
    __shared__ float4 stage[2][TILE];
    int t = threadIdx.x;
    auto fetch = [&](int tile) {
        int i = tile * TILE + t;
        unsigned target = __cvta_generic_to_shared(&stage[tile & 1][t]);
        const float4* source = x + (i < n ? i : 0);
        int bytes = i < n ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes));
        asm volatile("cp.async.commit_group;");
    };
    float4 acc = make_float4(0.f, 0.f, 0.f, 0.f);
    fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) {
            fetch(tile + 1);
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        float4 v = stage[tile & 1][t ^ 1];
        acc.x += v.x;
        acc.y += v.y;
        acc.z += v.z;
        acc.w += v.w;
        __syncthreads();
    }
    out[t] = acc;
}

extern "C" __global__ void pipeline_api(const int* x, int* out, int n) {
    __shared__ int buffer[128];
    for (int base = 0; base < n; base += 128) {
        __pipeline_memcpy_async(&buffer[threadIdx.x], &x[base + threadIdx.x], 4);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        out[base + threadIdx.x] = buffer[127 - threadIdx.x];
        __syncthreads();
    }
}
