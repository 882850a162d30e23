// initcheck: kernels that read bytes nobody wrote, and look-alikes that do not.
extern "C" __global__ void global_empty(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i];  // global_empty
}
extern "C" __global__ void shared_tail(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float sum = 0.f;
    for (int k = 0; k < 64; ++k) sum += s[k] * (k < n);  // shared_tail
    out[threadIdx.x] = sum;
}
extern "C" __global__ void local_unset(const int* x, int* out, int n) {
    int buffer[8];
    for (int k = 0; k < n; ++k) buffer[k] = x[k];
    out[threadIdx.x] = buffer[threadIdx.x & 7];  // local_unset
}
extern "C" __global__ void half_a_word(unsigned* out) {
    __shared__ __align__(4) unsigned short s[64];
    s[2 * threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = ((unsigned*)s)[threadIdx.x];  // half_a_word
}
extern "C" __global__ void last_ctas_memory(int* out, volatile int* turn) {
    __shared__ int s[32];
    if (blockIdx.x == 0) s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x];  // last_ctas_memory
}
extern "C" __global__ void atomic_unset(unsigned* bins) {
    atomicAdd(&bins[threadIdx.x & 3], 1u);  // atomic_unset
}
extern "C" __global__ void one_lane_late(const int* x, int* out) {
    extern __shared__ int d[];
    if (threadIdx.x != 7) d[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = d[(threadIdx.x + 1) & 31];  // one_lane_late
}
extern "C" __global__ void early_async_read(const int4* x, int4* out) {
    __shared__ int4 s[32];
    unsigned target = __cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(target), "l"(x + threadIdx.x) : "memory");
    out[threadIdx.x] = s[threadIdx.x];  // early_async_read
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// ---- without a fault
extern "C" __global__ void written_by_others(const float* x, float* out) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void bytes_make_a_word(unsigned* out) {
    __shared__ __align__(4) unsigned char s[128];
    for (int k = 0; k < 4; ++k) s[32 * k + threadIdx.x] = (unsigned char)k;
    __syncthreads();
    out[threadIdx.x] = ((unsigned*)s)[threadIdx.x];
}
extern "C" __global__ void padding_unread(const float* x, float* out) {
    __shared__ float s[32][33];
    for (int r = 0; r < 32; ++r) s[r][threadIdx.x] = x[32 * r + threadIdx.x];
    __syncthreads();
    for (int r = 0; r < 32; ++r) out[32 * r + threadIdx.x] = s[threadIdx.x][r];
}
extern "C" __global__ void fill_first(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 2.f; }
extern "C" __global__ void local_set(const int* x, int* out, int n) {
    int buffer[8];
    for (int k = 0; k < 8; ++k) buffer[k] = k;
    for (int k = 0; k < n; ++k) buffer[k] = x[k];
    out[threadIdx.x] = buffer[(threadIdx.x + n) & 7];
}
extern "C" __global__ void guarded_tail(const float* x, float* out, int n) {
    __shared__ float s[64];
    if (threadIdx.x < n) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float sum = 0.f;
    for (int k = 0; k < n; ++k) sum += s[k];
    out[threadIdx.x] = sum;
}
