extern "C" __global__ void elementwise(const float *__restrict__ p0, const float *__restrict__ p1, float *p2) {
    const long long i0 = blockIdx.x;
    const long long i1 = threadIdx.x;
    const long long v2 = (long long)(i0 * 256 + i1);
    const bool v3 = (v2 < (long long)(1000ll));
    if (v3) {
        const float v5 = p0[i0 * 256 + i1];
        const float v6 = floorf(v5);
        const float v8 = p1[((i0 * 256 + i1) % 10)];
        const float v9 = __fmaf_rn(v6, v5, v8);
        p2[i0 * 256 + i1] = v9;
    }
}
