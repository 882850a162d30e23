// mma.sync through inline PTX, fed by ldmatrix.
#include <cuda_fp16.h>

__device__ void mma_16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four warps: a 64x32 tile, A row-major and B row-major staged in shared memory, read with ldmatrix (B transposed).
extern "C" __global__ void mma_ldmatrix(const half* A, const half* B, float* C, int N, int K) {
    __shared__ __align__(16) half a_smem[64][24], b_smem[16][40];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5, row0 = blockIdx.y * 64, col0 = blockIdx.x * 32;
    float d[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        *(uint4*)&a_smem[t >> 1][(t & 1) * 8] = *(const uint4*)&A[(row0 + (t >> 1)) * K + k0 + (t & 1) * 8];
        if (t < 64) *(uint4*)&b_smem[t >> 2][(t & 3) * 8] = *(const uint4*)&B[(k0 + (t >> 2)) * N + col0 + (t & 3) * 8];
        __syncthreads();
        unsigned a[4], b[2];
        unsigned pa = __cvta_generic_to_shared(&a_smem[warp * 16 + (lane & 15)][(lane >> 4) * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(pa));
        for (int j = 0; j < 4; ++j) {
            unsigned pb = __cvta_generic_to_shared(&b_smem[lane & 15][j * 8]);
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(pb));
            mma_16816(d[j], a, b);
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 4; ++i) {
            int r = row0 + warp * 16 + lane / 4 + 8 * (i / 2), c = col0 + j * 8 + 2 * (lane % 4) + i % 2;
            C[r * N + c] = d[j][i];
        }
}
