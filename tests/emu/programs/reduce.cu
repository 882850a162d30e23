// Sums: warp shuffles, then shared memory, then one atomic per CTA. Integer sums are exact in any order.
__inline__ __device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step >>= 1) v += __shfl_down_sync(0xffffffffu, v, step);
    return v;
}

extern "C" __global__ void sum_shuffle(const float* x, float* out, int n) {
    __shared__ float partial[32];
    float v = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < (blockDim.x + 31) / 32 ? partial[threadIdx.x] : 0.f;
        v = warp_sum(v);
        if (threadIdx.x == 0) out[blockIdx.x] = v;
    }
}

extern "C" __global__ void sum_tree(const int* x, int* total, int n) {
    extern __shared__ int s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) s[threadIdx.x] += s[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, s[0]);
}

extern "C" __global__ void max_redux(const unsigned* x, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = i < n ? x[i] : 0u;
    v = __reduce_max_sync(0xffffffffu, v);
    if ((threadIdx.x & 31) == 0) atomicMax(out, v);
}

extern "C" __global__ void vote_counts(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = i < n ? x[i] : 0;
    unsigned odd = __ballot_sync(0xffffffffu, v & 1);
    int all = __all_sync(0xffffffffu, v > 0), any = __any_sync(0xffffffffu, v > 90);
    int votes = __syncthreads_count(v & 1);
    if ((threadIdx.x & 31) == 0) {
        int w = i >> 5;
        out[4 * w] = __popc(odd);
        out[4 * w + 1] = all;
        out[4 * w + 2] = any;
        out[4 * w + 3] = votes;
    }
}
