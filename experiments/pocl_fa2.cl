// kernels_cu/fa2.cu for fp32, d = 64, block 64, without masks, in OpenCL C: the same tiles and the same mapping of work-items.
//
// 256 work-items; the 32 of a "warp" own 8 query rows, "lane" L the columns L and L + 32 of S and O, and m and l of row L % 8. OpenCL
// 1.2 has no shuffles, so rows are reduced, and m and alpha handed round, through local memory. N must be a multiple of 64. The
// host defines EXP. Unrolled by 4, scalar broadcasts: the fastest of the spellings that were tried on PoCL 3.1.
#define D 64
#define PITCH 66
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define ROWS for (int r = 0; r < 8; ++r)
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void fa2(__global const float* Q, __global const float* K, __global const float* V, __global float* O, __global float* LSE, int N,
         float f) {
    __local float Qs[64 * D], Ks[D * PITCH], Vs[64 * D], Ps[64 * 64], part[64 * 33], row_m[64], row_a[64];
    const int t = get_local_id(0), lane = t % 32, patch = t / 32 * 8, own = patch + lane % 8, row0 = get_group_id(0) * 64;
    float o[8][2], m = -INFINITY, l = 0.0f;
    ROWS o[r][0] = o[r][1] = 0.0f;
    for (int c = t; c < 64 * D / 4; c += 256) vstore4(vload4(c, Q + row0 * D), c, Qs);
    for (int key0 = 0; key0 < N; key0 += 64) {
        BARRIER;
        for (int u = t / 32; u < 32; u += 8) {  // 8 rows x 16 columns of K, transposed
            const int row = u / 4 * 8 + lane / 4, col = u % 4 * 16 + lane % 4 * 4;
            const float4 x = vload4(0, K + (key0 + row) * D + col);
            __local float* const to = Ks + col * PITCH + row;
            to[0] = x.s0, to[PITCH] = x.s1, to[2 * PITCH] = x.s2, to[3 * PITCH] = x.s3;
        }
        for (int c = t; c < 64 * D / 4; c += 256) vstore4(vload4(c, V + key0 * D), c, Vs);
        BARRIER;
        float s[8][2];
        ROWS s[r][0] = s[r][1] = 0.0f;
#pragma unroll 4
        for (int k = 0; k < D; ++k) {
            const float k0 = Ks[k * PITCH + lane], k1 = Ks[k * PITCH + lane + 32];
            ROWS { const float q = Qs[(patch + r) * D + k]; s[r][0] = fma(q, k0, s[r][0]); s[r][1] = fma(q, k1, s[r][1]); }
        }
        ROWS { s[r][0] *= f, s[r][1] *= f; part[(patch + r) * 33 + lane] = fmax(s[r][0], s[r][1]); }
        BARRIER;
        float m_new = m;
        for (int j = 0; j < 32; ++j) m_new = fmax(m_new, part[own * 33 + j]);
        const float alpha = EXP(m - m_new);
        m = m_new;
        if (lane < 8) row_m[own] = m, row_a[own] = alpha;
        BARRIER;
        ROWS {
            const float p0 = EXP(s[r][0] - row_m[patch + r]), p1 = EXP(s[r][1] - row_m[patch + r]);
            o[r][0] *= row_a[patch + r], o[r][1] *= row_a[patch + r];
            part[(patch + r) * 33 + lane] = p0 + p1;
            Ps[(patch + r) * 64 + lane] = p0, Ps[(patch + r) * 64 + lane + 32] = p1;
        }
        BARRIER;
        l *= alpha;
        for (int j = 0; j < 32; ++j) l += part[own * 33 + j];
#pragma unroll 4
        for (int k = 0; k < 64; ++k) {
            const float v0 = Vs[k * D + lane], v1 = Vs[k * D + lane + 32];
            ROWS { const float p = Ps[(patch + r) * 64 + k]; o[r][0] = fma(p, v0, o[r][0]); o[r][1] = fma(p, v1, o[r][1]); }
        }
    }
    if (lane < 8) row_a[own] = 1.0f / l, LSE[row0 + own] = m + log(l);
    BARRIER;
    for (int c = 0; c < 2; ++c)
        ROWS O[(row0 + patch + r) * D + lane + 32 * c] = o[r][c] * row_a[patch + r];
}
