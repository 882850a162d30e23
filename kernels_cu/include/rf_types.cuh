// Storage types of Q, K, V, O (and P) in HBM. Arithmetic is fp32 everywhere: a kernel converts once on the way in and once on
// the way out. A 16-bit type is its bits, converted by one PTX instruction, so that no CUDA header is needed.
#pragma once

namespace rf {

using fp32 = float;
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };

__device__ __forceinline__ float to_float(fp32 x) { return x; }

__device__ __forceinline__ float to_float(fp16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

/// Round to nearest, ties to even; beyond the largest number of T: infinity.
template <class T>
__device__ __forceinline__ T from_float(float x);

template <>
__device__ __forceinline__ fp32 from_float<fp32>(float x) { return x; }

template <>
__device__ __forceinline__ fp16 from_float<fp16>(float x) {
    fp16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// ------------------------------------------------------------------------------ four neighbours: the unit of all tile loads
/// True when 4 elements at p can be read as one vector (of 16 or 8 bytes).
template <class T>
__device__ __forceinline__ bool is_aligned4(const T* p) { return reinterpret_cast<size_t>(p) % (4 * sizeof(T)) == 0; }

__device__ __forceinline__ float4 load_vector4(const fp32* p) { return *reinterpret_cast<const float4*>(p); }

template <class Half>
__device__ __forceinline__ float4 load_vector4(const Half* p) {
    const ushort4 x = *reinterpret_cast<const ushort4*>(p);
    return make_float4(to_float(Half{x.x}), to_float(Half{x.y}), to_float(Half{x.z}), to_float(Half{x.w}));
}

/// p[0..3] as floats: one vector load if p is aligned for it, else four scalar ones.
template <class T>
__device__ __forceinline__ float4 load4(const T* p) {
    if (is_aligned4(p)) return load_vector4(p);
    return make_float4(to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3]));
}

}  // namespace rf
