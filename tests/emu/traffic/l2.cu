// Programs that drive the simulated L2. What they are told to do lies in constant memory, which that cache does not see.

enum { LOAD4, STORE4, ATOMIC4, LOAD16, STORE1, STORE8, LOAD2 };

__constant__ short offsets[24 * 1024]; // bytes from `data`, in units of 16, -1 for a lane that stays away: [step][32]
__constant__ unsigned char kinds[1024];

// One warp per CTA: CTA c executes steps c * steps .. c * steps + steps - 1.
extern "C" __global__ void replay(char *data, int steps) {
    for (int s = blockIdx.x * steps; s < (blockIdx.x + 1) * steps; ++s) {
        int where = offsets[32 * s + threadIdx.x], kind = kinds[s];
        if (where < 0) continue;
        char *p = data + 16 * where;
        unsigned a, b, c, d;
        if (kind == LOAD4) asm volatile("ld.global.u32 %0, [%1];" : "=r"(a) : "l"(p));
        if (kind == STORE4) asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(s));
        if (kind == ATOMIC4) asm volatile("red.global.add.u32 [%0], %1;" ::"l"(p), "r"(1));
        if (kind == LOAD16) asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(p));
        if (kind == STORE1) asm volatile("st.global.u8 [%0], %1;" ::"l"(p + 3), "r"(s));
        if (kind == STORE8) asm volatile("st.global.v2.u32 [%0], {%1, %1};" ::"l"(p + 8), "r"(s));
        if (kind == LOAD2) asm volatile("ld.global.u16 %0, [%1];" : "=r"(a) : "l"(p + 14));
    }
}

// Every CTA reads all n floats, 256 at a time, with a barrier after each piece.
extern "C" __global__ void stream(const float *x, float *y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sum += x[i];
        __syncthreads();
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void copy(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

// A local array that is not kept in registers; all lanes use the same word at a time.
extern "C" __global__ void stack(int *out, int n) {
    volatile int words[8];
    for (int i = 0; i < 8; ++i) words[i] = i * n;
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += words[i & 7];
    out[threadIdx.x] = sum;
}

// The third CTA steps outside; before, every CTA meets barriers.
extern "C" __global__ void stray(int *x, int n) {
    for (int i = 0; i < 4; ++i) __syncthreads();
    if (blockIdx.x >= 2) x[n + blockIdx.x] = 1;
}
