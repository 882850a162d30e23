// Tensor-core instructions of compute capability 8.0, and who holds what in them.
//
//   A patch is 16 x 16 elements of 16 bits: four 8 x 8 matrices, one register each. Lane L = 4 g + t holds of every matrix the two
//   neighbours (row g, columns 2t and 2t + 1):
//
//                     columns 0 .. 7       8 .. 15             lane 4 g + t of one matrix, column
//                    .-----------------.-----------------.            0   1   2   3   4   5   6   7
//        rows 0..7   |  register 0     |  register 2     |     row 0  0   0   1   1   2   2   3   3
//                    |-----------------|-----------------|         1  4   4   5   5   6   6   7   7
//        rows 8..15  |  register 1     |  register 3     |         :  :                           :
//                    '-----------------'-----------------'         7 28  28  29  29  30  30  31  31
//
//   ldmatrix fills a patch from SMEM; each lane points at one of its 32 half rows of 16 bytes (patch_row, patch_half):
//     down      lane L at row L % 16, half L / 16: registers as in the picture
//     across    lane L at row L % 8 + L / 16 * 8, half L / 8 % 2: registers 1 and 2 change places
//   With .trans every 8 x 8 matrix arrives turned: lane 4 g + t holds (rows 2t and 2t + 1, column g) of it.
//
//   mma: D[16][8] = A[16][16] B[16][8] + C[16][8].
//     A         a patch, down                                                (Q: rows = queries, columns = components)
//     B         two registers, for its rows 0..7 and 8..15, of the column g. A patch holds two B, in registers that follow each other,
//               as the hardware wants them ({0, 2} would cost two copies per mma, which PTX does not show):
//                 K, S = Q K^T: keys x components, across:       {0, 1} for keys 0..7,        {2, 3} for keys 8..15
//                 V, O = P V:   keys x components, down, .trans: {0, 1} for components 0..7,  {2, 3} for components 8..15
//     C and D   four floats: (row g, columns 2t, 2t + 1), (row g + 8, columns 2t, 2t + 1)
//
//   So the S of two neighbouring mma, rounded to 16 bits, is one A patch: P needs no trip through SMEM.
#pragma once
#include "rf_types.cuh"
#include "rf_warp.cuh"

namespace rf {

template <class T>
constexpr bool is_fp16 = false;
template <>
constexpr bool is_fp16<fp16> = true;

struct Patch { unsigned reg[4]; };
using Sums = float[4];

/// The order of a patch's registers.
enum class Order { down, across };

/// The half row of a patch at which this lane points ldmatrix.
template <Order ORDER>
__device__ __forceinline__ int patch_row() { return ORDER == Order::down ? lane_index() % 16 : lane_index() % 8 + lane_index() / 16 * 8; }
template <Order ORDER>
__device__ __forceinline__ int patch_half() { return ORDER == Order::down ? lane_index() / 16 : lane_index() / 8 % 2; }

/// `address` is that of the lane's half row of some patch in SMEM; OFFSET bytes from there, in the instruction.
template <int OFFSET>
__device__ __forceinline__ Patch load_patch(unsigned address) {
    Patch x;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(x.reg[0]), "=r"(x.reg[1]), "=r"(x.reg[2]), "=r"(x.reg[3]) : "r"(address), "n"(OFFSET) : "memory");
    return x;
}

template <int OFFSET>
__device__ __forceinline__ Patch load_patch_turned(unsigned address) {
    Patch x;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(x.reg[0]), "=r"(x.reg[1]), "=r"(x.reg[2]), "=r"(x.reg[3]) : "r"(address), "n"(OFFSET) : "memory");
    return x;
}

/// D = A B + C with products of T, exact, and sums of fp32. B is the registers b0 and b1.
template <class T>
__device__ __forceinline__ void mma(Sums& D, const Patch& A, unsigned b0, unsigned b1, const Sums& C) {
    if constexpr (is_fp16<T>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=f"(D[0]), "=f"(D[1]), "=f"(D[2]), "=f"(D[3])
                     : "r"(A.reg[0]), "r"(A.reg[1]), "r"(A.reg[2]), "r"(A.reg[3]), "r"(b0), "r"(b1), "f"(C[0]), "f"(C[1]), "f"(C[2]), "f"(C[3]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                     : "=f"(D[0]), "=f"(D[1]), "=f"(D[2]), "=f"(D[3])
                     : "r"(A.reg[0]), "r"(A.reg[1]), "r"(A.reg[2]), "r"(A.reg[3]), "r"(b0), "r"(b1), "f"(C[0]), "f"(C[1]), "f"(C[2]), "f"(C[3]));
}

/// Two floats, rounded to T, in one register: `low` in the lower half, which is the left of two neighbours.
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned x;
    if constexpr (is_fp16<T>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

/// x * factor, for a factor that keeps it exact: -1, 0 or 1. NaN and 0 * inf give NaN.
template <class T>
__device__ __forceinline__ Patch multiply(Patch x, float factor) {
    const unsigned both = pack<T>(factor, factor), minus_zero = 0x80008000u;
#pragma unroll
    for (unsigned& two : x.reg) {
        if constexpr (is_fp16<T>) asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(two) : "r"(both), "r"(minus_zero));
        else asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(two) : "r"(both), "r"(minus_zero));
    }
    return x;
}

}  // namespace rf
