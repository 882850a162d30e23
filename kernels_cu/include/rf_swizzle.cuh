// Tiles of 16-bit elements in SMEM, as they lie in HBM but for the order of the 16-byte chunks within a row.
//
// The 32 banks serve 128 bytes at once, 8 chunks, if no two of them lie 128 bytes apart. ldmatrix reads 8 neighbouring rows at one
// column of chunks; a row is C chunks long, so as they lie these 8 fall onto 8 / G places (G: the largest power of two up to 8 in
// C). Each row therefore exchanges its chunks within groups of G, by XOR with a number that moves on when the places repeat:
//
//     chunk c of row r lies at chunk  r C + (c ^ (r / (8 / G) % G)),      for d = 64 (C = G = 8):
//
//                row 0   0 1 2 3 4 5 6 7         A column of chunks (here c = 2, marked in the first rows) meets all 8 places, and
//                row 1   1 0 3 2 5 4 7 6         8 chunks that follow each other in HBM do so too: neither ldmatrix nor the
//                row 2   2 3 0 1 6 7 4 5         stores of a tile have bank conflicts, whatever multiple of 16 d is.
//                row 3   3 2 1 0 7 6 5 4
//                ...
//
// Rows past the end of the tensor and columns past d become zeros, so that SMEM never holds what an earlier tile, or kernel, left.
#pragma once
#include "rf_layout.cuh"
#include "rf_mma_sm80.cuh"

namespace rf {

constexpr int CHUNK = 8;        // elements of a 16-byte chunk
constexpr int PATCH_ROWS = 16;  // rows and columns of a patch

/// Where things lie in a tile whose rows have D elements, a multiple of 16.
template <int D>
struct Swizzle {
    static_assert(D % 16 == 0, "a row is a whole number of patches");
    static constexpr int CHUNKS = D / CHUNK, GROUP = CHUNKS % 8 == 0 ? 8 : CHUNKS % 4 == 0 ? 4 : 2;

    /// Position of chunk c of a row, in chunks from the start of the tile.
    static __device__ __forceinline__ int position(int row, int c) { return row * CHUNKS + (c ^ (row / (8 / GROUP) % GROUP)); }

    /// Position of chunk first + n STEP of the tile, 0 <= first < STEP. The swizzle repeats after 8 rows: if STEP is a multiple of that, it is
    /// one address and constants.
    template <int STEP>
    static __device__ __forceinline__ int of_chunk(unsigned first, int n) {
        if (STEP % (8 * CHUNKS) == 0) return position(first / CHUNKS, first % CHUNKS) + n * STEP;
        return position((first + n * STEP) / CHUNKS, (first + n * STEP) % CHUNKS);
    }
};

/// The patches of a tile in SMEM, as ldmatrix reads them. The swizzle repeats after 8 rows and after GROUP chunks, and within a group it is
/// an XOR: the addresses of all patches are one address, XORed with a constant, and constants. So the tile must start at a multiple of 128.
template <int D, Order ORDER>
class Patches {
    using Lies = Swizzle<D>;
    static constexpr int PERIOD = Lies::GROUP / 2;
    unsigned at;  // the lane's half row of the patch at row 0 and column 0

    template <int R, int K>
    static constexpr int offset = 16 * (R * PATCH_ROWS * Lies::CHUNKS + K / PERIOD * Lies::GROUP);

    template <int K>
    __device__ __forceinline__ unsigned address() const { return at ^ 32 * (K % PERIOD); }

  public:
    __device__ __forceinline__ explicit Patches(const uint4* tile)
        : at(__cvta_generic_to_shared(tile + Lies::position(patch_row<ORDER>(), patch_half<ORDER>()))) {}

    /// The patch at rows 16 R .. and columns 16 K .. of the tile.
    template <int R, int K>
    __device__ __forceinline__ Patch load(Int<R>, Int<K>) const { return load_patch<offset<R, K>>(address<K>()); }

