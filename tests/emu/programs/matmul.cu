// C = A B in fp32: 16x16 tiles through shared memory, and a register-tiled variant with float4 loads.
#define T 16
extern "C" __global__ void matmul_tiled(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[T][T], b[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float acc = 0.f;
    for (int k0 = 0; k0 < K; k0 += T) {
        int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = row < M && ka < K ? A[row * K + ka] : 0.f;
        b[threadIdx.y][threadIdx.x] = kb < K && col < N ? B[kb * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < T; ++k) acc += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = acc;
}

// 64x64 tile per CTA of 256 threads, 4x4 per thread; sizes are multiples of 64 and K of 16.
extern "C" __global__ void matmul_registers(const float4* A, const float4* B, float4* C, int N, int K) {
    __shared__ float a[16][64 + 4];
    __shared__ float4 b[16][16];
    int t = threadIdx.x, tx = t & 15, ty = t >> 4;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        float4 va = A[((blockIdx.y * 64 + (t >> 2)) * K + k0) / 4 + (t & 3)];
        int kk = (t & 3) * 4, m = t >> 2;
        a[kk][m] = va.x;
        a[kk + 1][m] = va.y;
        a[kk + 2][m] = va.z;
        a[kk + 3][m] = va.w;
        b[ty][tx] = B[((k0 + ty) * N + blockIdx.x * 64) / 4 + tx];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; ++k) {
            float4 vb = b[k][tx];
            float w[4] = {vb.x, vb.y, vb.z, vb.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) acc[i][j] += a[k][ty * 4 + i] * w[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        C[((blockIdx.y * 64 + ty * 4 + i) * N + blockIdx.x * 64) / 4 + tx] = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}
