"use strict";
// Draws the heat maps and, for the chosen cell, its histogram and its tail. All text from records is set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Places in a histogram's array; see data.rs.
  const STATISTICS = [
    ["Median", 3], ["Mean", 2], ["P90", 4], ["P95", 5], ["P99", 6], ["P99.9", 7], ["P99.99", 8], ["Min", 1], ["Max", 9],
  ];
  const BINS = 10;
  const PLACES = ["node", "package", "L3 of CPU", "core", "thread"];
  const NS = "http://www.w3.org/2000/svg";

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const draw = (parent, tag, attributes, text) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const round = (value, digits) => String(Number(value.toPrecision(digits)));
  const time = (ns, digits = 4) => {
    if (ns < 1e3) return round(ns, digits) + " ns";
    if (ns < 1e6) return round(ns / 1e3, digits) + " us";
    if (ns < 1e9) return round(ns / 1e6, digits) + " ms";
    return round(ns / 1e9, digits) + " s";
  };
  const count = (n) => n.toLocaleString("en-US");

  const colour = (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (data.palette.length - 1);
    const step = Math.min(Math.floor(place), data.palette.length - 2);
    return data.palette[step].map((a, i) => Math.round(a + (data.palette[step + 1][i] - a) * (place - step)));
  };
  const css = (rgb) => `rgb(${rgb.join(",")})`;
  const ink = (rgb) => (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#000" : "#fff");

  // The bins of a histogram as [lower edge in ns, upper edge in ns, count].
  // Cells may be coarser than the whole to keep the page small: `wanted` makes bins as coarse as theirs.
  const binsOf = (histogram, perOctave, wanted = perOctave) => {
    const merged = new Map();
    let bin = 0;
    for (let i = 0; i < histogram[BINS].length; i += 2) {
      bin += histogram[BINS][i];
      const place = Math.floor((bin * wanted) / perOctave);
      merged.set(place, (merged.get(place) || 0) + histogram[BINS][i + 1]);
    }
    const edge = (place) => 2 ** (place / wanted) / 1e3;
    return [...merged].map(([place, n]) => [edge(place), edge(place + 1), n]);
  };

  // Round numbers between two durations: a few per decade, or evenly spaced where the range is narrow.
  const ticks = (low, high) => {
    for (const digits of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
      const found = [];
      for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade++)
        for (const digit of digits) {
          const value = digit * 10 ** decade;
          if (value >= low && value <= high) found.push(value);
        }
      if (found.length >= 4 && found.length <= 9) return found;
      if (found.length > 9) return found.filter((_, i) => i % Math.ceil(found.length / 8) === 0);
    }
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
    return found;
  };

  const chart = (title, label) => {
    const svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", "0 0 560 240");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
    return [make("figure", {}, make("figcaption", {}, title), svg), svg];
  };
  const frame = { left: 58, right: 548, top: 10, bottom: 206 };

  // Axes common to both charts; returns where a duration lies across.
  const across = (svg, low, high, lines, withWords) => {
    svg.replaceChildren();
    const x = (ns) =>
      frame.left + ((Math.log(ns) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (frame.right - frame.left);
    let free = 0;
    for (const tick of ticks(low, high)) {
      draw(svg, "line", { class: "axis", x1: x(tick), x2: x(tick), y1: frame.top, y2: frame.bottom + 4 });
      if (x(tick) < free) continue;
      free = x(tick) + 52;
      draw(svg, "text", { x: x(tick), y: frame.bottom + 17, "text-anchor": "middle" }, time(tick, 4));
    }
    draw(svg, "line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom });
    let row = 0;
    for (const [words, ns] of lines) {
      if (ns < low || ns > high) continue;
      const end = x(ns) > (frame.left + frame.right) / 2;
      draw(svg, "line", { class: "reference", x1: x(ns), x2: x(ns), y1: frame.top, y2: frame.bottom });
      if (withWords) draw(svg, "text", {
        class: "reference-word", x: x(ns) + (end ? -4 : 4), y: frame.top + 11 + 13 * row++, "text-anchor": end ? "end" : "start",
      }, words);
    }
    return x;
  };

  const histogram = (svg, map, cell, low, high, lines) => {
    const x = across(svg, low, high, lines, true);
    const shareOf = (h, bins) => bins.map(([a, b, n]) => [a, b, n / h[0]]);
    const whole = shareOf(map.all, binsOf(map.all, data.perOctave, cell ? map.perOctave : data.perOctave));
    const shown = cell ? shareOf(cell, binsOf(cell, map.perOctave)) : whole;
    const most = [...shown, ...whole].reduce((m, b) => Math.max(m, b[2]), 0);
    const y = (s) => frame.bottom - (s / most) * (frame.bottom - frame.top - 4);
    for (const s of [most, most / 2]) {
      draw(svg, "text", { x: frame.left - 6, y: y(s) + 4, "text-anchor": "end" }, round(s * 100, 2) + " %");
      draw(svg, "line", { class: "axis", x1: frame.left - 3, x2: frame.left, y1: y(s), y2: y(s) });
    }
    for (const [a, b, s] of shown) {
      // A bin with a single sample stays visible: the tail is why one looks.
      const height = Math.max(frame.bottom - y(s), 2);
      draw(svg, "rect", { class: "bin", x: x(a), width: Math.max(x(b) - x(a), 1), y: frame.bottom - height, height });
    }
    if (cell) {
      let path = "";
      let last = null;
      for (const [a, b, s] of whole) {
        if (last !== a) path += `${last === null ? "" : `V${frame.bottom}`}M${x(a)} ${frame.bottom}`;
        path += `V${y(s)}H${x(b)}`;
        last = b;
      }
      draw(svg, "path", { class: "all", d: path + `V${frame.bottom}` });
    }
  };

  // The share of samples above a duration, on a logarithmic axis: each decade down is one more nine.
  const tail = (svg, map, cell, low, high, lines) => {
    const x = across(svg, low, high, lines, false);
    const decades = Math.max(1, Math.ceil(Math.log10(map.all[0])));
    const y = (share) => frame.top + (-Math.log10(share) / decades) * (frame.bottom - frame.top);
    const every = decades > 8 ? 2 : 1;
    for (let d = 0; d <= decades; d += every) {
      const words = (d > 5 ? (100 / 10 ** d).toExponential(0) : round(100 / 10 ** d, 1)) + " %";
      draw(svg, "text", { x: frame.left - 6, y: y(10 ** -d) + 4, "text-anchor": "end" }, words);
      draw(svg, "line", { class: "axis", x1: frame.left, x2: frame.right, y1: y(10 ** -d), y2: y(10 ** -d) });
    }
    const curve = (h, perOctave, name) => {
      let left = h[0];
      let path = `M${frame.left} ${y(1)}`;
      for (const [, b, n] of binsOf(h, perOctave)) {
        const here = Math.min(x(b), frame.right);
        path += `H${here}`;
        left -= n;
        path += `V${left > 0 ? y(left / h[0]) : frame.bottom}`;
      }
      draw(svg, "path", { class: name, d: path });
    };
    if (cell) curve(map.all, data.perOctave, "all");
    if (cell) curve(cell, map.perOctave, "cell");
    else curve(map.all, data.perOctave, "cell");
  };

  const build = (host, section, map) => {
    const columns = map.cpus.length;
    const rows = map.targets.length;
    const known = map.cells.filter(Boolean);
    const state = { statistic: 3, order: map.cpus.map((_, i) => i), pinned: null, hovered: null };
    // A statistic is offered where every cell's samples support it.
    const offered = STATISTICS.filter(([, place]) => known.every((cell) => cell[place] > 0));
    state.statistic = (offered.find(([name]) => name === "Median") || offered[0] || ["Mean", 2])[1];

    const select = (label, options) => {
      const box = make("select", {}, ...options.map(([text, value]) => make("option", { value }, text)));
      return [make("label", {}, label + " ", box), box];
    };
    const [statisticLabel, statistic] = select("Colour:", offered);
    const [orderLabel, order] = select("CPUs by", [["number", "number"], ["topology", "topology"], ["speed", "speed"]]);
    statistic.value = String(state.statistic);
    const legend = make("span", { class: "legend" });
    const canvas = make("canvas", { tabindex: "0", role: "application" });
    const said = make("p", { class: "said", "aria-live": "polite" });
    const figures = make("ul", { class: "figures" });
    const [histogramFigure, histogramSvg] = chart("Histogram: share of the samples in each bin", "Histogram of the chosen cell");
    const [tailFigure, tailSvg] = chart("Tail: share of the samples that took longer", "Tail of the chosen cell");
    const single = columns * rows === 1;
    const manyNodes = new Set(Object.values(section.places).map((p) => p[0])).size > 1;
    host.append(make("div", { class: "map" },
      make("h3", {}, `${map.words}, CPU by ${{ b: "BAR", h: "hop", i: "interrupt", v: "vector" }[map.targets[0][0]] || "target"}`),
      make("div", { class: "bar" }, statisticLabel, ...(columns > 2 ? [orderLabel] : []), legend),
      make("div", { class: "grid" }, canvas),
      make("p", { class: "keys" }, single ? "" : "Point at a cell for its histogram, click to keep it; arrow keys move, Escape shows all."
        + (manyNodes ? " The strip below the cells tells NUMA nodes apart." : "")
        + (map.perOctave < data.perOctave ? ` Cells' histograms are kept in ${map.perOctave} bins per octave here; their figures are not affected.` : "")),
      said, figures,
      make("div", { class: "charts" }, histogramFigure, tailFigure)));

    const cellAt = (column, row) => map.cells[row * columns + state.order[column]] || null;
    let left, size;
    // The scale spans 5 % at least, so that noise within them does not look like a difference.
    const range = () => {
      const values = known.map((cell) => cell[state.statistic]).filter((v) => v > 0);
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), 0);
      return [low, Math.max(high, low * 1.05)];
    };

    const paint = () => {
      const [low, high] = range();
      const shareOf = (v) => (Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low));
      const context = canvas.getContext("2d");
      const font = "12px ui-monospace, 'DejaVu Sans Mono', monospace";
      context.font = font;
      left = Math.ceil(Math.max(...map.targets.map((t) => context.measureText(t).width), context.measureText("CPU").width)) + 10;
      const room = canvas.parentElement.clientWidth - left - 2;
      const width = Math.min(Math.max(room / columns, 1), 92);
      const height = Math.min(Math.max(560 / rows, 5), 28);
      size = { width, height };
      const total = [left + Math.ceil(width * columns) + 2, Math.ceil(height * rows) + 34];
      const ratio = window.devicePixelRatio || 1;
      canvas.width = total[0] * ratio;
      canvas.height = total[1] * ratio;
      canvas.style.width = total[0] + "px";
      canvas.style.height = total[1] + "px";
      context.scale(ratio, ratio);
      context.font = font;
      context.textBaseline = "middle";
      const gap = width >= 8 && height >= 8 ? 1 : 0;
      const none = style("--none");
      context.textAlign = "center";
      // Whole device pixels, so that a thousand narrow cells neither overlap nor leave seams.
      const snap = (v) => Math.round(v * ratio) / ratio;
      for (let row = 0; row < rows; row++)
        for (let column = 0; column < columns; column++) {
          const cell = cellAt(column, row);
          const rgb = cell && colour(shareOf(cell[state.statistic]));
          context.fillStyle = rgb ? css(rgb) : none;
          const [x0, x1] = [left + column * width, left + (column + 1) * width - gap];
          context.fillRect(snap(x0), snap(row * height), Math.max(snap(x1) - snap(x0), 1 / ratio), snap((row + 1) * height - gap) - snap(row * height));
          if (cell && width >= 60 && height >= 15) {
            context.fillStyle = ink(rgb);
            context.fillText(time(cell[state.statistic], 3), x0 + (width - gap) / 2, (row + 0.5) * height);
          }
        }
      context.fillStyle = style("--ink");
      context.textAlign = "right";
      const skip = Math.ceil(13 / height);
      for (let row = 0; row < rows; row += skip) context.fillText(map.targets[row], left - 6, Math.max((row + 0.5) * height, 7));
      const bottom = rows * height;
      // A strip says which NUMA node a CPU belongs to, where there are several.
      const nodes = state.order.map((i) => (section.places[map.cpus[i]] || [])[0]);
      if (new Set(nodes).size > 1)
        nodes.forEach((node, column) => {
          context.fillStyle = node % 2 ? style("--all") : style("--line");
          context.fillRect(snap(left + column * width), bottom + 3, Math.max(snap(left + (column + 1) * width) - snap(left + column * width), 1 / ratio), 5);
        });
      context.fillStyle = style("--ink");
      context.textAlign = "center";
      const widest = context.measureText(String(Math.max(...map.cpus))).width + 10;
      const every = Math.max(1, Math.ceil(widest / width));
      for (let column = 0; column < columns; column += every) {
        const x = Math.max(left + (column + 0.5) * width, left + 4);
        if (x + widest / 2 <= total[0] + 6) context.fillText(String(map.cpus[state.order[column]]), x, bottom + 19);
      }
      context.fillStyle = style("--soft");
      context.textAlign = "right";
      context.fillText("CPU", left - 6, bottom + 19);
      const marked = state.pinned;
      if (marked) {
        const [x, y] = [left + marked[0] * width, marked[1] * height];
        const box = [Math.max(width, 4), Math.max(height, 4)];
        context.lineWidth = 3;
        context.strokeStyle = style("--card");
        context.strokeRect(x - 1, y - 1, box[0] + 1, box[1] + 1);
        context.lineWidth = 1.6;
        context.strokeStyle = style("--accent");
        context.strokeRect(x - 1, y - 1, box[0] + 1, box[1] + 1);
      }
      legend.replaceChildren(time(low, 3), make("i", { style: `background:linear-gradient(90deg,${data.palette.map(css).join(",")})` }), time(high, 3));
      canvas.setAttribute("aria-label", `Heat map of ${columns} CPUs by ${rows} targets, ${time(low)} to ${time(high)}. Arrow keys move.`);
    };

    const detail = () => {
      const at = state.hovered || state.pinned;
      const cell = at && cellAt(at[0], at[1]);
      const shown = cell || map.all;
      let words = `All ${columns} CPU${columns > 1 ? "s" : ""} and ${rows} target${rows > 1 ? "s" : ""} together`;
      if (at) {
        const cpu = map.cpus[state.order[at[0]]];
        const places = (section.places[cpu] || []).map((p, i) => (p === null ? "" : `${PLACES[i]} ${p}`)).filter(Boolean);
        words = `CPU ${cpu}, ${map.targets[at[1]]}` + (places.length ? ` (${places.join(", ")})` : "") + (cell ? "" : ": not measured");
      }
      said.textContent = words;
      const figure = (name, value) => make("li", {}, make("span", {}, name + " "), make("b", {}, value));
      const listed = [["Min", 1], ["Mean", 2], ["Median", 3], ["P90", 4], ["P95", 5], ["P99", 6], ["P99.9", 7], ["P99.99", 8], ["Max", 9]];
      figures.replaceChildren(figure("Samples", count(shown[0])),
        ...listed.filter(([name, place]) => shown[place] > 0 || name === "Min").map(([name, place]) => figure(name, time(shown[place]))));
      const bins = binsOf(map.all, data.perOctave);
      if (!bins.length) return;
      let [low, high] = [bins[0][0], bins[bins.length - 1][1]];
      // A reference just outside is worth the room; one far away is in the text only.
      for (const [, ns] of section.lines) {
        if (ns < low && ns > low / 3) low = ns * 0.97;
        if (ns > high && ns < high * 3) high = ns * 1.03;
      }
      const pad = (high / low) ** 0.02;
      const lines = section.lines;
      histogram(histogramSvg, map, cell, low / pad, high * pad, lines);
      tail(tailSvg, map, cell, low / pad, high * pad, lines);
    };

    let waiting = false;
    const refresh = (all) => {
      if (all) paint();
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; detail(); });
    };
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left - left) / size.width);
      const row = Math.floor((event.clientY - box.top) / size.height);
      return column >= 0 && column < columns && row >= 0 && row < rows ? [column, row] : null;
    };
    canvas.addEventListener("pointermove", (event) => { state.hovered = place(event); refresh(false); });
    canvas.addEventListener("pointerleave", () => { state.hovered = null; refresh(false); });
    canvas.addEventListener("click", (event) => {
      const at = place(event);
      const same = at && state.pinned && at[0] === state.pinned[0] && at[1] === state.pinned[1];
      state.pinned = same ? null : at;
      refresh(true);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const [column, row] = state.pinned || [0, 0];
      if (step && state.pinned)
        state.pinned = [Math.min(Math.max(column + step[0], 0), columns - 1), Math.min(Math.max(row + step[1], 0), rows - 1)];
      else if (step) state.pinned = [0, 0];
      else if (event.key === "Home") state.pinned = [0, row];
      else if (event.key === "End") state.pinned = [columns - 1, row];
      else if (event.key === "Escape") state.pinned = null;
      else return;
      event.preventDefault();
      state.hovered = null;
      refresh(true);
    });
    statistic.addEventListener("change", () => { state.statistic = Number(statistic.value); refresh(true); });
    order.addEventListener("change", () => {
      const kept = state.pinned && state.order[state.pinned[0]];
      const places = (i) => (section.places[map.cpus[i]] || []).map((p) => (p === null ? -1 : p));
      const mean = (i) => {
        let [sum, n] = [0, 0];
        for (let row = 0; row < rows; row++) {
          const cell = map.cells[row * columns + i];
          if (cell) { sum += cell[2] * cell[0]; n += cell[0]; }
        }
        return n ? sum / n : Infinity;
      };
      const indices = map.cpus.map((_, i) => i);
      if (order.value === "speed") {
        const means = indices.map(mean);
        indices.sort((a, b) => means[a] - means[b]);
      } else if (order.value === "topology")
        indices.sort((a, b) => {
          const [p, q] = [places(a), places(b)];
          for (let i = 0; i < p.length; i++) if (p[i] !== q[i]) return p[i] - q[i];
          return a - b;
        });
      state.order = indices;
      if (state.pinned) state.pinned = [indices.indexOf(kept), state.pinned[1]];
      refresh(true);
    });
    paint();
    detail();
    return () => { paint(); detail(); };
  };

  const redraws = [];
  for (const host of document.querySelectorAll(".maps")) {
    const section = data.sections[Number(host.dataset.section)];
    for (const map of section.maps) redraws.push(build(host, section, map));
  }
  const redraw = () => redraws.forEach((one) => one());
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 100); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", redraw);
})();