    template <int R, int K>
    __device__ __forceinline__ Patch load_turned(Int<R>, Int<K>) const { return load_patch_turned<offset<R, K>>(address<K>()); }
};

// --------------------------------------------------------------------------------------------------------- HBM <-> SMEM
template <class T>
__device__ __forceinline__ bool is_aligned16(const T* p) { return reinterpret_cast<size_t>(p) % 16 == 0; }

/// Where chunk n of a tile starts in HBM, counted in rows of C chunks; for rows that follow each other and have no gap at their ends.
template <int C, class T, int d>
__device__ __forceinline__ const uint4* chunk_of_tile(const Rows<T, d>& X, int n) {
    if (ROWS_FOLLOW && C * CHUNK == d) return reinterpret_cast<const uint4*>(X.first) + n;
    return reinterpret_cast<const uint4*>(X[n / C]) + n % C;
}

/// 8 elements: one vector load if the tensor is aligned for it, else eight scalar ones.
template <class T>
__device__ __forceinline__ uint4 load_chunk(const T* p, bool aligned) {
    if (aligned) return *reinterpret_cast<const uint4*>(p);
    const auto two = [p](int e) { return p[e].bits | static_cast<unsigned>(p[e + 1].bits) << 16; };
    return make_uint4(two(0), two(2), two(4), two(6));
}

/// 8 elements, one at a time.
template <class T>
__device__ __forceinline__ void store_scalars(T* p, uint4 x) {
    const unsigned word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int e = 0; e < CHUNK; ++e) p[e].bits = static_cast<unsigned short>(word[e / 2] >> (e % 2 * 16));
}

/// HBM -> SMEM: ROWS rows, zeros for row >= valid. Call with THREADS threads, numbered `thread`.
///
/// A warp reads 512 bytes without a gap. Thread n moves the chunks n, n + THREADS, ... in the order of HBM.
template <int ROWS, int THREADS, class T, int d>
__device__ __forceinline__ void load_tile(uint4* X_smem, const Rows<T, d>& X, int valid, int thread) {
    using Lies = Swizzle<round_up(d, 16)>;
    constexpr int CHUNKS = Lies::CHUNKS, ALL = ROWS * CHUNKS;
    if (valid >= ROWS && is_aligned16(X.first) && d % 16 == 0) {  // a whole tile
#pragma unroll
        for (int n = 0; n < ceil_div(ALL, THREADS); ++n) {
            const int chunk = thread + n * THREADS;
            if (ALL % THREADS == 0 || chunk < ALL)
                X_smem[Lies::position(chunk / CHUNKS, chunk % CHUNKS)] = *chunk_of_tile<CHUNKS>(X, chunk);
        }
    } else {
#pragma unroll 1
        for (int chunk = thread; chunk < ALL; chunk += THREADS) {
            const int row = chunk / CHUNKS, c = chunk % CHUNKS;
            X_smem[Lies::position(row, c)] = row < valid && c < d / CHUNK ? load_chunk(X[row] + c * CHUNK, is_aligned16(X.first)) : uint4{};
        }
    }
}

/// SMEM -> HBM: the first `valid` rows. Call with all lanes of a warp.
template <int ROWS, class T, int d>
__device__ __forceinline__ void store_tile(const Rows<T, d>& X, const uint4* X_smem, int valid) {
    using Lies = Swizzle<round_up(d, 16)>;
    constexpr int CHUNKS = Lies::CHUNKS;
    const auto each = [&](auto store) {
#pragma unroll 4
        for (int chunk = lane_index(); chunk < ROWS * CHUNKS; chunk += LANES) {
            const int row = chunk / CHUNKS, c = chunk % CHUNKS;
            if (row < valid && c < d / CHUNK) store(X[row] + c * CHUNK, X_smem[Lies::position(row, c)]);
        }
    };
    if (is_aligned16(X.first)) each([](T* p, const uint4& x) { *reinterpret_cast<uint4*>(p) = x; });
    else each([](T* p, const uint4& x) { store_scalars(p, x); });
}

}  // namespace rf
