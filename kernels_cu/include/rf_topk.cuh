// The K largest of a stream, kept sorted across the lanes of a warp: rank 32 s + L in slot s of lane L.
//
//             lane 0   lane 1   ...   lane 31
//   slot 0    rank 0   rank 1         rank 31        An entry is (value, index). Larger values come first, equal ones by
//   slot 1    rank 32  rank 33        rank 63        index. NaN precedes nothing, so it never enters.
#pragma once
#include "rf_softmax.cuh"
#include "rf_warp.cuh"

namespace rf {

struct alignas(8) Entry {
    float value;
    int index;

    __device__ __forceinline__ bool precedes(const Entry& other) const {
        return value > other.value || (value == other.value && index < other.index);
    }
};

constexpr int NO_INDEX = 0x7fffffff;  // of an empty place: after every real entry

template <int K>
struct TopK {
    static constexpr int SLOTS = ceil_div(K, LANES);
    Entry entries[SLOTS];

    __device__ __forceinline__ TopK() {
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) entries[s] = {negative_infinity(), NO_INDEX};
    }

    /// The entry of a rank, in every lane.
    __device__ __forceinline__ Entry at(int rank) const {
        Entry found = entries[0];
#pragma unroll
        for (int s = 1; s < SLOTS; ++s)
            if (rank / LANES == s) found = entries[s];
        return {__shfl_sync(ALL_LANES, found.value, rank % LANES), __shfl_sync(ALL_LANES, found.index, rank % LANES)};
    }

    /// Offer one entry per lane. Those that precede the last rank are inserted, one after the other. Call with all lanes.
    __device__ __forceinline__ void offer(const Entry& mine) {
        unsigned waiting = __ballot_sync(ALL_LANES, mine.precedes(at(K - 1)));
        while (waiting) {
            const int lane = __ffs(waiting) - 1;
            insert({__shfl_sync(ALL_LANES, mine.value, lane), __shfl_sync(ALL_LANES, mine.index, lane)});
            const unsigned later = ~((2u << lane) - 1u);
            waiting = __ballot_sync(ALL_LANES, mine.precedes(at(K - 1))) & later;
        }
    }

  private:
    /// Entries that `next` precedes move up by one rank; it takes the place that becomes free.
    __device__ __forceinline__ void insert(const Entry& next) {
        Entry carried = next;  // what lane 0 of a slot gets if it moves: the last of the slot before
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            const Entry old = entries[s];
            Entry below = {__shfl_up_sync(ALL_LANES, old.value, 1), __shfl_up_sync(ALL_LANES, old.index, 1)};
            if (lane_index() == 0) below = carried;
            if (next.precedes(old)) entries[s] = next.precedes(below) ? below : next;
            carried = {__shfl_sync(ALL_LANES, old.value, LANES - 1), __shfl_sync(ALL_LANES, old.index, LANES - 1)};
        }
    }
};

}  // namespace rf
