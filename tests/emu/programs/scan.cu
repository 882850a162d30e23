// Inclusive scans of one CTA: warp shuffles with a scan of the warp totals, and the doubling scan in shared memory.
extern "C" __global__ void scan_shuffle(const int* x, int* out, int n) {
    __shared__ int totals[32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    int v = t < n ? x[t] : 0;
    for (int step = 1; step < 32; step <<= 1) {
        int below = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step) v += below;
    }
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int sum = lane < blockDim.x / 32 ? totals[lane] : 0;
        for (int step = 1; step < 32; step <<= 1) {
            int below = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += below;
        }
        totals[lane] = sum;
    }
    __syncthreads();
    if (warp > 0) v += totals[warp - 1];
    if (t < n) out[t] = v;
}

extern "C" __global__ void scan_doubling(const float* x, float* out) {
    extern __shared__ float buffer[];
    int t = threadIdx.x, n = blockDim.x;
    float *from = buffer, *to = buffer + n;
    from[t] = x[blockIdx.x * n + t];
    __syncthreads();
    for (int step = 1; step < n; step <<= 1) {
        to[t] = t >= step ? from[t] + from[t - step] : from[t];
        __syncthreads();
        float* swap = from;
        from = to;
        to = swap;
    }
    out[blockIdx.x * n + t] = from[t];
}
