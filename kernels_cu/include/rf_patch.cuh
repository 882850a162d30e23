// One warp's patch of a tile: who owns what, and how a patch enters and leaves registers.
//
//                     columns: keys of S and P, or components of O
//                     lane 0   lane 1  ...  lane 31 | lane 0  ...  lane 31 |
//   warp w   row 0      .        .            .     |   .            .     |      A warp owns ROWS = 8 neighbouring rows of the
//            row 1      .        .            .     |   .            .     |      query tile. Lane L owns the columns L, L + 32,
//             ...                                   |                      |      ... of each: slot c is column L + 32 c, in
//            row 7      .        .            .     |   .            .     |      registers X[r][c].
//                     `------ slot 0 ------------'  `------ slot 1 -----'
//
// What belongs to a row (m, l, alpha) is held by the lanes L with L % ROWS = row; from_lane(x, r) hands it to all lanes.
#pragma once
#include "rf_mask.cuh"
#include "rf_score.cuh"
#include "rf_softmax.cuh"
#include "rf_tile_io.cuh"

namespace rf {

constexpr int ROWS = 8;  // query rows of one warp

/// Slots of a lane in a row of `columns` columns.
template <int columns>
constexpr int slots = ceil_div(columns, LANES);

/// Column of slot c of this lane. Lanes past the last column repeat that one; what they compute is never stored.
template <int columns>
__device__ __forceinline__ int column(int c) {
    const int col = lane_index() + LANES * c;
    return columns % LANES == 0 ? col : min(col, columns - 1);
}

__device__ __forceinline__ float from_lane(float x, int lane) { return __shfl_sync(ALL_LANES, x, lane); }

/// S = score(softmax_scale S), but -inf for hidden keys. score_of(r): the score modification of row r, whose head may be its own.
template <int C, class Score_of, class Rows>
__device__ __forceinline__ void finish_scores_of(float (&S)[ROWS][C], float softmax_scale, const Score_of& score_of, const VisibleTo<Rows>& visible) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int begin = visible.begin(r), end = visible.end(r);
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const int key = lane_index() + LANES * c;
            const bool seen = key < end && (!Mask::CUTS_BEGIN || key >= begin);
            S[r][c] = seen ? score_of(r)(S[r][c] * softmax_scale, visible.row(r), visible.key0 + key) : negative_infinity();
        }
    }
}

/// The same where all rows belong to one head.
template <int C>
__device__ __forceinline__ void finish_scores(float (&S)[ROWS][C], float softmax_scale, const Score& score, const Visible& visible) {
    finish_scores_of(S, softmax_scale, [&](int) { return score; }, visible);
}

/// op over row r of the patch, in the lanes that hold row r.
template <int C, class Op>
__device__ __forceinline__ float reduce_patch(const float (&X)[ROWS][C], Op op) {
    float row[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        row[r] = X[r][0];
#pragma unroll
        for (int c = 1; c < C; ++c) row[r] = op(row[r], X[r][c]);
    }
    return reduce_rows(row, op);
}

/// P: registers -> SMEM, rows of pitch C * 32 floats. The warp's own rows: only the warp itself will read them.
template <int C>
__device__ __forceinline__ void store_P(float* P_smem, const float (&P)[ROWS][C]) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < C; ++c) P_smem[(r * C + c) * LANES + lane_index()] = P[r][c];
}

/// Columns 0 .. valid-1 of a row: HBM -> registers, converted; 0 past the end.
template <int C, class T>
__device__ __forceinline__ void load_row(float (&x)[C], const T* row, int valid) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
        const int col = lane_index() + LANES * c;
        x[c] = col < valid ? to_float(row[col]) : 0.0f;
    }
}

/// Columns 0 .. valid-1 of a row: registers -> HBM, rounded.
template <int C, class T>
__device__ __forceinline__ void store_row(T* row, const float (&x)[C], int valid) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
        const int col = lane_index() + LANES * c;
        if (col < valid) row[col] = from_float<T>(x[c]);
    }
}

}  // namespace rf
