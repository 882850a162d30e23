// Tiles of 16-bit elements HBM -> SMEM by cp.async: the copy passes through no register, and the thread goes on at once.
//
// What a thread has copied is there for itself after wait_for_copies(), for the other threads after a barrier that follows it.
#pragma once
#include "rf_swizzle.cuh"

namespace rf {

/// 16 bytes, past L1: nobody else on this SM reads them.
__device__ __forceinline__ void copy_chunk(uint4* to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from)) : "memory");
}

/// Returns when everything that this thread copies has arrived.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// load_tile (rf_swizzle.cuh), on its way when this returns. A tensor that is not aligned is loaded on the spot.
template <int ROWS, int THREADS, class T, int d>
__device__ __forceinline__ void copy_tile(uint4* X_smem, const Rows<T, d>& X, int valid, int thread) {
    using Lies = Swizzle<round_up(d, 16)>;
    constexpr int CHUNKS = Lies::CHUNKS, ALL = ROWS * CHUNKS;
    if (!is_aligned16(X.first)) {
        load_tile<ROWS, THREADS>(X_smem, X, valid, thread);
    } else if (valid >= ROWS && d % 16 == 0 && !ROWS_FOLLOW && THREADS % (8 * CHUNKS) == 0) {  // a whole tile of rows that lie apart
        uint4* to = X_smem + Lies::position(thread / CHUNKS, thread % CHUNKS);  // moves on: offsets of every row would take registers
        const T* from = X[thread / CHUNKS] + thread % CHUNKS * CHUNK;
#pragma unroll 1
        for (int chunk = thread; chunk < ALL; chunk += THREADS, to += THREADS, from += THREADS / CHUNKS * X.pitch)
            copy_chunk(to, reinterpret_cast<const uint4*>(from));
    } else if (valid >= ROWS && d % 16 == 0) {  // a whole tile
#pragma unroll
        for (int n = 0; n < ceil_div(ALL, THREADS); ++n) {
            const int chunk = thread + n * THREADS;
            if (ALL % THREADS == 0 || chunk < ALL) copy_chunk(X_smem + Lies::template of_chunk<THREADS>(thread, n), chunk_of_tile<CHUNKS>(X, chunk));
        }
    } else {
#pragma unroll 1
        for (int chunk = thread; chunk < ALL; chunk += THREADS) {
            const int row = chunk / CHUNKS, c = chunk % CHUNKS;
            uint4* const to = X_smem + Lies::position(row, c);
            if (row < valid && c < d / CHUNK) copy_chunk(to, reinterpret_cast<const uint4*>(X[row] + c * CHUNK));
            else *to = uint4{};
        }
    }
}

}  // namespace rf
