// The page: inputs -> calculate (formulas.js) -> table, verdict, two curves.
"use strict";

const $ = (id) => document.getElementById(id);
const POWER = (n) => 2 ** n;
// Sliders: id, words, least, most, value, what a position stands for.
const SLIDERS = [
  ["B", "B, batch", 0, 10, 2, POWER],
  ["H", "H, query heads", 0, 7, 4, POWER],
  ["share", "H / Hkv, query heads per key head", 0, 7, 0, POWER],
  ["N", "N, queries", 0, 20, 13, POWER],
  ["Nkv", "Nkv, keys", 0, 20, 13, POWER],
  ["d", "d (and dv), head dimension", 1, 32, 16, (n) => 8 * n],
  ["layers", "layers (of the KV cache)", 1, 128, 32, (n) => n],
];
const BLOCKS = [16, 32, 64, 96, 128, 256];
const CHART = { left: 70, right: 92, top: 14, bottom: 44 };
const FIRST = 7, LAST = 20; // the curves run over N = 2^7 .. 2^20

function build() {
  for (const [id, words, least, most, value] of SLIDERS) {
    const line = document.createElement("div");
    line.className = "slider";
    line.innerHTML = `<label for="${id}">${words}</label><output id="${id}-out" for="${id}"></output>
      <input type="range" id="${id}" min="${least}" max="${most}" step="1" value="${value}">`;
    $("sliders").append(line);
  }
  options("dtype", Object.keys(DATA.itemsize), "fp16");
  options("Br", BLOCKS, 64);
  options("Bc", BLOCKS, 64);
  options("gpu", Object.keys(DATA.gpus), DATA.gpu, (name) => DATA.gpus[name].name);
  $("figures").innerHTML = DATA.figures
    .map((f) => `<tr><th scope="row">${f.label}</th><td class="number" id="f-${f.name}"></td><td class="meaning">${f.meaning}</td></tr>`)
    .join("");
  document.addEventListener("input", show);
  window.addEventListener("resize", show);
  for (const kind of ["pointermove", "pointerdown"]) $("chart").addEventListener(kind, (event) => read(event.offsetX));
  $("chart").addEventListener("pointerleave", () => read(null));
}

function options(id, values, chosen, words = (value) => value) {
  $(id).innerHTML = values.map((v) => `<option value="${v}"${v === chosen ? " selected" : ""}>${words(v)}</option>`).join("");
}

// What the inputs say, in the words of formulas.js.
function asked() {
  const x = {};
  for (const [id, , , , , value] of SLIDERS) x[id] = value(+$(id).value);
  const same = $("same").checked;
  $("Nkv").disabled = same;
  if (same) {
    $("Nkv").value = $("N").value;
    x.Nkv = x.N;
  }
  x.Hkv = Math.max(1, x.H / x.share);
  const dtype = $("dtype").value;
  return { ...x, itemsize: DATA.itemsize[dtype], dtype, causal: $("causal").checked, Br: +$("Br").value, Bc: +$("Bc").value };
}

function rates(dtype) {
  const gpu = DATA.gpus[$("gpu").value];
  return { hbm_gb_s: gpu.hbm_gb_s, peak_tflops: gpu.peak_tflops[dtype] };
}

function show() {
  const x = asked(), gpu = DATA.gpus[$("gpu").value], found = calculate(x, rates(x.dtype));
  for (const [id] of SLIDERS) {
    const text = id === "share" ? `${x.H / x.Hkv} (Hkv = ${x.Hkv})` : x[id].toLocaleString("en");
    $(`${id}-out`).textContent = text;
    $(id).setAttribute("aria-valuetext", text);
  }
  for (const f of DATA.figures) $(`f-${f.name}`).textContent = told(found[f.name], f.unit);
  const peak = gpu.peak_tflops[x.dtype];
  $("sheet").textContent =
    `${gpu.name}: ${gpu.hbm_gb_s} GB/s, ` + (peak ? `${peak} TFLOP/s dense in ${x.dtype}` : `no tensor rate for ${x.dtype}`) +
    `, ${told(gpu.memory_bytes, "B")} of memory. Published numbers.`;
  $("verdict").textContent = verdict(x, found, gpu);
  draw(x);
}

function verdict(x, f, gpu) {
  const fits = (bytes) => (bytes <= gpu.memory_bytes ? "fits" : "does not fit");
  const binds = f.ridge === null
    ? `${gpu.name} has no rate for ${x.dtype}, so nothing is said about time.`
    : `By its bytes naive is bound by ${f.naive_bound}, tiled by ${f.tiled_bound} (ridge point ${told(f.ridge, "flop/B")}).`;
  return `Naive moves ${told(f.saving, "x")} the bytes of tiled. ${binds} Naive takes ${told(f.naive_memory_bytes, "B")} and ` +
    `${fits(f.naive_memory_bytes)} in ${gpu.name}; tiled takes ${told(f.tiled_memory_bytes, "B")} and ${fits(f.tiled_memory_bytes)}.`;
}

// A value with its unit, three digits: 512 MiB, 1.37 Tflop, 153 flop/B.
function told(value, unit) {
  if (value === null) return "–";
  if (unit === "") return value;
  if (unit === "B") return scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
  if (unit === "flop") return scaled(value, 1000, ["flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop", "Eflop"]);
  if (unit === "ms") return scaled(value * 1e6, 1000, ["ns", "µs", "ms", "s"]);
  return `${digits(value)} ${unit === "x" ? "times" : unit}`;
}

