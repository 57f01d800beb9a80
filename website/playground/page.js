// The page: text and points -> questions for the worker -> colours, carets, layers, patterns, matrices.
"use strict";

const $ = (id) => document.getElementById(id);
const HUES = ["#4269d0", "#e8833a", "#3ca951", "#d64545", "#9c6ade", "#17a2a2", "#d45fa6", "#8c6d3f", "#7a8793", "#b5a017"];
const HALF = 1.6; // the plane shows x from -2 to 2 and y from -1.6 to 1.6
const WIDE = 2;
const state = { specs: [], asks: null, drawn: {}, brush: "", run: null, at: 0, dims: {}, params: {}, layers: 8, playing: 0, matricesOf: "" };

// ---- asking -------------------------------------------------------------------------------------------------------

const worker = new Worker("worker.js");
const waiting = new Map();
let questions = 0;

function ask(method, ...args) {
  const id = ++questions;
  worker.postMessage({ id, method, args });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

worker.onmessage = ({ data }) => {
  if (data.status) $("status").textContent = data.status;
  else if (data.ready) $("loading").hidden = true;
  else {
    const { resolve, reject } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.failure) reject(new Error(data.failure));
    else resolve(data.result);
  }
};

// Only the last of many questions of a kind is asked; an answer to an older one is dropped.
function latest(work, delay) {
  let timer = 0, round = 0;
  return () => {
    clearTimeout(timer);
    const mine = ++round;
    timer = setTimeout(() => work(() => mine === round).catch((error) => ($("status").textContent = error.message)), delay);
  };
}

// ---- the text -----------------------------------------------------------------------------------------------------

const check = latest(async (current) => {
  const text = $("text").value;
  const found = await ask("checked_text", text, false);
  if (!current()) return;
  show(text, found);
  if (found.problems.length) return;
  settle(found.asks);
  run();
  const lowered = await ask("checked_text", text, true); // slower: is there an attention form?
  if (current()) show(text, lowered);
  if (current() && !$("matrices").hidden) matrices();
}, 150);

function show(text, found) {
  if (text !== $("text").value) return;
  const box = $("colours");
  box.replaceChildren();
  let at = 0;
  for (const [kind, piece] of found.pieces) {
    for (const [letters, wrong] of cut(piece, at, found.problems)) {
      const span = document.createElement("span");
      span.className = `${kind}${wrong ? " wrong" : ""}`;
      span.textContent = letters;
      box.append(span);
    }
    at += piece.length;
  }
  box.append("\n");
  document.querySelector(".editor").classList.add("fresh");
  scrolled();
  $("problems").replaceChildren(...found.problems.map((problem) => {
    const pre = document.createElement("pre");
    pre.textContent = problem.shown;
    pre.onclick = () => { $("text").focus(); $("text").setSelectionRange(problem.start, problem.end); };
    return pre;
  }));
  const mistakes = found.problems.length;
  $("status").textContent = mistakes ? `${mistakes} problem${mistakes > 1 ? "s" : ""}` : "no problems";
}

// A piece of the text in parts, each inside or outside what a problem points at.
function cut(piece, start, problems) {
  const edges = new Set([0, piece.length]);
  for (const { start: from, end } of problems) for (const edge of [from - start, Math.max(end, from + 1) - start]) if (edge > 0 && edge < piece.length) edges.add(edge);
  const sorted = [...edges].sort((a, b) => a - b);
  return sorted.slice(1).map((end, n) => [piece.slice(sorted[n], end), problems.some((p) => p.start <= start + sorted[n] && start + sorted[n] < Math.max(p.end, p.start + 1))]);
}

function scrolled() {
  $("colours").scrollTop = $("text").scrollTop;
  $("colours").scrollLeft = $("text").scrollLeft;
}

const tell = latest(async (current) => {
  const found = await ask("hovered", $("text").value, $("text").selectionStart);
  if (!current()) return;
  const told = $("told");
  told.replaceChildren();
  const fenced = found.match(/^```weft\n([^]*)\n```\n([^]*)$/);
  if (fenced) {
    const code = document.createElement("code");
    code.textContent = fenced[1];
    told.append(code, ` — ${fenced[2]}`);
  } else told.textContent = found.replaceAll("**", "");
}, 200);

