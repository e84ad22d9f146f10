// Charts as SVG, drawn anew for every reading: axes, lines, layers, marks.
import { NS, clock, count, draw, errorSum, errorsOf, feed, isNumber, kept, last, make, marked, percent, portOf, rate, readings, share, tidy, title, unitOf, view } from "./known.js";

export const nice = (most) => {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 4, 5, 8, 10].map((step) => step * power).find((value) => value >= most * 0.999);
};
export const span = () => {
  const list = readings();
  const to = list.length ? list[list.length - 1].time_ms : 0;
  const long = list.length ? to - list[0].time_ms : 0;
  return [to - Math.min(kept(), Math.max(60e3, long)), to];
};
// Readings that follow each other without a gap.
const runs = () => {
  const found = [];
  let before = -Infinity;
  for (const reading of readings()) {
    if (reading.time_ms - before > feed.interval * 3 + 500) found.push([]);
    found[found.length - 1].push(reading);
    before = reading.time_ms;
  }
  return found;
};
export const hovered = () => {
  if (view.hover === null) return last();
  let best = null;
  for (const r of readings()) if (!best || Math.abs(r.time_ms - view.hover) < Math.abs(best.time_ms - view.hover)) best = r;
  return best;
};

export class Chart {
  constructor(parent, height) {
    this.height = height;
    this.caption = make("figcaption");
    this.svg = document.createElementNS(NS, "svg");
    this.svg.setAttribute("role", "img");
    this.figure = make("figure", {}, this.caption, this.svg);
    parent.append(this.figure);
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      const part = (event.clientX - box.left - this.left) / (box.width - this.left - 6);
      const [from, to] = span();
      view.hover = part >= 0 && part <= 1 ? from + part * (to - from) : null;
      view.redraw();
    });
    this.svg.addEventListener("pointerleave", () => { view.hover = null; view.redraw(); });
  }
  // Axes: values from `low` to `high`, written by `words`.
  begin(label, low, high, ticks, words) {
    const width = this.svg.clientWidth || 400;
    this.left = 76;
    this.right = width - 6;
    this.top = 8;
    this.bottom = this.height - 20;
    this.low = low;
    this.high = high;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.svg.setAttribute("aria-label", tidy(label));
    // The first words stand; later ones only where they do not lie over those.
    const taken = [];
    for (const tick of ticks) {
      const y = this.y(tick);
      draw(this.svg, "line", { class: "axis", x1: this.left, x2: this.right, y1: y, y2: y });
      if (taken.some((other) => Math.abs(other - y) < 13)) continue;
      taken.push(y);
      draw(this.svg, "text", { x: this.left - 6, y: y + 4, "text-anchor": "end" }, words(tick));
    }
    const [from, to] = span();
    const step = [15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 1800e3, 3600e3, 7200e3, 14400e3].find((s) => ((to - from) / s) * 62 < this.right - this.left) || 43200e3;
    let free = this.left - 20;
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = this.x(time);
      draw(this.svg, "line", { class: "axis", x1: x, x2: x, y1: this.bottom, y2: this.bottom + 4 });
      // Half of the words' width is 24.
      const middle = Math.min(x, this.right - 24);
      if (middle - 24 < free) continue;
      free = middle + 30;
      draw(this.svg, "text", { x: middle, y: this.height - 4, "text-anchor": "middle" }, clock(time));
    }
  }
  x(time) {
    const [from, to] = span();
    return this.left + ((time - from) / Math.max(1, to - from)) * (this.right - this.left);
  }
  y(value) {
    return this.bottom - ((value - this.low) / (this.high - this.low)) * (this.bottom - this.top);
  }
  point(time, value) {
    return `${this.x(time).toFixed(1)} ${this.y(Math.min(value, this.high)).toFixed(1)}`;
  }
  // One line, broken where there is no figure.
  line(name, valueOf, area) {
    let path = "";
    let filled = "";
    for (const run of runs()) {
      let part = [];
      const end = () => {
        if (!part.length) return;
        const points = part.map(([t, v]) => this.point(t, v));
        // A lone figure is a dot.
        path += `M${points.join("L")}${points.length === 1 ? "h0.1" : ""}`;
        filled += `M${this.point(part[0][0], this.low)}L${points.join("L")}L${this.point(part[part.length - 1][0], this.low)}Z`;
        part = [];
      };
      for (const reading of run) {
        const value = valueOf(reading);
        if (isNumber(value)) part.push([reading.time_ms, value]);
        else end();
      }
      end();
    }
    if (area && filled) draw(this.svg, "path", { class: `${name}-area`, d: filled });
    if (path) draw(this.svg, "path", { class: name, "stroke-linecap": "round", d: path });
  }
  // Layers on top of each other, from 0 up or down (`sign`).
  stack(layers, sign) {
    const paths = layers.map(() => "");
    for (const run of runs()) {
      const sums = run.map(() => 0);
      layers.forEach(([, valueOf], i) => {
        const below = run.map((r, j) => this.point(r.time_ms, sums[j] * sign));
        run.forEach((r, j) => { const v = valueOf(r); if (isNumber(v)) sums[j] += v; });
        const above = run.map((r, j) => this.point(r.time_ms, sums[j] * sign));
        if (run.length > 1) paths[i] += `M${above.join("L")}L${below.reverse().join("L")}Z`;
      });
    }
    layers.forEach(([colour], i) => { if (paths[i]) draw(this.svg, "path", { class: "layer", d: paths[i] }).style.fill = colour; });
  }
  mark(time, text) {
    const x = this.x(time);
    const mark = draw(this.svg, "path", { class: "mark", d: `M${x - 4} ${this.bottom}h8L${x} ${this.bottom - 8}Z` });
    draw(mark, "title", {}, text);
  }
  end() {
    if (view.hover === null || !hovered()) return;
    const x = this.x(hovered().time_ms);
    draw(this.svg, "line", { class: "cross", x1: x, x2: x, y1: this.top, y2: this.bottom });
  }
  // The first words stand out; each of the rest may have a colour before it.
  say(first, ...rest) {
    const items = rest.map(([words, colour]) => {
      const item = make("span", { class: "legend" });
      if (colour) { const box = make("i", { class: "box" }); box.style.background = colour; item.append(box); }
      item.append(words);
      return item;
    });
    this.caption.replaceChildren(make("b", {}, first), ...items);
  }
}
// An axis reaches at least so far, in bytes per second: next to nothing does not fill a chart.
export const LEAST = 1e5;
// Colours of n layers, from one end to the other; neither is that of Rx or Tx.
const shade = (i, n) => `color-mix(in oklab, var(--first) ${n < 2 ? 100 : Math.round(100 - (i / (n - 1)) * 100)}%, var(--last))`;
// Every second layer a little lighter, so that neighbours of similar colour stay apart.
export const layer = (i, n) => (n > 3 && i % 2 ? `color-mix(in oklab, ${shade(i, n)} 65%, var(--card))` : shade(i, n));

