// Warps that split: loops with different trip counts, nesting, early exits, barriers after exits, odd shapes.
extern "C" __global__ void collatz(const unsigned* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long v = x[i];
    int steps = 0;
    while (v != 1) {
        v = v & 1 ? 3 * v + 1 : v >> 1;
        ++steps;
    }
    out[i] = steps;
}

extern "C" __global__ void nested(const int* x, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, acc = 0;
    for (int a = 0; a < (x[i] & 7); ++a) {
        if ((a ^ i) & 1) {
            for (int b = i & 3; b < 5; ++b) {
                if (b == 3 && (i & 4)) continue;
                acc += a * b + 1;
                if (acc > 40) break;
            }
        } else {
            int c = a + 2;
            do {
                acc ^= c;
                c -= 2;
            } while (c > (i & 1));
        }
        if (acc == 13) goto done;
    }
    acc += 1000;
done:
    out[i] = acc;
}

extern "C" __global__ void exit_then_barrier(const int* x, int* out, int n) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    if (t >= n) return;
    s[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < n; ++k) sum += s[k];
    out[blockIdx.x * n + t] = sum - x[blockIdx.x * blockDim.x + t];
}

extern "C" __global__ void uniform_barrier_loop(int* out, int rounds) {
    __shared__ int s[2][64];
    int t = threadIdx.x;
    s[0][t] = t;
    __syncthreads();
    int r = 0;
    while (true) {
        s[(r + 1) & 1][t] = s[r & 1][(t + 1) & 63];
        __syncthreads();
        if (++r >= rounds) break;
    }
    out[t] = s[r & 1][t];
}

extern "C" __global__ void shapes(int* out, int sx, int sy, int sz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < sx && y < sy && z < sz) {
        int lane;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        int linear = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        out[(z * sy + y) * sx + x] = lane == (linear & 31) ? (int)((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) : -1;
    }
}

extern "C" __global__ void mark(unsigned char* out) { out[blockIdx.x] = (unsigned char)(blockIdx.x % 251 + threadIdx.x); }

extern "C" __global__ void partial_warp(const int* x, int* out) {
    int t = threadIdx.x;
    unsigned mask = __activemask(), ballot = __ballot_sync(mask, x[t] > 0);
    int next = __shfl_sync(mask, x[t], (t & 31) ^ 1);
    out[t] = ballot * 100 + next + __popc(mask);
}

extern "C" __global__ void named_barriers(const int* x, int* out) {
    __shared__ int s[128];
    int t = threadIdx.x, half = t / 64;
    for (int round = 0; round < 3 + half; ++round) {  // the halves loop a different number of times on their own barriers
        s[t] = x[t] + round;
        asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
        int v = s[t ^ 1];
        asm volatile("bar.sync %0, 64;" ::"r"(1 + half) : "memory");
        s[t] = v;
    }
    __syncthreads();
    out[t] = s[t];
}

extern "C" __global__ void producer_consumer(const int* x, int* out) {
    __shared__ int box[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int round = 0; round < 4; ++round) {
        if (warp == 0) {  // waits until the box is empty, fills it
            if (round) asm volatile("bar.sync 2, 64;" ::: "memory");
            box[lane] = x[round * 32 + lane] * 2;
            __threadfence_block();
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {  // waits until the box is full, empties it
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[round * 32 + lane] = box[31 - lane];
            if (round < 3) asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    }
}