const offer = latest(async (current) => {
  const text = $("text"), at = text.selectionStart;
  const begun = /[A-Za-z][A-Za-z0-9_']*$/.exec(text.value.slice(0, at))?.[0] ?? "";
  const found = begun ? await ask("completed", text.value, at) : [];
  if (!current()) return;
  const fit = found.filter((one) => one.text.startsWith(begun) && one.text !== begun).slice(0, 12);
  const list = $("offers");
  list.replaceChildren(...fit.map((one, n) => {
    const row = document.createElement("li");
    row.setAttribute("aria-selected", n === 0);
    row.dataset.text = one.text.slice(begun.length);
    const why = document.createElement("span");
    why.textContent = one.detail;
    row.append(one.text, why);
    row.onpointerdown = (event) => { event.preventDefault(); take(row); };
    return row;
  }));
  list.hidden = !fit.length;
  if (fit.length) place(list, at);
}, 120);

function place(list, at) {
  const before = $("text").value.slice(0, at).split("\n");
  const look = getComputedStyle($("text")), size = parseFloat(look.fontSize);
  const box = $("text").getBoundingClientRect();
  list.style.top = `${scrollY + box.top + 12 + before.length * size * 1.55 - $("text").scrollTop}px`;
  list.style.left = `${Math.min(scrollX + box.left + 12 + before.at(-1).length * size * 0.6 - $("text").scrollLeft, innerWidth - 250)}px`;
}

function take(row) {
  $("text").setRangeText(row.dataset.text, $("text").selectionStart, $("text").selectionEnd, "end");
  $("offers").hidden = true;
  typed();
}

function typed() {
  document.querySelector(".editor").classList.remove("fresh");
  check();
  tell();
}

$("text").addEventListener("input", () => { typed(); offer(); });
$("text").addEventListener("scroll", scrolled);
$("text").addEventListener("blur", () => ($("offers").hidden = true));
for (const event of ["click", "keyup"]) $("text").addEventListener(event, () => tell());
$("text").addEventListener("keydown", (event) => {
  const list = $("offers"), rows = [...list.children], at = rows.findIndex((row) => row.ariaSelected === "true");
  if (list.hidden) return;
  if (event.key === "Escape") list.hidden = true;
  else if (event.key === "Tab" || event.key === "Enter") take(rows[at]);
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    rows[at].setAttribute("aria-selected", false);
    const next = rows[(at + (event.key === "ArrowDown" ? 1 : rows.length - 1)) % rows.length];
    next.setAttribute("aria-selected", true);
    next.scrollIntoView({ block: "nearest" });
  } else return;
  event.preventDefault();
});
new ResizeObserver(() => ($("colours").style.height = `${$("text").offsetHeight}px`)).observe($("text"));

// ---- what a spec asks for -----------------------------------------------------------------------------------------

function settle(asks) {
  const same = JSON.stringify(asks) === JSON.stringify(state.asks);
  state.asks = asks;
  if (same) return;
  for (const brush of asks.brushes) state.drawn[brush.field] ??= sampled(brush, asks.brushes.indexOf(brush));
  if (!asks.brushes.some((brush) => brush.field === state.brush)) state.brush = asks.brushes[0]?.field ?? "";
  $("brushes").replaceChildren(...asks.brushes.map((brush) => {
    const button = document.createElement("button");
    button.type = "button";
    button.role = "radio";
    button.textContent = `draw ${brush.field} (${brush.set})`;
    button.setAttribute("aria-checked", brush.field === state.brush);
    button.onclick = () => {
      state.brush = brush.field;
      for (const other of $("brushes").children) other.setAttribute("aria-checked", other === button);
    };
    return button;
  }));
  const fields = [
    ...asks.dims.map((name) => setting(name, state.dims, String(state.dims[name] ?? 3), { min: 1, max: 20, step: 1 })),
    setting("layers", state, String((state.layers = asks.layers)), { min: 0, max: 100, step: 1 }),
    ...asks.params.map(({ name, default: value }) => setting(name, state.params, "", { step: "any", placeholder: value })),
  ];
  state.params = {};
  $("settings").replaceChildren(...fields);
}

function setting(name, table, value, options) {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, { type: "number", value, id: `set-${name}`, ...options });
  input.oninput = () => {
    if (input.value === "") delete (table === state ? {} : owner(table))[name];
    else owner(table)[name] = Number(input.value);
    run();
    if (!$("matrices").hidden) matrices();
  };
  label.append(name, input);
  return label;
}

// Parameters are forgotten when the spec changes; a setting writes to the table that is in use.
function owner(table) {
  return table === state ? state : table === state.dims ? state.dims : state.params;
}

