// What tests/kernels_cu/test_mma_headers.py runs: tiles through SMEM and patches through registers, written out as lanes hold them.
#include "rf_products_mma.cuh"

using T = rf::RF_DTYPE;
constexpr int d = RF_D, D = rf::round_up(d, 16), ROWS = 32, PATCHES = ROWS / 16 * (D / 16);

/// HBM -> SMEM -> HBM by one CTA of `ROWS / 16` warps; and every patch of the tile, down, across, and down and turned, [patch][lane][4].
extern "C" __global__ void tile(const T* X, T* Y, unsigned* down_out, unsigned* across_out, unsigned* turned_out, int valid) {
    __shared__ uint4 X_smem[ROWS * D / rf::CHUNK];
    rf::load_tile<ROWS, ROWS / 16 * rf::LANES>(X_smem, rf::head_rows<d>(X, 0, 1, ROWS), valid, threadIdx.x);
    __syncthreads();
    const int first = rf::warp_index() * 16;
    const rf::Patches<D, rf::Order::down> patches(X_smem);
    const rf::Patches<D, rf::Order::across> across(X_smem);
    if (rf::warp_index() == 0)
        rf::unrolled<ROWS / 16>([&](auto r) {
            rf::unrolled<D / 16>([&](auto k) {
                const rf::Patch x = patches.load(r, k), y = across.load(r, k), z = patches.load_turned(r, k);
                for (int reg = 0; reg < 4; ++reg) {
                    const int at = ((r * (D / 16) + k) * rf::LANES + rf::lane_index()) * 4 + reg;
                    down_out[at] = x.reg[reg];
                    across_out[at] = y.reg[reg];
                    turned_out[at] = z.reg[reg];
                }
            });
        });
    rf::store_tile<16>(rf::head_rows<d>(Y, 0, 1, ROWS).from(first), X_smem + first * D / rf::CHUNK, valid - first);
}

/// S = A A^T and O = S A for one tile of 16 rows: A is Q, K and V at once.
extern "C" __global__ void products(const T* A, float* S_out, T* O_out) {
    __shared__ uint4 A_smem[16 * D / rf::CHUNK];
    rf::load_tile<16, rf::LANES>(A_smem, rf::head_rows<d>(A, 0, 1, 16), 16, threadIdx.x);
    __syncwarp();
    const rf::Patches<D, rf::Order::down> patches(A_smem);
    const rf::Patches<D, rf::Order::across> across(A_smem);
    rf::Strip<16> S;
    rf::Strip<D> O = {};
    rf::product_QK<T, D, 16>(S, [&](auto k) { return patches.load(rf::Int<0>{}, k); }, across);
    rf::add_product_PV<T, D, 16>(O, S, patches);
    for (int n = 0; n < 2; ++n)
        for (int e = 0; e < 4; ++e) S_out[(rf::quad_row() + 8 * rf::half(e)) * 16 + 8 * n + 2 * rf::quad_lane() + e % 2] = S[n][e];
    __syncwarp();
    rf::store_O<T, D>(A_smem, O);
    __syncwarp();
    rf::store_tile<16>(rf::head_rows<d>(O_out, 0, 1, 16), A_smem, 16);
}
