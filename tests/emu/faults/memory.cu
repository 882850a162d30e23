// memcheck: kernels with one bad access each, and look-alikes without. A tag at the end of a line names it for the tests.
__constant__ int fixed[4] = {1, 2, 3, 4};

extern "C" __global__ void past_end(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i & 31] = x[i];  // past_end
}
extern "C" __global__ void before_start(float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i - 1] = 1.f;  // before_start
}
extern "C" __global__ void misaligned_vector(const float* x, float4* out, int shift) {
    out[threadIdx.x] = *(const float4*)(x + shift + 4 * threadIdx.x);  // misaligned_vector
}
extern "C" __global__ void misaligned_store(char* x, int at) {
    if (threadIdx.x == 9) *(int*)(x + at) = 5;  // misaligned_store
}
extern "C" __global__ void null_pointer(float* const* table, float* out) {
    out[threadIdx.x] = *table[threadIdx.x];  // null_pointer
}
extern "C" __global__ void address_of_constant(long long* out) { out[0] = (long long)&fixed[2]; }
extern "C" __global__ void write_constant(int* const* table) {
    if (threadIdx.x == 2) *table[0] = 7;  // write_constant
}
extern "C" __global__ void write_argument(int* x) {
    if (threadIdx.x > 12) x[threadIdx.x] = 1;  // write_argument
}
extern "C" __global__ void across_end(const float* x, float2* out) {
    if (threadIdx.x == 3) out[0] = *(const float2*)(x + 6);  // across_end
}
extern "C" __global__ void shared_static(int* out, int n) {
    __shared__ int s[32];
    s[threadIdx.x & 31] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x + n];  // shared_static
}
extern "C" __global__ void shared_dynamic(int* out) {
    extern __shared__ int d[];
    d[threadIdx.x] = threadIdx.x;  // shared_dynamic
    __syncthreads();
    out[threadIdx.x] = d[threadIdx.x ^ 1];
}
extern "C" __global__ void local_far(int* out, int at) {
    int buffer[8];
    for (int k = 0; k < 8; ++k) buffer[k] = k;
    out[threadIdx.x] = buffer[threadIdx.x == 5 ? at : threadIdx.x & 7];  // local_far
}
extern "C" __global__ void atomic_past_end(unsigned* bins, const int* x) {
    atomicAdd(&bins[x[blockIdx.x * blockDim.x + threadIdx.x]], 1u);  // atomic_past_end
}
extern "C" __global__ void wrapped_index(float* x, int stride) {
    int b = blockIdx.x;
    x[b * stride] = 1.f;  // wrapped_index
}
extern "C" __global__ void async_source(const int4* x, int4* out, int at) {
    __shared__ int4 s[32];
    unsigned target = __cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.wait_all;" ::"r"(target), "l"(x + at + threadIdx.x) : "memory");  // async_source
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}

// ---- without a fault
extern "C" __global__ void last_element(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}
extern "C" __global__ void vectors_to_the_end(const float4* x, float4* out, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i];
}
extern "C" __global__ void pointer_past_end_unused(const float* x, float* out, int n) {
    const float *p = x, *end = x + n;
    float sum = 0.f;
    for (; p != end; ++p) sum += *p;
    out[threadIdx.x] = sum;
}
extern "C" __global__ void predicated_off(const float* x, float* out, int n) {
    int i = threadIdx.x, j = i * 1000;
    out[i] = j < n ? x[j] : -1.f;
}
extern "C" __global__ void far_base(float* x, long long shift) {
    float* moved = x - shift;  // a pointer far outside, brought back by a 64-bit offset
    moved[shift + threadIdx.x] = (float)threadIdx.x;
}
extern "C" __global__ void zero_fill_reads_nothing(const int* x, int* out, long long far, int bytes) {
    __shared__ __align__(16) int s[128];
    unsigned target = __cvta_generic_to_shared(&s[4 * threadIdx.x]);
    const int* source = bytes ? x : x + far;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\ncp.async.wait_all;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
    __syncthreads();
    for (int k = 0; k < 4; ++k) out[4 * threadIdx.x + k] = s[4 * threadIdx.x + k];
}
extern "C" __global__ void local_all(int* out, int at) {
    int buffer[8];
    for (int k = 0; k < 8; ++k) buffer[k] = 3 * k;
    out[threadIdx.x] = buffer[(threadIdx.x + at) & 7];
}
