extern "C" __global__ void tree_sum(const float *__restrict__ p0, float *p1) {
    const long long i0 = blockIdx.x;
    const long long i1 = threadIdx.x;
    __shared__ float m2[256];
    const long long v3 = (long long)(i1);
    float v4 = (float)0x0.0p+0;
    for (long long i5 = 0; i5 < 4; ++i5) {
        const long long v6 = (long long)(i1 + i5 * 256);
        const bool v7 = (v6 < (long long)(1000ll));
        const float v9 = (v7 ? p0[i0 * 1000 + i1 + i5 * 256] : (float)0);
        v4 = __fadd_rn(v4, v9);
    }
    m2[i1] = v4;
    __syncthreads();
    const bool v10 = (v3 < (long long)(128ll));
    if (v10) {
        const float v11 = m2[i1 + 128];
        m2[i1] = __fadd_rn(m2[i1], v11);
    }
    __syncthreads();
    const bool v12 = (v3 < (long long)(64ll));
    if (v12) {
        const float v13 = m2[i1 + 64];
        m2[i1] = __fadd_rn(m2[i1], v13);
    }
    __syncthreads();
    const bool v14 = (v3 < (long long)(32ll));
    if (v14) {
        const float v15 = m2[i1 + 32];
        m2[i1] = __fadd_rn(m2[i1], v15);
    }
    __syncthreads();
    const bool v16 = (v3 < (long long)(16ll));
    if (v16) {
        const float v17 = m2[i1 + 16];
        m2[i1] = __fadd_rn(m2[i1], v17);
    }
    __syncthreads();
    const bool v18 = (v3 < (long long)(8ll));
    if (v18) {
        const float v19 = m2[i1 + 8];
        m2[i1] = __fadd_rn(m2[i1], v19);
    }
    __syncthreads();
    const bool v20 = (v3 < (long long)(4ll));
    if (v20) {
        const float v21 = m2[i1 + 4];
        m2[i1] = __fadd_rn(m2[i1], v21);
    }
    __syncthreads();
    const bool v22 = (v3 < (long long)(2ll));
    if (v22) {
        const float v23 = m2[i1 + 2];
        m2[i1] = __fadd_rn(m2[i1], v23);
    }
    __syncthreads();
    const bool v24 = (v3 < (long long)(1ll));
    if (v24) {
        const float v25 = m2[i1 + 1];
        m2[i1] = __fadd_rn(m2[i1], v25);
    }
    __syncthreads();
    const bool v26 = (v3 == (long long)(0ll));
    if (v26) {
        const float v27 = m2[0];
        p1[i0] = v27;
    }
}
