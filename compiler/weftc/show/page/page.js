"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const HUES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((at) => `var(--g${at})`);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const views = [];            // each is called with the number of the frame to show
  let frame = data.layers.length - 1;

  // ---- small things ---------------------------------------------------------------------------------------------
  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const drawn = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const number = (value, digits = 4) => {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(Math.max(0, digits - 2)).replace("e+", "e").replace("-", "−");
    return String(Number(value.toPrecision(digits))).replace("-", "−");
  };
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const ticks = (low, high, count) => {
    const rough = (high - low) / Math.max(1, count);
    if (!(rough > 0) || !isFinite(rough)) return [low];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const out = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) out.push(Math.abs(at) < step * 1e-9 ? 0 : at);
    return out;
  };

  // ---- light and dark -------------------------------------------------------------------------------------------
  const theme = document.getElementById("theme");
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { theme.querySelector("span").textContent = isDark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); show(frame); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { nameTheme(); show(frame); });
  nameTheme();

  // ---- equations and their parts --------------------------------------------------------------------------------
  const linked = () => document.querySelectorAll("[data-lines]");
  const light = (target) => {
    const keys = target ? target.dataset.lines.split(" ") : [];
    for (const other of linked()) {
      other.classList.toggle("lit", other.dataset.lines.split(" ").some((key) => keys.includes(key)));
    }
  };
  const closest = (event) => (event.target instanceof Element ? event.target.closest("[data-lines]") : null);
  document.addEventListener("pointerover", (event) => light(closest(event)));
  document.addEventListener("focusin", (event) => light(closest(event)));
  document.addEventListener("focusout", () => light(null));
  document.addEventListener("pointerleave", () => light(null));

  // ---- the plane ------------------------------------------------------------------------------------------------
  function plane(host, legend, given) {
    const off = new Set(given.fields.filter((field) => !field.given && given.fields.some((other) => other.given)).map((field) => field.name));
    const shape = (field, at) => {
      const others = given.fields.filter((other) => !other.moves);
      return field.moves ? "moving" : others.indexOf(field) === 0 ? "dot" : "hollow";
    };
    const hueOf = (field, at, token) => {
      const groups = given.groups[field.stream];
      if (groups) return groups[at] ? HUES[groups[at][token] % HUES.length] : "var(--soft)";
      const owned = Object.keys(given.groups).length > 0;
      if (field.named && owned) return HUES[token % HUES.length];
      return field.moves || given.fields.length === 1 ? "var(--accent)" : shape(field) === "hollow" ? "var(--warm)" : "var(--soft)";
    };
    for (const field of given.fields) {
      const label = element("label");
      const box = element("input");
      box.type = "checkbox";
      box.checked = !off.has(field.name);
      box.addEventListener("change", () => { box.checked ? off.delete(field.name) : off.add(field.name); build(); update(frame); });
      const count = field.tokens.length, glyph = drawn("svg", { width: 12, height: 12, viewBox: "-6 -6 12 12", "aria-hidden": "true" });
      const mark = shape(field) === "hollow" ? drawn("path", { d: "M0-4.5 4.5 0 0 4.5-4.5 0z", class: "hollow" }) : drawn("circle", { r: field.named ? 5.5 : 3.5, class: "dot" });
      if (shape(field) === "hollow") mark.style.stroke = "var(--warm)"; else mark.style.fill = given.groups[field.stream] ? HUES[0] : hueOf(field, 0, 0);
      glyph.append(mark);
      label.append(box, glyph, element("span", "", `${field.name}: ${count} ${field.stream}${field.moves ? ", moved by the layers" : ""}`));
      legend.append(label);
    }
    let marks = [], place = null, width = 0;
    function build() {
      width = Math.max(280, Math.round(host.clientWidth)) || 640;
      const margin = { left: 46, right: 12, top: 12, bottom: 34 };
      const [spanX, spanY] = [given.high[0] - given.low[0], given.high[1] - given.low[1]];
      const inner = width - margin.left - margin.right;
      let height = given.equal ? Math.min(Math.max(inner * spanY / spanX, 200), 560) : Math.min(0.7 * inner, 460);
      let unitX = inner / spanX, unitY = height / spanY, padX = 0, padY = 0;
      if (given.equal) {
        const unit = Math.min(unitX, unitY);
        padX = (inner - unit * spanX) / 2;
        padY = (height - unit * spanY) / 2;
        unitX = unitY = unit;
      }
      const toX = (value) => margin.left + padX + (value - given.low[0]) * unitX;
      const toY = (value) => margin.top + height - padY - (value - given.low[1]) * unitY;
      place = (x, y) => [toX(given.low[0] + x / 9999 * spanX), toY(given.low[1] + y / 9999 * spanY)];
      const full = height + margin.top + margin.bottom;
      const svg = drawn("svg", { viewBox: `0 0 ${width} ${Math.round(full)}`, "aria-hidden": "true" });
      const axis = drawn("g", { class: "axis" });
      const lowX = given.low[0] - padX / unitX, highX = given.high[0] + padX / unitX;
      const lowY = given.low[1] - padY / unitY, highY = given.high[1] + padY / unitY;
      for (const tick of ticks(lowX, highX, width / 90)) {
        axis.append(drawn("line", { x1: toX(tick), x2: toX(tick), y1: margin.top, y2: margin.top + height }));
        axis.append(drawn("text", { x: toX(tick), y: margin.top + height + 14, "text-anchor": "middle" }, number(tick)));
      }
      for (const tick of ticks(lowY, highY, height / 60)) {
        axis.append(drawn("line", { x1: margin.left, x2: margin.left + inner, y1: toY(tick), y2: toY(tick) }));
        axis.append(drawn("text", { x: margin.left - 6, y: toY(tick) + 4, "text-anchor": "end" }, number(tick)));
      }
      axis.append(drawn("text", { x: margin.left + inner, y: full - 4, "text-anchor": "end" }, given.axes[0]));
      axis.append(drawn("text", { x: 12, y: margin.top, transform: `rotate(-90 12 ${margin.top})`, "text-anchor": "end" }, given.axes[1]));
      svg.append(axis);
      marks = [];
      const ordered = [...given.fields].sort((a, b) => Number(a.moves) - Number(b.moves));
      for (const field of ordered) {
        if (off.has(field.name)) continue;
        const kind = shape(field), { named, paths } = field;
        field.tokens.forEach((token, at) => {
          const mark = { field, at, parts: [] };
          if (paths) {
            mark.rest = drawn("polyline", { class: "trail rest" });
            mark.trail = drawn("polyline", { class: "trail" });
            svg.append(mark.rest, mark.trail);
          } else if (field.moves) {
            mark.trail = drawn("polyline", { class: "trail" });
            svg.append(mark.trail);
          }
          mark.body = drawn("g", field.moves ? { class: "moved" } : {});
          const title = drawn("title", {}, `${field.name}, token ${token} of ${field.stream}`);
          if (kind === "hollow") mark.shape = drawn("path", { d: "M0-4.5 4.5 0 0 4.5-4.5 0z", class: "hollow" });
          else mark.shape = drawn("circle", { r: named ? 9 : field.tokens.length > 150 ? 3 : 3.75, class: named ? "big" : "dot" });
          mark.shape.append(title);
          mark.body.append(mark.shape);
          if (named) mark.body.append(drawn("text", { class: "name" }, String(token)));
          svg.append(mark.body);
          marks.push(mark);
        });
      }
      host.replaceChildren(svg);
    }
    function update(now) {
      for (const mark of marks) {
        const { field, at } = mark;
        const spot = (frameAt) => {
          const frames = field.frames[Math.min(frameAt, field.frames.length - 1)];
          return place(frames[2 * at], frames[2 * at + 1]);
        };
        const [x, y] = spot(now);
        mark.body.style.transform = `translate(${x}px,${y}px)`;
        const hue = hueOf(field, now, at);
        if (mark.shape.classList.contains("hollow")) mark.shape.style.stroke = hue; else mark.shape.style.fill = hue;
        if (mark.trail) {
          const from = field.paths ? 0 : Math.max(0, now - 1);
          const line = (a, b) => { const out = []; for (let n = a; n <= b; n += 1) out.push(spot(n).map((v) => v.toFixed(1)).join(",")); return out.join(" "); };
          mark.trail.setAttribute("points", line(from, now));
          mark.trail.style.stroke = hue;
          if (mark.rest) { mark.rest.setAttribute("points", line(0, field.frames.length - 1)); mark.rest.style.stroke = hue; }
        }
      }
    }
    build();
    views.push(update);
    onResize(host, () => { if (Math.abs(host.clientWidth - width) > 8) { build(); update(frame); } });
  }
  function onResize(host, act) {
    if (typeof ResizeObserver === "function") new ResizeObserver(() => requestAnimationFrame(act)).observe(host);
  }

  // ---- charts ---------------------------------------------------------------------------------------------------
  function chart(host, title, about, series, options = {}) {
    const figure = element("figure", "chart");
    const caption = element("figcaption");
    caption.append(element("b", "", title), " ", about);
    const box = element("div");
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", `${title}. ${about}`);
    figure.append(caption, box);
    host.append(figure);
    const every = series.flatMap((one) => one.values).filter((value) => value !== null && value !== undefined);
    if (!every.length) { figure.remove(); return; }
    const positive = every.filter((value) => value > 0);
    const log = Boolean(options.log) && positive.length === every.length && Math.max(...every) > 30 * Math.min(...every);
    const scale = (value) => (log ? Math.log10(value) : value);
    let low = Math.min(...every.map(scale)), high = Math.max(...every.map(scale));
    if (options.zero && low > 0 && low < 0.4 * high && !log) low = 0;
    if (!(high > low)) { const room = Math.abs(high) * 0.1 || 1; low -= room; high += room; }
    let width = 0, now = null, values = [];
    const last = Math.max(1, data.layers[data.layers.length - 1]);
    let toX, toY;
    function build() {
      width = Math.max(240, Math.round(box.clientWidth)) || 360;
      const margin = { left: 52, right: 14, top: 14, bottom: 26 }, inner = width - margin.left - margin.right, height = options.height || 130;
      toX = (layer) => margin.left + inner * layer / last;
      toY = (value) => margin.top + height - height * (scale(value) - low) / (high - low);
      const svg = drawn("svg", { viewBox: `0 0 ${width} ${height + margin.top + margin.bottom}`, "aria-hidden": "true" });
      const axis = drawn("g", { class: "axis" });
      const marks = log ? ticks(Math.ceil(low), Math.floor(high), 4).filter(Number.isInteger).map((power) => 10 ** power) : ticks(low, high, 3);
      for (const tick of marks) {
        axis.append(drawn("line", { x1: margin.left, x2: margin.left + inner, y1: toY(tick), y2: toY(tick) }));
        axis.append(drawn("text", { x: margin.left - 6, y: toY(tick) + 4, "text-anchor": "end" }, number(tick)));
      }
      for (const tick of ticks(0, last, Math.min(8, width / 50)).filter(Number.isInteger)) {
        axis.append(drawn("text", { x: toX(tick), y: margin.top + height + 16, "text-anchor": "middle" }, String(tick)));
      }
      svg.append(axis);
      for (const one of series) {
        const points = [];
        one.values.forEach((value, at) => { if (value !== null && value !== undefined) points.push([toX(data.layers[at]), toY(value)]); });
        if (one.still) { svg.append(drawn("line", { x1: margin.left, x2: margin.left + 7, y1: points[0][1], y2: points[0][1], class: "still" })); continue; }
        svg.append(drawn("polyline", { points: points.map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" "), class: `curve ${one.kind || ""}` }));
        if (points.length <= 40 && !one.kind) for (const [x, y] of points) svg.append(drawn("circle", { cx: x, cy: y, r: 2.5, class: "point" }));
      }
      now = drawn("line", { y1: margin.top, y2: margin.top + height, class: "now" });
      svg.append(now);
      values = series.filter((one) => !one.kind && !one.still).map((one) => {
        const text = drawn("text", { class: "value" });
        svg.append(text);
        return [one, text];
      });
      box.replaceChildren(svg);
    }
    function update(at) {
      const x = toX(data.layers[at]);
      now.setAttribute("x1", x);
      now.setAttribute("x2", x);
      for (const [one, text] of values) {
        const value = one.values[at];
        text.textContent = value === null || value === undefined ? "" : number(value, 6);
        if (value === null || value === undefined) continue;
        const right = x > width * 0.6;
        text.setAttribute("x", x + (right ? -7 : 7));
        text.setAttribute("y", Math.max(11, toY(value) - 7));
        text.setAttribute("text-anchor", right ? "end" : "start");
      }
    }
    build();
    views.push(update);
    onResize(box, () => { if (Math.abs(box.clientWidth - width) > 8) { build(); update(frame); } });
  }

  // ---- attention ------------------------------------------------------------------------------------------------
  function paint(canvas, wide, high, at) {
    canvas.width = wide;
    canvas.height = high;
    const context = canvas.getContext("2d");
    const image = context.createImageData(wide, high);
    for (let n = 0; n < wide * high; n += 1) {
      const [red, green, blue, alpha] = at(n);
      image.data.set([red, green, blue, alpha], 4 * n);
    }
    context.putImageData(image, 0, 0);
  }
  const cell = (count, most) => Math.max(3, Math.min(26, Math.floor(most / count)));
  function pattern(host, given) {
    const rest = given.rest ? 1 : 0, rows = given.rows.length, columns = given.columns.length + rest;
    const figure = element("figure", "pattern");
    if (given.lines.length) figure.dataset.lines = given.lines.join(" ");
    const caption = element("figcaption");
    const ramp = element("span", "ramp");
    const sorted = given.sorted[0] || given.sorted[1] ? `, ${given.sorted[0] ? given.query : given.keys} sorted by where they end up` : "";
    const scale = element("span", "scale");
    scale.append("weight 0", ramp, number(given.top));
    caption.append(element("b", "", `head ${given.head}`), ` ${given.weighting}. Each row is one of ${given.query}, each column one of ${given.keys}${rest ? `; the last column is the share of ${given.rest}, from 0 to 1` : ""}${sorted}.`, scale);
    const canvas = element("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Attention weights of head ${given.head}, ${rows} ${given.query} by ${given.columns.length} ${given.keys}. Arrow keys read single weights.`);
    const [wide, high] = [cell(columns, 430), cell(rows, 300)];
    const square = rows > 12 && columns > 12;
    canvas.style.width = `${columns * (square ? Math.min(wide, high) : wide)}px`;
    canvas.style.height = `${rows * (square ? Math.min(wide, high) : high)}px`;
    const read = element("output", "read");
    figure.append(caption, canvas, read);
    host.append(figure);
    let shown = null, cursor = [0, 0];
    const tell = (row, column) => {
      cursor = [Math.max(0, Math.min(rows - 1, row)), Math.max(0, Math.min(columns - 1, column))];
      if (!shown) return;
      const key = rest && cursor[1] === columns - 1 ? given.rest : `${given.keys} ${given.columns[cursor[1]]}`;
      read.textContent = `${given.query} ${given.rows[cursor[0]]} looks at ${key}: ${number(shown[cursor[0] * columns + cursor[1]] / 255 * (key === given.rest ? 1 : given.top), 3)}`;
    };
    canvas.addEventListener("pointermove", (event) => {
      const area = canvas.getBoundingClientRect();
      tell(Math.floor((event.clientY - area.top) / area.height * rows), Math.floor((event.clientX - area.left) / area.width * columns));
    });
    canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) read.textContent = ""; });
    canvas.addEventListener("blur", () => { read.textContent = ""; });
    canvas.addEventListener("focus", () => tell(...cursor));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!steps) return;
      event.preventDefault();
      tell(cursor[0] + steps[0], cursor[1] + steps[1]);
    });
    views.push((at) => {
      const frameAt = given.frames[at] || given.frames[at + 1];
      canvas.classList.toggle("dimmed", !given.frames[at]);
      if (!frameAt) return;
      shown = bytes(frameAt);
      const [red, green, blue] = rgb(colour("--accent"));
      paint(canvas, columns, rows, (n) => [red, green, blue, shown[n]]);
      if (document.activeElement === canvas) tell(...cursor);
    });
  }

  // ---- the residual ---------------------------------------------------------------------------------------------
  function residual(host, given) {
    const figure = element("figure", "residual");
    const caption = element("figcaption");
    caption.append(element("b", "", given.stream), ` ${given.tokens.length} tokens, one per row`);
    const row = element("div", "row");
    const total = given.slots.reduce((sum, slot) => sum + slot.width, 0);
    let first = 0;
    const canvases = given.slots.map((slot) => {
      const box = element("div", `slot ${slot.role}`);
      const name = element("span", "", slot.name);
      box.title = `${slot.name}: largest ${number(slot.top)}`;
      const canvas = element("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `slot ${slot.name} of ${given.stream}`);
      canvas.style.width = `${Math.max(18, Math.min(slot.width * 14, 300))}px`;
      canvas.style.height = `${Math.max(given.tokens.length * 6, 24)}px`;
      box.append(name, canvas);
      row.append(box);
      const at = first;
      first += slot.width;
      return [canvas, slot.width, at];
    });
    figure.append(caption, row);
    host.append(figure);
    views.push((now) => {
      const shown = given.frames[now] ? bytes(given.frames[now]) : null;
      figure.classList.toggle("dimmed", !shown);
      if (!shown) return;
      const up = rgb(colour("--accent")), down = rgb(colour("--warm"));
      for (const [canvas, wide, at] of canvases) {
        paint(canvas, wide, given.tokens.length, (n) => {
          const value = shown[Math.floor(n / wide) * total + at + (n % wide)] - 128;
          return [...(value < 0 ? down : up), Math.min(255, Math.abs(value) * 2)];
        });
      }
    });
  }

  // ---- layers ---------------------------------------------------------------------------------------------------
  const slider = document.getElementById("slider"), play = document.getElementById("play"), where = document.getElementById("where");
  function show(at) {
    frame = Math.max(0, Math.min(data.layers.length - 1, at));
    slider.value = String(frame);
    const layer = data.layers[frame];
    const text = layer === 0 ? "before the first layer" : `after layer ${layer} of ${data.ran}`;
    where.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    for (const view of views) view(frame);
  }
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; play.classList.remove("playing"); play.setAttribute("aria-label", "Play all layers"); };
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    if (frame === data.layers.length - 1) show(0);
    play.classList.add("playing");
    play.setAttribute("aria-label", "Pause");
    timer = setInterval(() => { if (frame >= data.layers.length - 1) stop(); else show(frame + 1); }, still.matches ? 1100 : Math.max(180, Math.min(700, 9000 / data.layers.length)));
  });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });

  document.getElementById("drawn").hidden = false;
  if (data.layers.length > 1) {
    document.getElementById("layers").hidden = false;
    slider.max = String(data.layers.length - 1);
  }
  const by = (id) => document.getElementById(id);
  if (data.plane) plane(by("plane"), by("legend"), data.plane);
  if (data.objective && data.layers.length > 1) chart(by("charts"), "Objective", "after each layer; smaller is better.", [{ values: data.objective }]);
  for (const margin of data.margins) {
    chart(by("charts"), `Margin of head ${margin.head}`, "by how much the winning score leads the next: the closest call (solid) and the middle one (dashed).",
      [{ values: margin.middle, kind: "second" }, { values: margin.smallest }], { log: true, zero: true });
  }
  for (const curve of data.curves.filter((one) => one.moves)) {
    const beside = data.curves.filter((one) => !one.moves && one.stream !== curve.stream);
    const series = curve.tokens.map((token, at) => ({ values: curve.frames.map((one) => (one ? one[at] : null)), kind: curve.tokens.length > 3 ? "many" : "" }));
    for (const one of beside) one.tokens.forEach((token, at) => series.push({ values: [one.frames[0] ? one.frames[0][at] : null], still: true }));
    if (data.layers.length > 1) chart(by("curves"), curve.name, `by layer; each line is one of ${curve.stream} (${curve.tokens.length} drawn)${beside.length ? `, the ticks on the left are ${beside.map((one) => one.name).join(", ")}` : ""}.`, series, { height: 190 });
  }
  for (const given of data.patterns) pattern(by("patterns"), given);
  for (const given of data.residual) residual(by("residuals"), given);
  for (const id of ["charts", "curves", "first"]) if (!by(id).children.length) by(id).remove();
  show(frame);
  // Tokens move from layer to layer, not from the corner to where they are first drawn.
  if (data.plane) requestAnimationFrame(() => requestAnimationFrame(() => by("plane").classList.add("lively")));
  addEventListener("beforeprint", () => show(frame));
  addEventListener("afterprint", () => show(frame));
})();
