// Waiting: barriers of the whole grid, locks, producers and consumers with named barriers and with mbarriers, staged copies.
#include <cuda_pipeline.h>

// Every CTA adds to every cell of the next step, behind a barrier of the grid made of one counter.
extern "C" __global__ void grid_barrier(int* cells, unsigned* arrived, int steps) {
    for (int step = 0; step < steps; ++step) {
        int next = (blockIdx.x + step) % gridDim.x;
        if (threadIdx.x == 0) cells[next] = 10 * cells[next] + step;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1u);
            while (atomicAdd(arrived, 0u) < gridDim.x * (step + 1)) {
            }
            __threadfence();
        }
        __syncthreads();
    }
}

// One lock per CTA in shared memory; a leader of every warp takes it.
extern "C" __global__ void lock_per_block(int* out) {
    __shared__ int lock, sum, order[32];
    if (threadIdx.x == 0) lock = sum = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        while (atomicExch(&lock, 1)) __nanosleep(100);
        order[sum] = threadIdx.x / 32;
        sum += 1;
        __threadfence_block();
        atomicExch(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int seen = 0;
        for (int k = 0; k < sum; ++k) seen |= 1 << order[k];
        out[blockIdx.x] = seen;
    }
}

// Lanes of one warp fight for a lock that its holder gives back only behind the loop.
extern "C" __global__ void lock_within_a_warp(int* lock, int* out) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    out[0] += 1;
    atomicExch(lock, 0);
}
extern "C" __global__ void never_set(volatile int* flag, int* out) {
    if (threadIdx.x >= 32)
        while (flag[0] == 0) {
        }
    __syncthreads();
    out[threadIdx.x] = 1;
}
extern "C" __global__ void plain_flag(int* flag, int* out) {  // only the compiler is told that memory changes
    if (threadIdx.x < 32)
        while (*flag == 0) asm volatile("" ::: "memory");
    else
        *flag = 1;
    out[threadIdx.x] = 1;
}
extern "C" __global__ void two_locks(int* locks) {  // each warp holds one and wants the other
    int mine = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&locks[mine], 0, 1)) {
        }
        while (atomicAdd(&locks[2], 0) < 2) {
            if (mine < 2 && locks[3 + mine] == 0) {
                locks[3 + mine] = 1;
                atomicAdd(&locks[2], 1);
            }
        }
        while (atomicCAS(&locks[1 - mine], 0, 1)) {
        }
    }
}
extern "C" __global__ void counts_down_slowly(int* cell, int* out) {  // no deadlock: the loop changes what it reads
    while (atomicSub(cell, 1) > 0) {
    }
    out[threadIdx.x] = 7;
}

// Two producer and two consumer warps over a ring of two stages. bar.sync/bar.arrive pairs: 1 + stage full, 3 + stage empty.
extern "C" __global__ void named_barriers(const int* x, int* out, int tiles) {
    __shared__ int stage[2][64];
    int lane = threadIdx.x % 64, sum = 0;
    if (threadIdx.x < 64) {
        for (int t = 0; t < tiles; ++t) {
            int s = t & 1;
            if (t >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + s) : "memory");
            stage[s][lane] = x[64 * t + lane];
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + s) : "memory");
        }
    } else {
        for (int t = 0; t < tiles; ++t) {
            int s = t & 1;
            asm volatile("bar.sync %0, 128;" ::"r"(1 + s) : "memory");
            sum += stage[s][63 - lane];
            if (t + 2 < tiles) asm volatile("bar.arrive %0, 128;" ::"r"(3 + s) : "memory");
        }
        out[lane] = sum;
    }
}

__device__ void wait_for(unsigned barrier, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// The same with mbarriers: a producer warp copies tiles with cp.async, three consumer warps sum them.
extern "C" __global__ void mbarriers(const int4* x, int4* out, int tiles) {
    __shared__ int4 stage[3][96];
    __shared__ unsigned long long full[3], empty[3];
    auto at = [](const void* p) { return (unsigned)__cvta_generic_to_shared(p); };
    if (threadIdx.x == 0)
        for (int s = 0; s < 3; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" ::"r"(at(&full[s])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 96;" ::"r"(at(&empty[s])));
        }
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int t = 0; t < tiles; ++t) {
            int s = t % 3;
            if (t >= 3) wait_for(at(&empty[s]), (t / 3 - 1) & 1);
            for (int k = threadIdx.x; k < 96; k += 32)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&stage[s][k])), "l"(x + 96 * t + k) : "memory");
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(&full[s])) : "memory");
        }
    } else {
        int t96 = threadIdx.x - 32;
        int4 sum = make_int4(0, 0, 0, 0);
        for (int t = 0; t < tiles; ++t) {
            int s = t % 3;
            wait_for(at(&full[s]), (t / 3) & 1);
            int4 v = stage[s][95 - t96];
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            asm volatile("{\n.reg .b64 st;\nmbarrier.arrive.shared::cta.b64 st, [%0];\n}" ::"r"(at(&empty[s])) : "memory");
        }
        out[t96] = sum;
    }
}

// Three stages through the header's primitives, with zero-fill at the end.
extern "C" __global__ void staged_copies(const float4* x, float4* out, int n, int tiles) {
    __shared__ float4 stage[3][64];
    int t = threadIdx.x;
    auto fetch = [&](int tile) {
        int i = 64 * tile + t;
        if (tile < tiles) __pipeline_memcpy_async(&stage[tile % 3][t], x + (i < n ? i : 0), 16, i < n ? 0 : 16);
        __pipeline_commit();
    };
    fetch(0);
    fetch(1);
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int tile = 0; tile < tiles; ++tile) {
        fetch(tile + 2);
        __pipeline_wait_prior(2);
        __syncthreads();
        float4 v = stage[tile % 3][63 - t];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        __syncthreads();
    }
    out[t] = sum;
}
