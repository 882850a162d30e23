// synccheck: barriers and warp-synchronous instructions met by the wrong threads, and look-alikes met by the right ones.
#define FULL 0xffffffffu
extern "C" __global__ void barrier_in_half_a_warp(int* out) {
    if (threadIdx.x < 16) __syncthreads();  // barrier_in_half_a_warp
    out[threadIdx.x] = 1;
}
extern "C" __global__ void two_barriers_for_one(int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    if (threadIdx.x < 32) {
        s[threadIdx.x] = 1;
        __syncthreads();  // first of two
    } else {
        s[threadIdx.x] = 2;
        __syncthreads();  // second of two
        s[threadIdx.x] += 1;
    }
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void trip_counts_differ(const int* x, int* out) {
    int sum = 0;
    for (int k = 0; k < x[threadIdx.x]; ++k) {
        sum += k;
        __syncthreads();  // trip_counts_differ
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void butterfly_of_48(const int* x, int* out) {
    int v = x[threadIdx.x];
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(FULL, v, step);  // butterfly_of_48
    out[threadIdx.x] = v;
}
extern "C" __global__ void source_outside_mask(const int* x, int* out) {
    int v = x[threadIdx.x];
    if (threadIdx.x == 0) v += __shfl_down_sync(1u, v, 1);  // source_outside_mask
    out[threadIdx.x] = v;
}
extern "C" __global__ void lanes_outside_mask(const int* x, int* out) {
    out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);  // lanes_outside_mask
}
extern "C" __global__ void syncwarp_of_half_a_warp(int* out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = threadIdx.x;
        __syncwarp(FULL);  // syncwarp_of_half_a_warp
        out[threadIdx.x ^ 1] += 1;
    }
    out[threadIdx.x] += 1;
}
extern "C" __global__ void too_few_arrive(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");  // too_few_arrive
    out[threadIdx.x] = 1;
}
extern "C" __global__ void not_a_multiple_of_a_warp(int* out, int n) {
    asm volatile("bar.sync 1, %0;" ::"r"(n) : "memory");  // not_a_multiple_of_a_warp
    out[threadIdx.x] = 1;
}
extern "C" __global__ void ballot_names_absent_lanes(int* out) {
    int votes = 0;
    if (threadIdx.x & 1) votes = __ballot_sync(FULL, threadIdx.x > 5);  // ballot_names_absent_lanes
    out[threadIdx.x] += votes;
}
extern "C" __global__ void never_ends(volatile int* flag, int* out) {
    while (flag[0] == 0) out[threadIdx.x] = 1;
}
extern "C" __global__ void waits_for_a_later_warp(volatile int* flag, int* out) {
    if (threadIdx.x / 32 == 0)
        while (flag[0] == 0) {
        }
    else
        flag[0] = 1;
    out[threadIdx.x] = 1;
}

// ---- without a fault
extern "C" __global__ void exit_before_barrier(int* out, int n) {
    __shared__ int s[64];
    if (threadIdx.x >= n) return;
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[n - 1 - threadIdx.x];
}
extern "C" __global__ void syncwarp_with_the_exited(int* out) {
    if (threadIdx.x >= 20) return;
    out[threadIdx.x] = threadIdx.x;
    __syncwarp(FULL);  // lanes that have exited need not come
    out[threadIdx.x ^ 1] += 1;
}
extern "C" __global__ void half_warp_reduction(const int* x, int* out) {
    if (threadIdx.x < 16) {
        int v = x[threadIdx.x];
        for (int step = 8; step; step >>= 1) v += __shfl_down_sync(0xffffu, v, step, 16);
        if (threadIdx.x == 0) out[0] = v;
    }
}
extern "C" __global__ void uniform_condition(const int* x, int* out, int n) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    if (n > 3) __syncthreads();
    for (int k = 0; k < n; ++k) {
        int v = s[(threadIdx.x + 1) & 63];
        __syncthreads();
        s[threadIdx.x] = v;
        __syncthreads();
    }
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void half_the_cta(const int* x, int* out) {
    __shared__ int s[128];
    s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x] = s[63 - threadIdx.x];
    } else {
        out[threadIdx.x] = s[threadIdx.x];
    }
}
extern "C" __global__ void masks_of_both_branches(const int* x, int* out) {
    int v = x[threadIdx.x];
    if (threadIdx.x & 1) {
        __syncwarp(0xaaaaaaaau);
        v += __shfl_xor_sync(0xaaaaaaaau, v, 2);
    } else {
        __syncwarp(0x55555555u);
        v -= __shfl_xor_sync(0x55555555u, v, 4);
    }
    out[threadIdx.x] = v;
}
extern "C" __global__ void partial_last_warp(const int* x, int* out) {
    unsigned here = threadIdx.x < 32 ? FULL : 0xffffu;  // 48 threads
    int v = x[threadIdx.x];
    for (int step = 8; step; step >>= 1) v += __shfl_xor_sync(here, v, step);
    out[threadIdx.x] = v;
}
extern "C" __global__ void whoever_is_here(const int* x, int* out) {
    if (x[threadIdx.x] > 0) {
        unsigned here = __activemask();
        out[threadIdx.x] = __popc(here) + __shfl_sync(here, x[threadIdx.x], __ffs(here) - 1);
    } else {
        out[threadIdx.x] = 0;
    }
}
