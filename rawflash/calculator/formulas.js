// The figures of formulas.py, for the page: the same names, the same units. Plain ECMAScript 5, so that small engines can test it.
//
// x    {B, H, Hkv, N, Nkv, d, itemsize, causal, Br, Bc, layers}; causal means: row i sees keys j <= i + Nkv - N
// gpu  {hbm_gb_s, peak_tflops} for the storage type; 0 where the GPU has no such rate
"use strict";

function ceilDiv(a, b) {
  return Math.ceil(a / b);
}

// Keys that row i sees: keys 0 .. n-1.
function visibleKeys(x, i) {
  return x.causal ? Math.min(Math.max(i + x.Nkv - x.N + 1, 0), x.Nkv) : x.Nkv;
}

// (query, key) pairs of one head that the mask leaves.
function visiblePairs(x) {
  if (!x.causal) return x.N * x.Nkv;
  var rows = Math.min(x.N, x.Nkv); // rows that see a key: the last ones
  return rows * (x.Nkv - rows) + (rows * (rows + 1)) / 2;
}

// HBM bytes of naive.cu. A row of scores that does not fit in 48 KiB is read three times.
function naiveBytes(x) {
  var heads = x.B * x.H, w = x.itemsize, fits = 4 * x.Nkv <= 48 * 1024;
  var operands = (ceilDiv(x.Nkv, x.Bc) * x.N + 2 * ceilDiv(x.N, x.Br) * x.Nkv + x.N) * x.d * w;
  var scores = x.N * x.Nkv * (4 + (fits ? 4 : 12) + 2 * w);
  return heads * (operands + scores + 4 * x.N);
}

// HBM bytes of fa2.cu: K and V once per query tile, as far as its last row sees.
function tiledBytes(x) {
  var keys = 0;
  for (var i = 0; i < ceilDiv(x.N, x.Br); i++) {
    var last = Math.min((i + 1) * x.Br, x.N) - 1;
    keys += Math.min(ceilDiv(visibleKeys(x, last), x.Bc) * x.Bc, x.Nkv);
  }
  return x.B * x.H * ((2 * x.N + 2 * keys) * x.d * x.itemsize + 4 * x.N);
}

function over(a, b) {
  return b ? a / b : null;
}

function calculate(x, gpu) {
  var q = x.B * x.H * x.N * x.d, kv = x.B * x.Hkv * x.Nkv * x.d, w = x.itemsize;
  var flops = 4 * x.B * x.H * x.d * visiblePairs(x);
  var ideal = 2 * (q + kv) * w, naive = naiveBytes(x), tiled = tiledBytes(x);
  var scores = x.B * x.H * x.N * x.Nkv * w;
  var memory = ideal + 4 * x.B * x.H * x.N;
  var cache = 2 * x.layers * x.B * x.Nkv * x.d * w;
  var known = gpu.peak_tflops > 0 && gpu.hbm_gb_s > 0;
  var ridge = known ? (gpu.peak_tflops * 1e3) / gpu.hbm_gb_s : null;
  var ms = function (bytes) {
    return known ? Math.max(flops / (gpu.peak_tflops * 1e9), bytes / (gpu.hbm_gb_s * 1e6)) : null;
  };
  var bound = function (bytes) {
    return known ? (flops < ridge * bytes ? "memory" : "compute") : null;
  };
  return {
    flops: flops,
    ideal_bytes: ideal,
    naive_bytes: naive,
    tiled_bytes: tiled,
    saving: over(naive, tiled),
    score_bytes: scores,
    naive_memory_bytes: memory + 2 * scores,
    tiled_memory_bytes: memory,
    kv_mha_bytes: cache * x.H,
    kv_gqa_bytes: cache * x.Hkv,
    kv_mqa_bytes: cache,
    ridge: ridge,
    naive_intensity: over(flops, naive),
    tiled_intensity: over(flops, tiled),
    ideal_intensity: over(flops, ideal),
    naive_bound: bound(naive),
    tiled_bound: bound(tiled),
    naive_ms: ms(naive),
    tiled_ms: ms(tiled),
    ideal_ms: ms(ideal),
    tiled_tflops: known ? over(flops / 1e9, ms(tiled)) : null
  };
}
