// What becomes of a scaled score before the softmax. Every rung asks here, so that a modification is written once.
#pragma once

namespace rf {

/// Softcap: s -> c tanh(s / c) with c = RF_SOFTCAP, which leaves small scores and bounds large ones. 0: scores stay as they are.
struct Score {
    static constexpr float CAP = RF_SOFTCAP;
    static constexpr bool IDENTITY = CAP == 0.0f;  // then a kernel may fold the scale into something else

    int h;  // the query's head

    /// s: softmax_scale Q_i . K_j.
    __device__ __forceinline__ float operator()(float s, int i, int j) const {
        if constexpr (IDENTITY) return s;
        else return CAP * tanhf(s * (1.0f / CAP));
    }
};

}  // namespace rf
