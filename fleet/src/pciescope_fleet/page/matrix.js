// Draws hosts by figures: the rows that are seen with their names, and beside them all rows in one strip.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const NONE = -32768;
const ROW = 16, NAME = 150, STRIP = 90, ROWS = 36, HEAD = 170;
const hosts = data.hosts, figures = data.figures, width = figures.length;

const bytes = Uint8Array.from(atob(data.away), (letter) => letter.charCodeAt(0));
const away = new Int16Array(bytes.buffer);
const outliers = new Map(data.outliers.map(([row, column, text]) => [row * width + column, text]));
const sick = new Uint16Array(hosts.length);
for (const [row] of data.outliers) sick[row] += 1;

// A colour is full at this distance: what 99 of 100 cells stay below, and at least 10 %.
const sizes = [];
for (let i = 0; i < away.length; i += Math.max(1, Math.floor(away.length / 20000))) if (away[i] !== NONE) sizes.push(Math.abs(away[i]));
sizes.sort((a, b) => a - b);
const full = Math.max(95, sizes.length ? sizes[Math.floor(sizes.length * 0.99)] : 95);

let shown = [], first = 0, at = { row: 0, column: 0 }, colours = {};

const worse = (row, column) => {
  const value = away[row * width + column];
  return value === NONE ? NaN : value * data.signs[column];
};

// Hosts without the figure come last, after the best one; a host that lies at its group's median has 0.
const known = (row, column) => {
  const value = worse(row, column);
  return Number.isNaN(value) ? -1e9 : value;
};

function order() {
  const by = get("order").value, column = at.column;
  const kept = get("only").checked ? (row) => sick[row] > 0 : () => true;
  shown = [...hosts.keys()].filter(kept);
  const name = (a, b) => (hosts[a] < hosts[b] ? -1 : 1);
  if (by === "name") shown.sort(name);
  else if (by === "column") shown.sort((a, b) => known(b, column) - known(a, column) || a - b);
  first = 0;
  at.row = 0;
  draw();
}

// A size of -1 is as much better as full, 1 as much worse; between, the colours are mixed with that of an empty cell.
function mix(share) {
  const [a, b] = [colours.none, share > 0 ? colours.bad : colours.good];
  const part = Math.min(1, Math.abs(share));
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * part)).join(",")})`;
}

function parse(text) {
  const hex = text.trim().slice(1);
  const long = hex.length === 3 ? [...hex].map((letter) => letter + letter).join("") : hex;
  return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16));
}

function surface(canvas, wide, high) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(high * ratio);
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, wide, high);
  return pen;
}

// Figures differ at their ends, hosts at either.
const fit = (pen, text, room, isEndKept = false) => {
  if (pen.measureText(text).width <= room) return text;
  let short = text;
  while (short.length > 1 && pen.measureText(`${short}…`).width > room) short = isEndKept ? short.slice(1) : short.slice(0, -1);
  return isEndKept ? `…${short}` : `${short}…`;
};

const cell = () => (get("grid").clientWidth - NAME - STRIP - 12) / width;
const rows = () => Math.min(ROWS, Math.max(shown.length, 1));

function draw() {
  const style = getComputedStyle(document.documentElement);
  const paint = (name) => style.getPropertyValue(name);
  colours = { none: parse(paint("--none")), bad: parse(paint("--bad")), good: parse(paint("--link")) };
  const ink = paint("--ink"), soft = paint("--soft"), wide = cell(), high = rows() * ROW;
  first = Math.max(0, Math.min(first, shown.length - rows()));
  heads(ink, soft, wide);
  const pen = surface(get("cells"), NAME + wide * width, high);
  pen.font = '12px ui-monospace, "DejaVu Sans Mono", monospace';
  pen.textBaseline = "middle";
  for (let i = 0; i < rows() && first + i < shown.length; i += 1) {
    const row = shown[first + i], y = i * ROW;
    pen.fillStyle = sick[row] ? ink : soft;
    pen.fillText(fit(pen, hosts[row], NAME - 10), 0, y + ROW / 2);
    for (let column = 0; column < width; column += 1) {
      const value = worse(row, column), x = NAME + column * wide, gap = wide > 4 ? 1 : 0;
      if (Number.isNaN(value)) continue;
      pen.fillStyle = mix(value / full);
      pen.fillRect(x, y, wide - gap, ROW - 1);
      if (outliers.has(row * width + column)) {
        pen.strokeStyle = ink;
        pen.lineWidth = 1.5;
        pen.strokeRect(x + 0.75, y + 0.75, Math.max(wide - gap - 1.5, 1), ROW - 2.5);
      }
    }
  }
  const marked = at.row - first;
  if (marked >= 0 && marked < rows()) {
    pen.strokeStyle = paint("--accent");
    pen.lineWidth = 2;
    pen.strokeRect(NAME + at.column * wide - 1, marked * ROW - 1, wide + 1, ROW + 1);
  }
  strip(high, ink, paint("--accent"));
  const stops = [1, 0.5, 0.1, 0, -0.1, -0.5, -1].map((share) => mix(share)).join(",");
  get("scale").style.background = `linear-gradient(90deg,${stops})`;
  get("ends").textContent = `(full colour at ${percent(full)})`;
  say();
}

// The figures' names stand above their columns, slanted; of very many each few.
function heads(ink, soft, wide) {
  const every = Math.max(1, Math.ceil(13 / wide));
  const pen = surface(get("heads"), NAME + wide * width + STRIP, HEAD);
  pen.font = "11px system-ui, sans-serif";
  for (let column = 0; column < width; column += 1) {
    if (column % every && column !== at.column) continue;
    if (every > 1 && column !== at.column && Math.abs(column - at.column) < every) continue;
    pen.save();
    pen.translate(NAME + (column + 0.6) * wide, HEAD - 4);
    pen.rotate(-Math.PI / 3);
    pen.fillStyle = column === at.column ? ink : soft;
    pen.fillText(fit(pen, figures[column], HEAD + 20, true), 0, 0);
    pen.restore();
  }
}

// All hosts in the height of the view. A line that several hosts share has the worst cell of each column.
function strip(high, ink, accent) {
  const pen = surface(get("all"), STRIP, high);
  const lines = Math.min(high, shown.length), wide = STRIP - 8;
  const columns = Math.min(wide, width);
  for (let line = 0; line < lines; line += 1) {
    const from = Math.floor((line * shown.length) / lines), to = Math.max(from + 1, Math.floor(((line + 1) * shown.length) / lines));
    const y = (line * high) / lines;
    let bad = false;
    for (let place = 0; place < columns; place += 1) {
      const left = Math.floor((place * width) / columns), right = Math.max(left + 1, Math.floor(((place + 1) * width) / columns));
      let most = -Infinity;
      for (let i = from; i < to; i += 1) {
        for (let column = left; column < right; column += 1) {
          const value = worse(shown[i], column);
          if (value > most) most = value;
        }
      }
      pen.fillStyle = mix(most === -Infinity ? 0 : most / full);
      pen.fillRect((place * wide) / columns, y, wide / columns + 0.3, high / lines + 0.3);
    }
    for (let i = from; i < to && !bad; i += 1) bad = sick[shown[i]] > 0;
    if (bad) {
      pen.fillStyle = ink;
      pen.fillRect(wide + 2, y, 6, Math.max(1, high / lines));
    }
  }
  pen.strokeStyle = accent;
  pen.lineWidth = 2;
  const part = high / Math.max(shown.length, 1);
  pen.strokeRect(1, first * part + 1, wide - 2, Math.max(4, rows() * part - 2));
}

const percent = (thousandths) => {
  const share = (Math.exp(Math.abs(thousandths) / 1000) - 1) * 100;
  return `${share.toFixed(share < 10 ? 1 : 0)}%`;
};

function text(row, column) {
  const value = away[row * width + column], found = outliers.get(row * width + column);
  if (found) return `${found}: an outlier`;
  if (value === NONE) return `${figures[column]}: not measured, or too few hosts of its like`;
  const share = ((Math.exp(value / 1000) - 1) * 100).toFixed(1);
  return `${figures[column]}: ${value >= 0 ? "+" : ""}${share}% beside its group's median`;
}

