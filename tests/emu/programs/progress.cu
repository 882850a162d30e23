// Warps and CTAs that wait for each other through memory: right on hardware whose warps advance independently.
extern "C" __global__ void lock_between_warps(int* lock, int* counter) {
    if ((threadIdx.x & 31) == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {
        }
        __threadfence();
        int seen = *(volatile int*)counter;
        *(volatile int*)counter = seen + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

extern "C" __global__ void lock_inside_a_warp(int* lock, int* counter) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *(volatile int*)counter += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Every CTA waits for the one before it (a chained scan).
extern "C" __global__ void chained_scan(const int* x, volatile int* prefix, volatile int* ready, int* out) {
    __shared__ int before;
    int cta = blockIdx.x;
    if (threadIdx.x == 0) {
        if (cta > 0)
            while (ready[cta - 1] == 0) {
            }
        __threadfence();
        before = cta > 0 ? prefix[cta - 1] : 0;
        int sum = 0;
        for (int k = 0; k < 32; ++k) sum += x[cta * 32 + k];
        prefix[cta] = before + sum;
        __threadfence();
        ready[cta] = 1;
    }
    __syncthreads();
    out[cta * 32 + threadIdx.x] = before + x[cta * 32 + threadIdx.x];
}

// The last CTA to finish adds up what the others left (the threadfence reduction).
extern "C" __global__ void last_cta_sums(const int* x, int* partial, unsigned* finished, int* out) {
    __shared__ bool last;
    int sum = 0;
    for (int k = threadIdx.x; k < 64; k += blockDim.x) sum += x[blockIdx.x * 64 + k];
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int total = 0;
        for (int k = 0; k < gridDim.x; ++k) total += ((volatile int*)partial)[k];
        out[0] = total;
    }
}

// Warp 1 passes values to warp 0 through a flag in shared memory, one at a time.
extern "C" __global__ void mailbox(const int* x, int* out, int count) {
    __shared__ volatile int full;
    __shared__ volatile int value;
    if (threadIdx.x == 0) full = 0;
    __syncthreads();
    int lane = threadIdx.x & 31;
    if (threadIdx.x < 32) {
        for (int k = 0; k < count; ++k)
            if (lane == 0) {
                while (!full) {
                }
                __threadfence_block();
                out[k] = value;
                __threadfence_block();
                full = 0;
            }
    } else {
        for (int k = 0; k < count; ++k)
            if (lane == 0) {
                while (full) {
                }
                value = x[k];
                __threadfence_block();
                full = 1;
            }
    }
}