function scaled(value, step, units) {
  let i = 0;
  while (value >= 0.9995 * step && i < units.length - 1) value /= step, i++;
  return `${digits(value)} ${units[i]}`;
}

function digits(value) {
  return value >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

// ---------------------------------------------------------------------------------------------------------------- the chart
let frame = null; // of the last drawing: x, series, scales

function draw(x) {
  const kind = document.querySelector("[name=curve]:checked").value;
  const width = Math.max(300, $("chart").clientWidth || 700), height = width < 560 ? 300 : 360;
  const points = [];
  for (let n = FIRST; n <= LAST; n++) {
    const N = 2 ** n, f = calculate({ ...x, N, Nkv: $("same").checked ? N : x.Nkv }, rates(x.dtype));
    points.push({ N, naive: f[`naive_${kind}`], tiled: f[`tiled_${kind}`] });
  }
  const unit = kind === "ms" ? "ms" : "B", values = points.flatMap((p) => [p.naive, p.tiled]).filter((v) => v > 0);
  const top = Math.log2(Math.max(...values, 2)), low = Math.log2(Math.min(...values, 1e300));
  const across = (N) => CHART.left + ((Math.log2(N) - FIRST) / (LAST - FIRST)) * (width - CHART.left - CHART.right);
  const up = (v) => height - CHART.bottom - ((Math.log2(v) - low) / (top - low || 1)) * (height - CHART.top - CHART.bottom);
  frame = { x, points, unit, across, up, width, height, words: { bytes: "HBM bytes", memory_bytes: "Memory", ms: "Roofline time" }[kind] };
  $("chart").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("chart").innerHTML = grid(low, top) + (values.length ? curve("naive", "") + curve("tiled", "7 4") : "") + '<g id="now"></g>';
  separate();
  read(null);
}

function grid(low, top) {
  const { width, height, unit, across, up } = frame, step = Math.max(1, Math.round((top - low) / 6)), out = [];
  for (let v = Math.ceil(low); v <= top; v += step) {
    const y = up(2 ** v);
    out.push(`<line class="grid" x1="${CHART.left}" x2="${width - CHART.right}" y1="${y}" y2="${y}"/>`);
    out.push(`<text x="${CHART.left - 8}" y="${y + 4}" text-anchor="end">${told(2 ** v, unit)}</text>`);
  }
  for (let n = FIRST; n <= LAST; n += width < 560 ? 4 : 2)
    out.push(`<text x="${across(2 ** n)}" y="${height - 24}" text-anchor="middle">${short(2 ** n)}</text>`);
  out.push(`<text x="${(CHART.left + width - CHART.right) / 2}" y="${height - 5}" text-anchor="middle">N, queries (modelled, both axes logarithmic)</text>`);
  return out.join("");
}

function short(N) {
  return N >= 2 ** 20 ? `${N / 2 ** 20}M` : N >= 1024 ? `${N / 1024}k` : String(N);
}

function curve(name, dash) {
  const { points, across, up, width } = frame, last = points[points.length - 1];
  const path = points.map((p, i) => `${i ? "L" : "M"}${across(p.N).toFixed(1)} ${up(p[name]).toFixed(1)}`).join("");
  return `<path class="${name}" d="${path}" fill="none" stroke-width="2.5" stroke-dasharray="${dash}"/>
    <text class="label ${name}" id="end-${name}" x="${width - CHART.right + 8}" y="${up(last[name]) + 4}">${name}</text>`;
}

// Labels of curves that end close to each other move apart.
function separate() {
  const a = $("end-naive"), b = $("end-tiled");
  if (!a || !b) return;
  const ya = +a.getAttribute("y"), yb = +b.getAttribute("y");
  if (Math.abs(ya - yb) < 16) a.setAttribute("y", ya - (16 - Math.abs(ya - yb))), b.setAttribute("y", yb + 4);
}

// Values at the N under the pointer, or at the chosen one (offset null).
function read(offset) {
  const { x, points, unit, across, up, height, words } = frame;
  const distance = (p) => Math.abs(offset === null ? Math.log2(p.N / x.N) : across(p.N) - offset);
  const p = points.reduce((best, q) => (distance(q) < distance(best) ? q : best));
  const dots = ["naive", "tiled"].filter((name) => p[name] > 0).map((name) =>
    `<circle class="${name}" cx="${across(p.N)}" cy="${up(p[name])}" r="5" stroke-width="2"/>`);
  $("now").innerHTML =
    `<line class="now" x1="${across(p.N)}" x2="${across(p.N)}" y1="${CHART.top}" y2="${height - CHART.bottom}"/>` + dots.join("");
  $("reading").textContent = `${words} at N = ${p.N.toLocaleString("en")}: naive ${told(p.naive, unit)}, tiled ${told(p.tiled, unit)}.`;
}

// The page calculates examples that Python calculated, and says whether they agree.
function check() {
  const same = (a, b) => a === b || (typeof a === "number" && Math.abs(a - b) <= 1e-9 * Math.abs(b));
  const agree = DATA.examples.filter((e) => {
    const found = calculate(e.x, e.gpu);
    return DATA.figures.every((f) => same(found[f.name], e.found[f.name]));
  }).length;
  $("check").textContent = `Checked just now: ${agree} of ${DATA.examples.length} examples agree with Python's numbers.`;
}

build();
show();
check();
