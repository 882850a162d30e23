// Bitonic sort of one CTA's keys in shared memory, and a stencil with a halo.
extern "C" __global__ void bitonic(unsigned* keys, int n) {
    extern __shared__ unsigned s[];
    int t = threadIdx.x;
    s[t] = keys[blockIdx.x * n + t];
    __syncthreads();
    for (int size = 2; size <= n; size <<= 1)
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            int other = t ^ stride;
            if (other > t) {
                bool up = (t & size) == 0;
                if ((s[t] > s[other]) == up) {
                    unsigned swap = s[t];
                    s[t] = s[other];
                    s[other] = swap;
                }
            }
            __syncthreads();
        }
    keys[blockIdx.x * n + t] = s[t];
}

#define RADIUS 3
extern "C" __global__ void stencil(const int* x, int* out, int n) {
    extern __shared__ int s_halo[];
    int i = blockIdx.x * blockDim.x + threadIdx.x, local = threadIdx.x + RADIUS;
    s_halo[local] = i < n ? x[i] : 0;
    if (threadIdx.x < RADIUS) {
        s_halo[threadIdx.x] = i >= RADIUS ? x[i - RADIUS] : 0;
        int right = i + blockDim.x;
        s_halo[local + blockDim.x] = right < n ? x[right] : 0;
    }
    __syncthreads();
    int sum = 0;
#pragma unroll
    for (int k = -RADIUS; k <= RADIUS; ++k) sum += (k + 4) * s_halo[local + k];
    if (i < n) out[i] = sum;
}

extern "C" __global__ void laplace3d(const float* x, float* out, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i >= nx || j >= ny || k >= nz) return;
    auto at = [&](int a, int b, int c) { return a < 0 || b < 0 || c < 0 || a >= nx || b >= ny || c >= nz ? 0.f : x[(c * ny + b) * nx + a]; };
    out[(k * ny + j) * nx + i] =
        at(i - 1, j, k) + at(i + 1, j, k) + at(i, j - 1, k) + at(i, j + 1, k) + at(i, j, k - 1) + at(i, j, k + 1) - 6.f * at(i, j, k);
}
