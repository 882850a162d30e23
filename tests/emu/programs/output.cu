// printf and assert.
extern "C" __global__ void hello(const float* x, const char* unused) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 16 == 3) printf("cta %d thread %u: %.2f %s %c %llx 100%%\n", blockIdx.x, threadIdx.x, x[i], "text", 'a' + i % 26, 1ull << (40 + i % 8));
}
extern "C" __global__ void plain_line() {
    if (threadIdx.x == 0) printf("one line\n");
}
extern "C" __global__ void checked(const int* x, int limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(x[i] < limit);  // assert
}
