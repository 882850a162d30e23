// C = A B of 64x64 bf16 tiles by four warps: mma.sync fed by ldmatrix from shared memory, with or without an XOR swizzle.
#include <cuda_bf16.h>
#ifndef SWIZZLE
#define SWIZZLE 1
#endif

// Byte offset of a 16-byte chunk in a tile of 128-byte rows.
__device__ unsigned place(int row, int chunk) { return row * 128 + ((SWIZZLE ? chunk ^ (row & 7) : chunk) << 4); }

extern "C" __global__ void mma_swizzled(const uint4* A, const uint4* B, float* C) {
    __shared__ __align__(128) char a_smem[64 * 128], b_smem[64 * 128];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    for (int i = t; i < 512; i += 128) {
        *(uint4*)(a_smem + place(i >> 3, i & 7)) = A[i];
        *(uint4*)(b_smem + place(i >> 3, i & 7)) = B[i];
    }
    __syncthreads();
    unsigned a0 = __cvta_generic_to_shared(a_smem), b0 = __cvta_generic_to_shared(b_smem);
    float d[8][4] = {};
    for (int k = 0; k < 4; ++k) {
        unsigned a[4], b[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"  // A
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(a0 + place(warp * 16 + (lane & 15), 2 * k + (lane >> 4))));
        for (int j = 0; j < 8; j += 2) {
            unsigned pb = b0 + place(k * 16 + (lane & 15), j + (lane >> 4));
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(pb));  // B
            for (int h = 0; h < 2; ++h)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(d[j + h][0]), "+f"(d[j + h][1]), "+f"(d[j + h][2]), "+f"(d[j + h][3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * h]), "r"(b[2 * h + 1]));
        }
    }
    for (int j = 0; j < 8; ++j)
        for (int i = 0; i < 4; ++i) C[(warp * 16 + lane / 4 + 8 * (i / 2)) * 64 + j * 8 + 2 * (lane % 4) + i % 2] = d[j][i];
}
