// Other people's device libraries, as a user would take them: cooperative groups, CUB's block primitives, libcu++ atomics.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cuda/atomic>
namespace cg = cooperative_groups;

extern "C" __global__ void group_sums(const int* x, int* out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int v = x[block.thread_rank()];
    int sum = cg::reduce(tile, v, cg::plus<int>());
    int most = v;
    for (int step = tile.size() / 2; step > 0; step /= 2) most = max(most, tile.shfl_xor(most, step));
    cg::coalesced_group odd = cg::coalesced_threads();
    if (v & 1) {
        cg::coalesced_group here = cg::coalesced_threads();
        out[128 + block.thread_rank()] = here.thread_rank() * 100 + here.size();
    }
    block.sync();
    out[block.thread_rank()] = sum * 1000 + most + (int)(odd.size() == 32);
}

extern "C" __global__ void block_sum(const int* x, int* out) {
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ typename Reduce::TempStorage storage;
    int sum = Reduce(storage).Sum(x[blockIdx.x * 128 + threadIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void block_scan(const int* x, int* out) {
    using Scan = cub::BlockScan<int, 128>;
    __shared__ typename Scan::TempStorage storage;
    int items[4];
    for (int k = 0; k < 4; ++k) items[k] = x[(blockIdx.x * 128 + threadIdx.x) * 4 + k];
    Scan(storage).ExclusiveSum(items, items);
    for (int k = 0; k < 4; ++k) out[(blockIdx.x * 128 + threadIdx.x) * 4 + k] = items[k];
}

extern "C" __global__ void block_sort(const unsigned* keys, unsigned* out) {
    using Sort = cub::BlockRadixSort<unsigned, 64, 4>;
    __shared__ typename Sort::TempStorage storage;
    unsigned items[4];
    for (int k = 0; k < 4; ++k) items[k] = keys[threadIdx.x * 4 + k];
    Sort(storage).Sort(items);
    for (int k = 0; k < 4; ++k) out[threadIdx.x * 4 + k] = items[k];
}

extern "C" __global__ void warp_sum(const float* x, float* out) {
    using Reduce = cub::WarpReduce<float>;
    __shared__ typename Reduce::TempStorage storage[4];
    float sum = Reduce(storage[threadIdx.x / 32]).Sum(x[threadIdx.x]);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

extern "C" __global__ void scoped_atomics(unsigned* counter, unsigned long long* wide, int* flag) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> c(counter[0]);
    c.fetch_add(2, cuda::memory_order_relaxed);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_system> w(wide[0]);
    w.fetch_max(threadIdx.x * 3ull, cuda::memory_order_acq_rel);
    cuda::atomic_ref<int, cuda::thread_scope_block> f(flag[0]);
    int expected = 0;
    f.compare_exchange_strong(expected, (int)threadIdx.x + 1);
}
