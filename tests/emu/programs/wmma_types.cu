// nvcuda::wmma with bfloat16, tf32, double and unsigned char; operands pass through shared memory where that is shown.
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void wmma_bfloat(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C) {
    __shared__ __align__(32) __nv_bfloat16 a_smem[16 * 24], b_smem[16 * 24];
    for (int i = threadIdx.x; i < 256; i += 32) {
        a_smem[i / 16 * 24 + i % 16] = A[i];
        b_smem[i / 16 * 24 + i % 16] = B[i];
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::load_matrix_sync(a, a_smem, 24);
    wmma::load_matrix_sync(b, b_smem, 24);
    wmma::load_matrix_sync(c, C, 16, wmma::mem_row_major);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_tf32(const float* A, const float* B, float* C) {
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> c;
    wmma::load_matrix_sync(a, A, 8);
    wmma::load_matrix_sync(b, B, 16);
    for (int i = 0; i < a.num_elements; ++i) a.x[i] = wmma::__float_to_tf32(a.x[i]);
    for (int i = 0; i < b.num_elements; ++i) b.x[i] = wmma::__float_to_tf32(b.x[i]);
    wmma::load_matrix_sync(c, C, 16, wmma::mem_col_major);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(C, c, 16, wmma::mem_col_major);
}

extern "C" __global__ void wmma_double(const double* A, const double* B, double* C) {
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 8, 8, 4, double> c;
    wmma::load_matrix_sync(a, A, 4);
    wmma::load_matrix_sync(b, B, 4);
    wmma::load_matrix_sync(c, C, 8, wmma::mem_row_major);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(C, c, 8, wmma::mem_row_major);
}

extern "C" __global__ void wmma_bytes(const unsigned char* A, const unsigned char* B, int* C) {
    wmma::fragment<wmma::matrix_a, 8, 32, 16, unsigned char, wmma::col_major> a;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, unsigned char, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 8, 32, 16, int> c;
    wmma::load_matrix_sync(a, A, 16);  // columns of 8 rows, 16 bytes apart
    wmma::load_matrix_sync(b, B, 32);
    wmma::load_matrix_sync(c, C, 32, wmma::mem_row_major);
    wmma::mma_sync(c, a, b, c, true);
    wmma::store_matrix_sync(C, c, 32, wmma::mem_row_major);
}