function gaussian() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

function sampled(brush, number) {
  const middles = number % 2 ? [[0.9, -0.9], [-0.5, 0.9]] : [[-1.1, -0.4], [0.8, 0.7], [0.5, -0.9]];
  return Array.from({ length: 45 }, (_, n) => middles[Math.floor((n * middles.length) / 45)].map((m) => m + 0.22 * gaussian()));
}

// ---- running ------------------------------------------------------------------------------------------------------

const run = latest(async (current) => {
  const asks = state.asks;
  if (!asks) return;
  const drawn = Object.fromEntries(asks.brushes.map(({ field }) => [field, state.drawn[field] ?? []]));
  const found = await ask("ran", $("text").value, drawn, state.dims, state.params, state.layers, 0);
  if (!current()) return;
  $("failed").hidden = !found.error;
  $("failed").textContent = found.error ?? "";
  if (found.error) state.run = null;
  else {
    const stayed = state.run && state.at > 0;
    state.run = found;
    $("layer").max = found.frames.length - 1;
    state.at = stayed ? Math.min(state.at, found.frames.length - 1) : found.frames.length - 1;
  }
  draw();
}, 60);

function draw() {
  plane();
  $("layer").value = state.at;
  $("where").textContent = `layer ${state.at}`;
  const frame = state.run?.frames[state.at];
  $("objective").textContent = frame && frame.objective !== null ? `objective ${frame.objective.toPrecision(8)}` : "";
  if (!$("patterns").hidden) patterns(frame);
  if (!$("values").hidden) values(frame);
}

function scale(canvas) {
  const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  if (canvas.width !== Math.round(box.width * ratio)) { canvas.width = Math.round(box.width * ratio); canvas.height = Math.round(box.height * ratio); }
  return { unit: canvas.width / (2 * WIDE), ratio };
}

function toScreen([x, y], canvas) {
  return [(x / WIDE + 1) * canvas.width / 2, (1 - y / HALF) * canvas.height / 2];
}

// Field -> the colour of each of its tokens: by its largest weight in the last pair field of its set.
function hues(frame, home) {
  for (const [name, [own, columns]] of Object.entries(state.run.columns)) {
    const rows = frame.fields[name];
    if (columns && own === home && rows) return rows.map((row) => HUES[row.indexOf(Math.max(...row)) % HUES.length]);
  }
  return null;
}

function isColumns(home) {
  return Object.values(state.run.columns).some(([, columns]) => columns === home);
}

function plane() {
  const canvas = $("plane"), { ratio } = scale(canvas), pen = canvas.getContext("2d");
  const ink = getComputedStyle(document.body).color;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.15;
  pen.lineWidth = ratio;
  const [cx, cy] = toScreen([0, 0], canvas);
  pen.beginPath(); pen.moveTo(cx, 0); pen.lineTo(cx, canvas.height); pen.moveTo(0, cy); pen.lineTo(canvas.width, cy); pen.stroke();
  if (state.asks?.brushes.some((brush) => brush.unit)) {
    pen.beginPath(); pen.ellipse(cx, cy, canvas.width / (2 * WIDE), canvas.height / (2 * HALF), 0, 0, 2 * Math.PI); pen.stroke();
  }
  pen.globalAlpha = 1;
  const frames = state.run?.frames, frame = frames?.[state.at];
  if (!frame) {
    for (const brush of state.asks?.brushes ?? []) for (const point of state.drawn[brush.field] ?? []) dot(pen, canvas, point, ink, 3.5 * ratio, 0.7);
    return;
  }
  const scalars = new Set(state.asks.scalars);
  for (const [name, rows] of Object.entries(frame.fields)) {
    const home = state.run.columns[name][0];
    if (scalars.has(name)) rows.forEach((x) => dot(pen, canvas, [x, 0], ink, 4 * ratio, 0.7));
    if (!Array.isArray(rows[0]) || rows[0].length !== 2 || state.run.columns[name][1]) continue;
    const big = isColumns(home) || (state.asks.inits.includes(name)), colours = hues(frame, home);
    rows.forEach((point, n) => {
      const colour = big && isColumns(home) ? HUES[n % HUES.length] : colours ? colours[n] : big ? "#d64545" : brushHue(name, ink);
      if (big || moves(frames, name)) trail(pen, canvas, frames.slice(0, state.at + 1).map((f) => f.fields[name]?.[n]), colour, ratio);
      if (big) cross(pen, canvas, point, colour, 7 * ratio, ratio);
      else dot(pen, canvas, point, colour, 3.5 * ratio, 0.75);
    });
  }
}

