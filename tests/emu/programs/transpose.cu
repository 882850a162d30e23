// A transpose three ways; TILE is 32. The padded tile has no bank conflicts, the plain one 31 per column read.
#define TILE 32
extern "C" __global__ void transpose_naive(const float* x, float* out, int rows, int cols) {
    int c = blockIdx.x * TILE + threadIdx.x;
    for (int r = blockIdx.y * TILE + threadIdx.y; r < blockIdx.y * TILE + TILE; r += blockDim.y)
        if (r < rows && c < cols) out[(long long)c * rows + r] = x[(long long)r * cols + c];
}

template <int PITCH>
__device__ void transpose_tile(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[TILE][PITCH];
    int c = blockIdx.x * TILE + threadIdx.x, r0 = blockIdx.y * TILE;
    for (int r = threadIdx.y; r < TILE; r += blockDim.y)
        if (r0 + r < rows && c < cols) tile[r][threadIdx.x] = x[(long long)(r0 + r) * cols + c];
    __syncthreads();
    int oc = r0 + threadIdx.x, or0 = blockIdx.x * TILE;
    for (int r = threadIdx.y; r < TILE; r += blockDim.y)
        if (or0 + r < cols && oc < rows) out[(long long)(or0 + r) * rows + oc] = tile[threadIdx.x][r];  // column
}

extern "C" __global__ void transpose_plain(const float* x, float* out, int rows, int cols) { transpose_tile<TILE>(x, out, rows, cols); }
extern "C" __global__ void transpose_padded(const float* x, float* out, int rows, int cols) {
    transpose_tile<TILE + 1>(x, out, rows, cols);
}