export const drawTraffic = (chart, port) => {
  const list = readings();
  const value = (way) => (reading) => (portOf(reading, port.id) || {})[way];
  let most = 0;
  for (const reading of list) for (const way of ["rx", "tx"]) { const v = value(way)(reading); if (isNumber(v)) most = Math.max(most, v); }
  const ceiling = port.ceiling_bytes_per_s;
  // What uses a good part of its link is shown against it; what does not would be a flat line there.
  const toLink = ceiling > 0 && (view.scale === "link" || (view.scale === "auto" && most > ceiling / 5));
  const high = nice(Math.max(toLink ? ceiling : LEAST, most));
  const [size, unit] = unitOf(high);
  const now = hovered();
  const words = (way) => {
    const figures = portOf(now, port.id) || {};
    const part = share(port, figures, way);
    return `${marked(figures[way], port, figures)} MB/s${isNumber(part) ? ` (${percent(part)} %)` : ""}`;
  };
  chart.begin(`${title(port)}: Rx ${words("rx")}, Tx ${words("tx")}`, 0, high, [0, high / 2, high],
    (v) => `${Number((v / size).toPrecision(3))} ${unit}`);
  const old = list[list.length - 1];
  if (ceiling > 0 && ceiling <= high) {
    const y = chart.y(ceiling);
    draw(chart.svg, "line", { class: "ceiling", x1: chart.left, x2: chart.right, y1: y, y2: y });
  }
  chart.line("rx", value("rx"), true);
  chart.line("tx", value("tx"), false);
  for (const reading of list) {
    const sum = errorSum(reading, port.id);
    if (sum) chart.mark(reading.time_ms, `${clock(reading.time_ms)} ${count(sum)} errors: ${errorsOf(reading, port.id)}`);
  }
  chart.end();
  chart.say(title(port), ...(port.is_emulated ? [["EMULATED"]] : []), [`Rx ${words("rx")}`], [`Tx ${words("tx")}`],
    [ceiling > 0 ? `ceiling ${rate(ceiling)}` : "ceiling not known"], ...(view.hover !== null && now !== old ? [[clock(now.time_ms)]] : []));
};
