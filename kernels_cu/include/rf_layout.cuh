// Where the rows of a head lie in HBM. Every rung asks here for Q, K, V and O, so that a layout is written once.
//
//     bhnd   [B, H, N, d]: the rows of a head follow each other
//     bnhd   [B, N, H, d]: the heads of a row follow each other, so two rows of a head are H d elements apart
//
// A row is contiguous either way, and a multiple of 16 bytes long: where the tensor is aligned, all rows are.
#pragma once

namespace rf {

enum class Layout { bhnd, bnhd };
constexpr Layout LAYOUT = Layout::RF_LAYOUT;
constexpr bool ROWS_FOLLOW = LAYOUT == Layout::bhnd;  // each other, without a gap

/// Rows of d elements in HBM: row n starts at (*this)[n]. Offsets have 64 bits.
template <class T, int d>
struct Rows {
    T* first;
    size_t pitch;  // from row to row, in elements

    __device__ __forceinline__ T* operator[](int n) const { return first + static_cast<size_t>(n) * (ROWS_FOLLOW ? d : pitch); }
    __device__ __forceinline__ Rows from(int n) const { return {(*this)[n], pitch}; }
};

/// The N rows of head bh = b*H + h of a tensor X of B times H heads.
template <int d, class T>
__device__ __forceinline__ Rows<T, d> head_rows(T* X, unsigned bh, int H, int N) {
    const size_t row = ROWS_FOLLOW ? static_cast<size_t>(bh) * N : static_cast<size_t>(bh / H) * N * H + bh % H;
    return {X + row * d, static_cast<size_t>(H) * d};
}

}  // namespace rf
