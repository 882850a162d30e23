// Tensor-core products through the wmma interface of mma.h: one warp computes one tile; K runs in steps.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void wmma_half(const half* A, const half* B, float* C, int N, int K) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.f);
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, A + blockIdx.y * 16 * K + k, K);
        wmma::load_matrix_sync(b, B + k * N + blockIdx.x * 16, N);
        wmma::mma_sync(c, a, b, c);
    }
    for (int i = 0; i < c.num_elements; ++i) c.x[i] = c.x[i] * 2.f;
    wmma::store_matrix_sync(C + blockIdx.y * 16 * N + blockIdx.x * 16, c, N, wmma::mem_row_major);
}

// A column-major, B column-major (32x8x16), half accumulator, result stored column-major through shared memory.
extern "C" __global__ void wmma_tall(const half* A, const half* B, half* C, int K) {
    __shared__ half staged[32 * 8];
    wmma::fragment<wmma::matrix_a, 32, 8, 16, half, wmma::col_major> a;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 32, 8, 16, half> c;
    wmma::fill_fragment(c, __float2half(0.f));
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, A + k * 32, 32);
        wmma::load_matrix_sync(b, B + k, K);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(staged, c, 32, wmma::mem_col_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) C[i] = staged[i];
}

extern "C" __global__ void wmma_int8(const signed char* A, const signed char* B, int* C) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> c;
    wmma::fill_fragment(c, 5);
    wmma::load_matrix_sync(a, A, 16);
    wmma::load_matrix_sync(b, B, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}
