// Templates, constant and device variables, local arrays, switch, and other things a compiler turns into unusual PTX.
template <typename T, int N>
__global__ void scale(const T* x, T* out, T factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < N; ++k) out[i * N + k] = x[i * N + k] * factor;
}

__constant__ float weights[8] = {1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f};
__constant__ int offset = 100;
__device__ unsigned long long launches;
__device__ int grid_sums[4];

extern "C" __global__ void weigh(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i] * weights[i & 7] + offset;
}
extern "C" __global__ void count_launches() {
    if (threadIdx.x == 0) atomicAdd(&launches, 1ull);
    atomicAdd(&grid_sums[threadIdx.x & 3], (int)threadIdx.x);
}

extern "C" __global__ void local_array(const int* x, int* out, int rounds) {
    int buffer[16];
    for (int k = 0; k < 16; ++k) buffer[k] = k * k;
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = x[i] & 15;
    for (int r = 0; r < rounds; ++r) {
        buffer[at] += r + x[i];
        at = (at * 5 + buffer[at]) & 15;
    }
    int sum = 0;
    for (int k = 0; k < 16; ++k) sum += buffer[(k + at) & 15] * (k + 1);
    out[i] = sum;
}

extern "C" __global__ void switches(const int* x, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i], r;
    switch (v) {
        case 0: r = 7; break;
        case 1: r = v * 3 + i; break;
        case 2: r = v ^ i; break;
        case 3: r = i / (v + 1);  // falls through
        case 4: r = v - i; break;
        case 5: r = i * i; break;
        case 6: r = __popc(i); break;
        case 7: r = __clz(i + 1); break;
        case 8: r = i % 9; break;
        case 40: r = 400; break;
        default: r = -v;
    }
    out[i] = r;
}

extern "C" __global__ void shared_mix(const double* x, double* out) {
    __shared__ char header[3];
    __shared__ double body[32];
    extern __shared__ __align__(16) unsigned char tail[];
    if (threadIdx.x < 3) header[threadIdx.x] = (char)(threadIdx.x - 1);
    body[threadIdx.x] = x[threadIdx.x];
    ((short*)tail)[threadIdx.x] = (short)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = body[31 - threadIdx.x] + header[threadIdx.x % 3] + ((short*)tail)[(threadIdx.x + 1) & 31];
}

struct Parameters {
    float scale;
    int first;
    double bias;
    short steps[5];
};
extern "C" __global__ void by_value(float* out, Parameters p) {
    int i = threadIdx.x;
    out[i] = p.scale * (i + p.first) + (float)p.bias + p.steps[i % 5];
}

extern "C" __global__ void wide_math(const unsigned long long* a, const unsigned long long* b, unsigned long long* high, unsigned long long* low) {
    int i = threadIdx.x;
    unsigned __int128 product = (unsigned __int128)a[i] * b[i] + a[i];
    high[i] = (unsigned long long)(product >> 64);
    low[i] = (unsigned long long)product;
}
