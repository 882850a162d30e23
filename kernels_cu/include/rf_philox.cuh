// Random numbers without a state: Philox 4x32 with 10 rounds (Salmon et al., SC 2011), a function of a counter and a key.
// rawflash/dropout.py computes the same numbers.
#pragma once

namespace rf {

/// Four random numbers of 32 bits for a counter and a key (the counter's upper 64 bits are 0).
__device__ __forceinline__ uint4 philox(unsigned long long counter, unsigned long long key) {
    constexpr unsigned M0 = 0xD2511F53u, M1 = 0xCD9E8D57u, W0 = 0x9E3779B9u, W1 = 0xBB67AE85u;
    uint4 c = make_uint4(static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), 0u, 0u);
    unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        c = make_uint4(__umulhi(M1, c.z) ^ c.y ^ k0, M1 * c.z, __umulhi(M0, c.x) ^ c.w ^ k1, M0 * c.x);
        k0 += W0, k1 += W1;
    }
    return c;
}

}  // namespace rf
