// Calls that stay calls: noinline functions, a table of function pointers, lanes that call different targets, virtual
// functions, structures by value and by reference; and a recursive function, which nothing else here calls.
__device__ __noinline__ int triple(int x) { return 3 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negate(int x) { return -x; }
__device__ __noinline__ int halve(int x) { return x / 2; }

typedef int (*Function)(int);
__device__ Function table[4] = {triple, square, negate, halve};

extern "C" __global__ void direct(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = triple(x[i]) + square(negate(x[i]));
}

extern "C" __global__ void uniform_pointer(const int* x, int* out, int which) {
    Function f = table[which];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = f(x[i]);
}

extern "C" __global__ void divergent_pointer(const int* x, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = table[x[i] & 3](x[i]);
}

__device__ __noinline__ unsigned ackermann_like(unsigned n) { return n < 2 ? n : ackermann_like(n - 1) + ackermann_like(n - 2); }

extern "C" __global__ void recursion(const unsigned* n, unsigned* out) {
    int i = threadIdx.x;
    out[i] = ackermann_like(n[i]);
}

struct Pair {
    double sum;
    int count;
    short tag[3];
};
__device__ __noinline__ Pair merge(Pair a, const Pair& b) {
    a.sum += b.sum;
    a.count += b.count;
    a.tag[1] = b.tag[2];
    return a;
}
extern "C" __global__ void structures(const double* x, double* sum, int* rest) {
    int i = threadIdx.x;
    Pair a = {x[i], i, {1, 2, 3}}, b = {x[i ^ 1], 10, {4, 5, (short)(6 + i)}};
    Pair c = merge(a, b);
    sum[i] = c.sum;
    rest[i] = c.count * 1000 + c.tag[0] * 100 + c.tag[1];
}

struct Shape {
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ __noinline__ float area() const override { return side * side; }
};
struct Rectangle : Shape {
    float a, b;
    __device__ Rectangle(float a_, float b_) : a(a_), b(b_) {}
    __device__ __noinline__ float area() const override { return a * b; }
};
extern "C" __global__ void virtual_calls(const float* x, float* out) {
    int i = threadIdx.x;
    Square s(x[i]);
    Rectangle r(x[i], 2.f);
    const Shape* shape = i & 1 ? (const Shape*)&s : (const Shape*)&r;
    out[i] = shape->area();
}