function brushHue(name, ink) {
  const at = state.asks.brushes.findIndex((brush) => brush.field === name);
  return at > 0 ? HUES[at % HUES.length] : ink;
}

function moves(frames, name) {
  return JSON.stringify(frames[0].fields[name]) !== JSON.stringify(frames.at(-1).fields[name]);
}

function dot(pen, canvas, point, colour, radius, alpha) {
  const [x, y] = toScreen(point, canvas);
  pen.globalAlpha = alpha;
  pen.fillStyle = colour;
  pen.beginPath(); pen.arc(x, y, radius, 0, 2 * Math.PI); pen.fill();
  pen.globalAlpha = 1;
}

function trail(pen, canvas, points, colour, ratio) {
  const known = points.filter(Boolean);
  if (known.length < 2) return;
  pen.globalAlpha = 0.35;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5 * ratio;
  pen.beginPath();
  known.forEach((point, n) => pen[n ? "lineTo" : "moveTo"](...toScreen(point, canvas)));
  pen.stroke();
  pen.globalAlpha = 1;
}

function cross(pen, canvas, point, colour, size, ratio) {
  const [x, y] = toScreen(point, canvas);
  for (const [width, look] of [[6 * ratio, getComputedStyle(document.body).backgroundColor], [3.2 * ratio, colour]]) {
    pen.strokeStyle = look;
    pen.lineWidth = width;
    pen.lineCap = "round";
    pen.beginPath(); pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size); pen.moveTo(x - size, y + size); pen.lineTo(x + size, y - size); pen.stroke();
  }
}

// ---- drawing points -----------------------------------------------------------------------------------------------

function spot(event) {
  const box = $("plane").getBoundingClientRect();
  return [((event.clientX - box.left) / box.width * 2 - 1) * WIDE, (1 - (event.clientY - box.top) / box.height * 2) * HALF];
}

let last = null;

$("plane").addEventListener("pointerdown", (event) => {
  if (!state.asks || !state.brush) return;
  $("plane").setPointerCapture(event.pointerId);
  const points = (state.drawn[state.brush] ??= []), [x, y] = spot(event);
  const near = points.findIndex(([px, py]) => Math.hypot(px - x, py - y) < 0.05);
  if (near >= 0) points.splice(near, 1);
  else points.push([x, y]);
  last = near >= 0 ? null : [x, y];
  run();
});
$("plane").addEventListener("pointermove", (event) => {
  if (!last) return;
  const [x, y] = spot(event);
  if (Math.hypot(x - last[0], y - last[1]) < 0.12 || state.drawn[state.brush].length >= 400) return;
  state.drawn[state.brush].push((last = [x, y]));
  run();
});
for (const event of ["pointerup", "pointercancel"]) $("plane").addEventListener(event, () => (last = null));
$("erase").onclick = () => { state.drawn[state.brush] = []; run(); };
$("blobs").onclick = () => {
  const at = state.asks?.brushes.findIndex((brush) => brush.field === state.brush) ?? -1;
  if (at >= 0) { state.drawn[state.brush] = sampled(state.asks.brushes[at], at); run(); }
};
$("layer").oninput = () => { state.at = Number($("layer").value); stop(); draw(); };
$("play").onclick = () => (state.playing ? stop() : play());

function play() {
  if (!state.run) return;
  if (state.at >= state.run.frames.length - 1) state.at = 0;
  $("play").textContent = "⏸";
  draw();
  state.playing = setInterval(() => {
    if (!state.run || state.at >= state.run.frames.length - 1) return stop();
    state.at += 1;
    draw();
  }, 650);
}

function stop() {
  clearInterval(state.playing);
  state.playing = 0;
  $("play").textContent = "▶";
}

// ---- inside -------------------------------------------------------------------------------------------------------

function patterns(frame) {
  const shown = (frame?.patterns ?? []).map((pattern) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), code = document.createElement("code");
    const turned = pattern.weights.length > 2 * pattern.weights[0].length; // or many points by few centers were a thread
    const [query, keys] = turned ? ["across", "down"] : ["down", "across"];
    code.textContent = pattern.told;
    caption.append(code, document.createElement("br"), `${pattern.query} (${query}) read ${pattern.keys} (${keys})`);
    figure.append(caption, heat(pattern.weights, turned));
    return figure;
  });
  if (!shown.length) {
    const none = document.createElement("p");
    none.textContent = !frame ? "" : state.at === 0 ? "Layer 0 is the start; patterns begin with layer 1." : "No equation of this spec is a weighting or a mean of one set by another.";
    shown.push(none);
  }
  $("patterns").replaceChildren(...shown);
}

