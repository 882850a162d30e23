// Which keys a query row sees. Every rung asks here, so that a mask is written once: as an interval of keys,
//
//     row i sees the keys begin(i) .. end(i) - 1,      and neither end falls when i grows.
//
// From that follow the key tiles that a query tile meets, which of them all its rows see whole, and what a row sees of a tile. A limit
// that is off is a constant, and nothing is left of it in the kernel.
//
// A hidden key is always *selected* away, never added or multiplied away: -inf + NaN and 0 * NaN are NaN.
#pragma once

namespace rf {

/// none: all keys.  bottom_right: key j <= i + Nkv - N.  top_left: key j <= i.
enum class Causal { none, bottom_right, top_left };

/// Keys begin .. end - 1.
struct Keys {
    int begin, end;
};

/// Causal mask and sliding window: key j with  facing(i) - LEFT <= j <= facing(i) + RIGHT.  A limit of -1 is off.
struct Mask {
    static constexpr Causal CAUSAL = Causal::RF_CAUSAL;
    static constexpr int LEFT = RF_WINDOW_LEFT, RIGHT = CAUSAL == Causal::none ? RF_WINDOW_RIGHT : 0;
    static constexpr bool CUTS_BEGIN = LEFT >= 0, CUTS_END = RIGHT >= 0;  // does begin, does end depend on the row?

    int N, Nkv;

    /// The key on the diagonal of row i.
    __device__ __forceinline__ int facing(int i) const { return CAUSAL == Causal::top_left ? i : i + (Nkv - N); }

    __device__ __forceinline__ int begin(int i) const { return CUTS_BEGIN ? max(0, min(facing(i) - LEFT, Nkv)) : 0; }

    __device__ __forceinline__ int end(int i) const {
        return CUTS_END ? max(0, min(facing(i), Nkv - 1 - RIGHT) + 1 + RIGHT) : Nkv;  // min first: cannot overflow
    }

    // ------------------------------------------------------------------- what follows, whatever begin and end are
    /// What the rows first .. last see together. `begin` is moved down to the start of its key tile of Bc keys.
    __device__ __forceinline__ Keys tiles(int first, int last, int Bc) const {
        if constexpr (!CUTS_BEGIN) return {0, end(last)};
        return {begin(first) < end(last) ? begin(first) / Bc * Bc : end(last), end(last)};
    }

    /// Do all of the rows first .. last see all keys of the tile that starts at key0?
    __device__ __forceinline__ bool shows_all(int first, int last, int key0, int Bc) const {
        if constexpr (!CUTS_BEGIN && !CUTS_END) return true;
        return begin(last) <= key0 && end(first) >= min(key0 + Bc, Nkv);
    }
};

/// The rows of a patch, as most rungs have them: row r is row0 + r of its head.
struct Neighbours {
    int row0;

    __device__ __forceinline__ int operator()(int r) const { return row0 + r; }
};

/// The mask on a patch of rows and a tile of keys: row(r) sees the tile's keys begin(r) .. end(r) - 1; begin >= end: none.
template <class Rows>
struct VisibleTo {
    Mask mask;
    Rows row;
    int key0, Bc;

    __device__ __forceinline__ int begin(int r) const { return Mask::CUTS_BEGIN ? max(0, mask.begin(row(r)) - key0) : 0; }
    __device__ __forceinline__ int end(int r) const { return min(mask.end(row(r)) - key0, Bc); }

    /// Does some of the rows 0 .. R - 1 see a key?
    __device__ __forceinline__ bool any(int R) const { return begin(0) < end(R - 1); }
    /// Do the rows 0 .. R - 1 see the whole tile?
    __device__ __forceinline__ bool all(int R) const { return begin(R - 1) == 0 && end(0) >= Bc; }
};

using Visible = VisibleTo<Neighbours>;

}  // namespace rf
