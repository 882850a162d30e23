// Histograms: shared atomics per CTA merged with global ones; and straight to global memory.
extern "C" __global__ void histogram_shared(const unsigned char* x, unsigned* bins, int n) {
    __shared__ unsigned local[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (local[b]) atomicAdd(&bins[b], local[b]);
}

extern "C" __global__ void histogram_global(const unsigned char* x, unsigned long long* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i] & 15], 1ull);
}

// Warp-aggregated append: one atomic per warp reserves places for all lanes that keep their element.
extern "C" __global__ void compact(const int* x, int* out, unsigned* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool keep = i < n && x[i] % 3 == 0;
    if (keep) {
        unsigned active = __activemask();
        int lane = threadIdx.x & 31, leader = __ffs(active) - 1;
        unsigned base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(active));
        base = __shfl_sync(active, base, leader);
        out[base + __popc(active & ((1u << lane) - 1))] = x[i];
    }
}

// The same grouped by key: lanes with equal keys agree on one atomic.
extern "C" __global__ void count_keys(const int* key, unsigned* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned peers = __match_any_sync(__activemask(), key[i]);
    if ((threadIdx.x & 31) == __ffs(peers) - 1) atomicAdd(&count[key[i]], __popc(peers));
}

extern "C" __global__ void atomic_zoo(int* i32, unsigned* u32, unsigned long long* u64, float* f32, double* f64) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMin(&i32[0], t - 100);
    atomicMax(&i32[1], t - 100);
    atomicSub(&i32[2], t);
    atomicAnd(&u32[0], ~(1u << (t & 31)));
    atomicOr(&u32[1], 1u << (t & 15));
    atomicXor(&u32[2], 1u << (t & 31));
    atomicInc(&u32[3], 6u);
    atomicDec(&u32[4], 9u);
    atomicMax(&u64[0], (unsigned long long)t << 33);
    atomicExch(&u64[1], 77ull);
    atomicCAS(&u64[2], 5ull, 9ull);
    atomicAdd(&u64[3], 1ull << 40);
    atomicAdd(&f32[0], 0.5f);
    atomicAdd(&f64[0], 0.25);
    unsigned seen = u32[5], old;
    do {  // a spin-free compare-and-swap loop: lanes that lose try again
        old = seen;
        seen = atomicCAS(&u32[5], old, old + 2u);
    } while (seen != old);
}
