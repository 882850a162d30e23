// racecheck: unordered accesses to the same bytes, and look-alikes that are ordered.
extern "C" __global__ void no_barrier(const int* x, int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = s[63 - threadIdx.x];  // no_barrier
}
extern "C" __global__ void two_writers(int* out) {
    __shared__ int s[32];
    s[threadIdx.x & 31] = threadIdx.x;  // two_writers
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x & 31];
}
extern "C" __global__ void reused_tile(const int* x, int* out, int rounds) {
    __shared__ int s[64];
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
        s[threadIdx.x] = x[r * 64 + threadIdx.x];  // reused_tile
        __syncthreads();
        sum += s[threadIdx.x ^ 32];
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void lock_step(const int* x, int* out) {
    __shared__ volatile int s[32];
    s[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = s[threadIdx.x ^ 1];  // lock_step
}
extern "C" __global__ void warp_tail(const int* x, int* out) {
    __shared__ volatile int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
        s[t] = s[t] + s[t + 32];
        if (t < 16) s[t] = s[t] + s[t + 16];  // warp_tail
    }
    __syncthreads();
    out[t] = s[t & 15];
}
extern "C" __global__ void plain_increment(const unsigned char* x, unsigned* out) {
    __shared__ unsigned bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    bins[x[threadIdx.x] & 15] += 1;  // plain_increment
    __syncthreads();
    if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}
extern "C" __global__ void ctas_share_a_cell(int* out) {
    if (threadIdx.x == 0) out[0] = blockIdx.x;  // ctas_share_a_cell
}
extern "C" __global__ void neighbour_cta(int* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    x[i] = x[(i + 32) % n] + 1;  // neighbour_cta
}

// ---- without a race
extern "C" __global__ void with_barrier(const int* x, int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void with_syncwarp(const int* x, int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void two_barriers(const int* x, int* out, int rounds) {
    __shared__ int s[64];
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
        s[threadIdx.x] = x[r * 64 + threadIdx.x];
        __syncthreads();
        sum += s[threadIdx.x ^ 32];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void double_buffer(const int* x, int* out, int rounds) {
    __shared__ int s[2][64];
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
        s[r & 1][threadIdx.x] = x[r * 64 + threadIdx.x];
        __syncthreads();
        sum += s[r & 1][threadIdx.x ^ 32];
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void own_slot(const int* x, int* out) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    s[threadIdx.x] += 1;
    out[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void atomics_only(const unsigned char* x, unsigned* out) {
    __shared__ unsigned bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[x[threadIdx.x] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
extern "C" __global__ void everyone_reads(const int* x, int* out) {
    __shared__ int s[1];
    if (threadIdx.x == 63) s[0] = x[blockIdx.x];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[0] + x[0];
}
extern "C" __global__ void half_words_of_neighbours(unsigned short* out) {
    __shared__ unsigned short s[64];
    s[threadIdx.x] = threadIdx.x;  // neighbours share a word but no byte
    out[threadIdx.x] = s[threadIdx.x];
}