function heat(weights, turned) {
  const rows = turned ? weights[0].length : weights.length, columns = turned ? weights.length : weights[0].length;
  const canvas = document.createElement("canvas"), side = Math.max(2, Math.floor(480 / columns)), tall = Math.max(side, rows < 8 ? 14 : 2);
  canvas.width = columns * side;
  canvas.height = rows * tall;
  const pen = canvas.getContext("2d"), top = Math.max(...weights.flat().map(Math.abs)) || 1;
  weights.forEach((row, i) => row.forEach((weight, j) => {
    pen.fillStyle = weight >= 0 ? "#4269d0" : "#d64545";
    pen.globalAlpha = Math.abs(weight) / top;
    pen.fillRect((turned ? i : j) * side, (turned ? j : i) * tall, side, tall);
  }));
  return canvas;
}

function values(frame) {
  const shown = Object.entries(frame?.fields ?? {}).map(([name, rows]) => {
    const details = document.createElement("details"), summary = document.createElement("summary"), table = document.createElement("table");
    summary.textContent = `${name}: ${rows.length} of ${state.run.columns[name][0]}`;
    rows.slice(0, 60).forEach((row, n) => {
      const line = table.insertRow(), head = document.createElement("th");
      head.textContent = n + 1;
      line.append(head);
      for (const value of [row].flat()) line.insertCell().textContent = Number(value.toPrecision(6));
    });
    details.open = rows.length <= 12;
    details.append(summary, table);
    return details;
  });
  $("values").replaceChildren(...shown);
}

const matrices = latest(async (current) => {
  const key = JSON.stringify([$("text").value, state.dims, state.params]);
  if (key === state.matricesOf) return;
  $("matrices").textContent = "compiling…";
  const found = await ask("matrices", $("text").value, state.dims, state.params);
  if (!current()) return;
  state.matricesOf = key;
  const told = document.createElement("p"), pre = document.createElement("pre");
  told.textContent = found.error ? "" : `${found.tensors} tensors, ${found.numbers} numbers: the whole transformer, for every number of layers. \`weftc compile\` writes it to a file.`;
  pre.textContent = found.error ?? found.text;
  $("matrices").replaceChildren(told, pre);
}, 200);

for (const tab of document.querySelectorAll('[role="tab"]')) tab.onclick = () => {
  for (const other of document.querySelectorAll('[role="tab"]')) {
    other.setAttribute("aria-selected", other === tab);
    $(other.getAttribute("aria-controls")).hidden = other !== tab;
  }
  if (tab.id === "tab-matrices") matrices();
  draw();
};

// ---- beginning ----------------------------------------------------------------------------------------------------

function begin(specs) {
  state.specs = specs;
  const menu = $("specs"), groups = new Map();
  for (const [name, doc, , subject] of specs) {
    const option = document.createElement("option");
    option.value = option.textContent = name;
    option.title = doc;
    if (!groups.has(subject)) groups.set(subject, Object.assign(document.createElement("optgroup"), { label: subject }));
    groups.get(subject).append(option);
  }
  menu.append(...[...groups.values()].sort((a, b) => (a.label === "other") - (b.label === "other")));
  menu.onchange = () => { location.hash = menu.value; };
  const choose = () => {
    const wanted = decodeURIComponent(location.hash.slice(1));
    const found = specs.find(([name]) => name === wanted) ?? specs.find(([name]) => name === "lloyd");
    const shared = wanted.startsWith("="); // a link with a text in it
    menu.value = shared ? "" : found[0];
    if (!shared || $("text").value !== wanted.slice(1)) $("text").value = shared ? wanted.slice(1) : found[2];
    state.at = 0;
    state.run = null;
    typed();
  };
  addEventListener("hashchange", choose);
  choose();
}

$("link").onclick = async () => {
  location.hash = `=${encodeURIComponent($("text").value)}`;
  try { await navigator.clipboard.writeText(location.href); $("status").textContent = "link copied"; } catch { $("status").textContent = "the link is in the address bar"; }
};
fetch("specs.json").then((answer) => answer.json()).then(begin, (error) => ($("status").textContent = `the specs did not load: ${error.message}`));

addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