function say() {
  const said = get("said"), row = shown[at.row];
  said.textContent = "";
  if (row === undefined) {
    said.textContent = "no host";
    return;
  }
  const link = document.createElement("a");
  link.href = data.links[row];
  link.textContent = hosts[row];
  said.append(link, ` · ${text(row, at.column)}`);
}

function under(event) {
  const box = get("cells").getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left - NAME) / cell()), row = first + Math.floor((event.clientY - box.top) / ROW);
  return row < shown.length && column < width ? { row, column: Math.max(column, 0) } : null;
}

function go(row, column) {
  at = { row: Math.max(0, Math.min(shown.length - 1, row)), column: Math.max(0, Math.min(width - 1, column)) };
  if (at.row < first) first = at.row;
  if (at.row >= first + rows()) first = at.row - rows() + 1;
  draw();
}

const cells = get("cells");
cells.addEventListener("mousemove", (event) => {
  const place = under(event);
  if (place && (place.row !== at.row || place.column !== at.column)) go(place.row, place.column);
});
cells.addEventListener("click", (event) => {
  const place = under(event);
  if (place) window.location.href = data.links[shown[place.row]];
});
cells.addEventListener("wheel", (event) => {
  const before = first;
  first += Math.sign(event.deltaY) * 4;
  draw();
  if (first !== before) event.preventDefault();
}, { passive: false });
cells.addEventListener("keydown", (event) => {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-rows(), 0],
    PageDown: [rows(), 0], Home: [-hosts.length, 0], End: [hosts.length, 0] }[event.key];
  if (event.key === "Enter" && shown.length) window.location.href = data.links[shown[at.row]];
  if (!step) return;
  event.preventDefault();
  go(at.row + step[0], at.column + step[1]);
});
const jump = (event) => {
  if (event.type === "mousemove" && event.buttons !== 1) return;
  const box = get("all").getBoundingClientRect();
  first = Math.floor(((event.clientY - box.top) / box.height) * shown.length - rows() / 2);
  draw();
};
get("all").addEventListener("mousedown", jump);
get("all").addEventListener("mousemove", jump);
get("find").addEventListener("input", () => {
  const wanted = get("find").value.trim();
  // The name itself before one that begins with it: n1 is part of n10.
  const ways = [(host) => host === wanted, (host) => host.startsWith(wanted), (host) => host.includes(wanted)];
  const places = ways.map((way) => shown.findIndex((row) => way(hosts[row])));
  const found = wanted ? (places.find((place) => place >= 0) ?? -1) : 0;
  if (found >= 0) {
    first = found;
    go(found, at.column);
  }
});
for (const id of ["only", "order"]) get(id).addEventListener("change", order);
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
order();
