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
  // The same as a machine is built: CPUs of a package stand together, of these the nodes, then the cores, then their threads.
  const BUILT = [1, 0, 2, 3, 4];
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

  const shareOf = (h, bins) => bins.map(([a, b, n]) => [a, b, n / h[0]]);
  // The colours of hops, the one at the device last; their names stand where they are highest.
  const hopColour = (i) => `var(--s${i % 8})`;
  const names = (svg, map, hops) => hops.forEach((_, i) => {
    const y = frame.top + 12 + 14 * i;
    draw(svg, "rect", { x: frame.right - 44, y: y - 8, width: 9, height: 9, style: `fill: ${hopColour(i)}` });
    draw(svg, "text", { x: frame.right - 31, y }, map.targets[i]);
  });
  const outline = (bins, x, y) => {
    let path = "";
    let last = null;
    for (const [a, b, s] of bins) {
      if (last !== a) path += `${last === null ? "" : `V${frame.bottom}`}M${x(a)} ${frame.bottom}`;
      path += `V${y(s)}H${x(b)}`;
      last = b;
    }
    return path + `V${frame.bottom}`;
  };

  const histogram = (svg, map, all, cell, low, high, lines, hops) => {
    const x = across(svg, low, high, lines, true);
    const whole = shareOf(all, binsOf(all, data.perOctave, cell ? map.perOctave : data.perOctave));
    const shown = cell ? shareOf(cell, binsOf(cell, map.perOctave)) : whole;
    // Bins of lines that lie over each other are as wide as the eye can follow.
    const each = hops && hops.map((hop) => shareOf(hop, binsOf(hop, data.perOctave, 16)));
    const most = (each ? each.flat() : [...shown, ...whole]).reduce((m, b) => Math.max(m, b[2]), 0);
    const y = (s) => frame.bottom - (s / most) * (frame.bottom - frame.top - 4);
    for (const s of [most, most / 2]) {
      draw(svg, "text", { x: frame.left - 6, y: y(s) + 4, "text-anchor": "end" }, round(s * 100, 2) + " %");
      draw(svg, "line", { class: "axis", x1: frame.left - 3, x2: frame.left, y1: y(s), y2: y(s) });
    }
    if (each) {
      each.forEach((bins, i) => draw(svg, "path", { class: "hop", style: `stroke: ${hopColour(i)}`, d: outline(bins, x, y) }));
      names(svg, map, hops);
      return;
    }
    for (const [a, b, s] of shown) {
      // A bin with a single sample stays visible: the tail is why one looks.
      const height = Math.max(frame.bottom - y(s), 2);
      draw(svg, "rect", { class: "bin", x: x(a), width: Math.max(x(b) - x(a), 1), y: frame.bottom - height, height });
    }
    if (cell) draw(svg, "path", { class: "all", d: outline(whole, x, y) });
  };

  // The share of samples above a duration, on a logarithmic axis: each decade down is one more nine.
  const tail = (svg, map, all, cell, low, high, lines, hops) => {
    const x = across(svg, low, high, lines, false);
    const decades = Math.max(1, Math.ceil(Math.log10(Math.max(...(hops || [all]).map((h) => h[0])))));
    const y = (share) => frame.top + (-Math.log10(share) / decades) * (frame.bottom - frame.top);
    const every = decades > 8 ? 2 : 1;
    for (let d = 0; d <= decades; d += every) {
      const words = (d > 5 ? (100 / 10 ** d).toExponential(0) : round(100 / 10 ** d, 1)) + " %";
      draw(svg, "text", { x: frame.left - 6, y: y(10 ** -d) + 4, "text-anchor": "end" }, words);
      draw(svg, "line", { class: "axis", x1: frame.left, x2: frame.right, y1: y(10 ** -d), y2: y(10 ** -d) });
    }
    const curve = (h, perOctave, name, colour) => {
      let left = h[0];
      let path = `M${frame.left} ${y(1)}`;
      for (const [, b, n] of binsOf(h, perOctave)) {
        const here = Math.min(x(b), frame.right);
        path += `H${here}`;
        left -= n;
        path += `V${left > 0 ? y(left / h[0]) : frame.bottom}`;
      }
      draw(svg, "path", colour ? { class: name, style: `stroke: ${colour}`, d: path } : { class: name, d: path });
    };
    if (hops) {
      hops.forEach((hop, i) => curve(hop, data.perOctave, "hop", hopColour(i)));
      names(svg, map, hops);
      return;
    }
    if (cell) curve(all, data.perOctave, "all");
    if (cell) curve(cell, map.perOctave, "cell");
    else curve(all, data.perOctave, "cell");
  };

  // The smallest and the largest of a statistic over maps.
  const endsOf = (maps, place) => {
    let [low, high] = [Infinity, 0];
    for (const one of maps) for (const cell of one.cells) if (cell && cell[place] > 0) {
      low = Math.min(low, cell[place]);
      high = Math.max(high, cell[place]);
    }
    return [low, high];
  };
  const shared = new Map();
  const mapsOf = (kind) => data.sections.filter((one) => one.scale === kind).flatMap((one) => one.maps);
  const sharedEnds = (kind, place) => {
    const key = `${kind} ${place}`;
    if (!shared.has(key)) shared.set(key, endsOf(mapsOf(kind), place));
    return shared.get(key);
  };

  const build = (host, section, map) => {
    let columns = map.cpus.length;
    const total = columns;
    const rows = map.targets.length;
    const known = map.cells.filter(Boolean);
    // `order` holds the columns shown; a zoom shows a part of `sorted`.
    const state = { statistic: 3, sorted: [], order: [], pinned: null, hovered: null, drag: null };
    // A statistic is offered where every cell's samples support it.
    const offered = STATISTICS.filter(([, place]) => known.every((cell) => cell[place] > 0));
    state.statistic = (offered.find(([name]) => name === "Median") || offered[0] || ["Mean", 2])[1];

    const select = (label, options) => {
      const box = make("select", {}, ...options.map(([text, value]) => make("option", { value }, text)));
      return [make("label", {}, label + " ", box), box];
    };
    const [statisticLabel, statistic] = select("Colour:", offered);
    const [orderLabel, order] = select("CPUs by", [["number", "number"], ["package and node", "topology"], ["speed", "speed"]]);
    const [scaleLabel, scale] = select("Scale:", [["of all maps of this kind", "shared"], ["of this map", "own"]]);
    statistic.value = String(state.statistic);
    const legend = make("span", { class: "legend" });
    const canvas = make("canvas", { tabindex: "0", role: "application" });
    const said = make("p", { class: "said", "aria-live": "polite" });
    const figures = make("ul", { class: "figures" });
    const [histogramFigure, histogramSvg] = chart("Histogram: share of the samples in each bin", "Histogram of the chosen cell");
    const [tailFigure, tailSvg] = chart("Tail: share of the samples that took longer", "Tail of the chosen cell");
    const all = make("button", { type: "button", hidden: "" }, `All ${total} CPUs`);
    const save = make("button", { type: "button" }, "Cells as CSV");
    save.addEventListener("click", () => {
      const head = "cpu,target,count,min_ns,mean_ns,p50_ns,p90_ns,p95_ns,p99_ns,p999_ns,p9999_ns,max_ns";
      // A percentile that the samples do not support is 0 here and an empty field there.
      const field = (value, place) => (place > 2 && place < 9 && value === 0 ? "" : value);
      const line = (cell, i) => cell && [map.cpus[i % total], JSON.stringify(map.targets[Math.floor(i / total)]), ...cell.slice(0, BINS).map(field)].join(",");
      const text = [head, ...map.cells.map(line).filter(Boolean), ""].join("\n");
      const link = make("a", { download: `${section.test}-${map.name}.csv`, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    const single = columns * rows === 1;
    const placesOf = (i) => section.places[map.cpus[i]] || [];
    const distinct = (of) => new Set(map.cpus.map((_, i) => of(placesOf(i)))).size;
    const [nodes, packages, both] = [(p) => p[0], (p) => p[1], (p) => `${p[0]} ${p[1]}`].map(distinct);
    const called = (name, place) => `${name} ${place === null || place === undefined ? "?" : place}`;
    // What CPUs can be grouped by, from the cells outwards: the group of a CPU, and its words from long to short.
    const ofNode = { of: (p) => p[0], words: (p) => [called("node", p[0]), String(p[0] ?? "?")] };
    const ofPackage = { of: (p) => p[1], words: (p) => [called("package", p[1]), called("pkg", p[1]), String(p[1] ?? "?")] };
    const levels = [...(nodes > 1 ? [ofNode] : []), ...(packages > 1 ? [ofPackage] : [])];
    // Where each package is one node both are one group.
    if (levels.length === 2 && nodes === both && packages === both)
      levels.splice(0, 2, { ...ofPackage, words: (p) => [`${called("package", p[1])}, ${called("node", p[0])}`, ...ofPackage.words(p)] });
    const coreOf = (p) => (p[3] === null || p[3] === undefined ? null : `${p[1]} ${p[0]} ${p[3]}`);
    const hasSiblings = (() => {
      const cores = map.cpus.map((_, i) => coreOf(placesOf(i))).filter((core) => core !== null);
      return new Set(cores).size < cores.length;
    })();
    host.append(make("div", { class: "map" },
      make("h3", {}, `${map.words}, CPU by ${{ b: "BAR", h: "hop", i: "interrupt", v: "vector" }[map.targets[0][0]] || "target"}`),
      make("div", { class: "bar" }, statisticLabel, ...(columns > 2 ? [orderLabel] : []),
        ...(mapsOf(section.scale).length > 1 ? [scaleLabel] : []), legend, all, save),
      make("div", { class: "grid" }, canvas),
      make("p", { class: "keys" }, single ? "" : "Point at a cell for its histogram, click to keep it; arrow keys move, Escape shows all."
        + (hasSiblings ? " A line above CPU numbers joins the threads of a core." : "")
        + (total > 16 ? " Drag across for fewer CPUs, double click for all." : "")
        + (known.every((cell) => !cell[BINS].length) ? " So many cells come without their histograms, and with four digits; the records have all."
          : map.perOctave < data.perOctave ? ` Cells' histograms are kept in ${map.perOctave} bins per octave here; their figures are not affected.` : "")),
      said, figures,
      make("div", { class: "charts" }, histogramFigure, tailFigure)));

    const cellAt = (column, row) => map.cells[row * total + state.order[column]] || null;
    let left, size;
    const isByPlace = () => order.value === "topology";
    const strips = () => (isByPlace() ? levels : []);
    // Neighbouring columns of which `of` says the same: from, to, and the places of the first.
    const runsOf = (of) => {
      const runs = [];
      state.order.forEach((i, column) => {
        const [here, last] = [of(placesOf(i)), runs[runs.length - 1]];
        if (last && last.is === here) last.to = column + 1;
        else runs.push({ is: here, from: column, to: column + 1, places: placesOf(i) });
      });
      return runs;
    };
    const tip = make("div", { class: "tip", hidden: "" });
    canvas.parentElement.append(tip);
    const zoom = (from, to) => {
      const kept = state.pinned && state.order[state.pinned[0]];
      state.order = state.sorted.slice(from, to);
      columns = state.order.length;
      const place = kept === null ? -1 : state.order.indexOf(kept);
      state.pinned = place < 0 ? null : [place, state.pinned[1]];
      state.hovered = null;
    };
    // Maps of the same kind of test share a scale, which spans a factor of two at least: noise is not a pattern.
    const range = () => {
      const [low, high] = scale.value === "own" ? endsOf([map], state.statistic) : sharedEnds(section.scale, state.statistic);
      return [low, Math.max(high, low * data.leastSpan)];
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
      const extent = [left + Math.ceil(width * columns) + 2, Math.ceil(height * rows) + [34, 50, 74][strips().length]];
      const ratio = window.devicePixelRatio || 1;
      canvas.width = extent[0] * ratio;
      canvas.height = extent[1] * ratio;
      canvas.style.width = extent[0] + "px";
      canvas.style.height = extent[1] + "px";
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
      // Strips and words say to which node and package neighbours belong, where there are several.
      strips().forEach(({ of, words }, level) => runsOf(of).forEach(({ from, to, places }, n) => {
        const [x0, x1] = [snap(left + from * width), snap(left + to * width)];
        context.fillStyle = n % 2 ? style("--all") : style("--line");
        context.fillRect(x0, bottom + (level ? 47 : 3), Math.max(x1 - x0 - 1, 1 / ratio), 5);
        const fitting = words(places).find((word) => context.measureText(word).width + 6 <= x1 - x0);
        if (!fitting) return;
        context.fillStyle = style("--soft");
        context.textAlign = "center";
        context.fillText(fitting, (x0 + x1) / 2, bottom + (level ? 62 : 37));
      }));
      if (isByPlace() && hasSiblings && width >= 4) {
        context.fillStyle = style("--soft");
        for (const { is, from, to } of runsOf(coreOf))
          if (is !== null && to > from + 1) context.fillRect(left + (from + 0.3) * width, bottom + 10, (to - from - 0.6) * width, 1.5);
      }
      context.fillStyle = style("--ink");
      context.textAlign = "center";
      const widest = context.measureText(String(Math.max(...map.cpus))).width + 10;
      const every = Math.max(1, Math.ceil(widest / width));
      for (let column = 0; column < columns; column += every) {
        const x = Math.max(left + (column + 0.5) * width, left + 4);
        if (x + widest / 2 <= extent[0] + 6) context.fillText(String(map.cpus[state.order[column]]), x, bottom + 19);
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
      // Hops are not mixed: behind a cell stands its own hop, and without one the device at the end.
      const isPath = map.rows.length > 1;
      const whole = isPath ? map.rows[at ? at[1] : rows - 1] : map.all;
      const shown = cell || whole;
      const cpus = `All ${total} CPU${total > 1 ? "s" : ""}`;
      let words = isPath ? `${cpus}, ${map.targets[rows - 1]}, the device itself; the charts have each hop`
        : `${cpus} and ${rows} target${rows > 1 ? "s" : ""} together`;
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
      // A cell without a histogram of its own is marked in that of all.
      const bare = cell && !cell[BINS].length;
      const marks = bare ? [["cell's median", cell[3]], ["cell's slowest", cell[9]]].filter(([, ns]) => ns > 0) : [];
      const lines = [...section.lines, ...marks];
      const hops = isPath && !cell ? map.rows : null;
      histogram(histogramSvg, map, whole, bare ? null : cell, low / pad, high * pad, lines, hops);
      tail(tailSvg, map, whole, bare ? null : cell, low / pad, high * pad, lines, hops);
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
    const hover = (event) => {
      const at = place(event);
      state.hovered = at;
      const cell = at && cellAt(at[0], at[1]);
      tip.hidden = !at;
      if (at) {
        const figure = cell ? time(cell[state.statistic]) : "not measured";
        const groups = [...levels].reverse().map((level) => level.words(placesOf(state.order[at[0]]))[0]).join(", ");
        tip.textContent = `CPU ${map.cpus[state.order[at[0]]]}${groups && ` (${groups})`}, ${map.targets[at[1]]}: ${figure}`;
        const box = canvas.getBoundingClientRect();
        const x = event.clientX - box.left + 14;
        tip.style.left = Math.max(0, Math.min(x, canvas.clientWidth - tip.offsetWidth - 4)) + "px";
        tip.style.top = event.clientY - box.top + 16 + "px";
      }
      if (state.drag && at) {
        paint();
        const [from, to] = [Math.min(state.drag[0], at[0]), Math.max(state.drag[0], at[0]) + 1];
        const context = canvas.getContext("2d");
        context.strokeStyle = style("--ink");
        context.lineWidth = 1;
        context.strokeRect(left + from * size.width, 0.5, (to - from) * size.width, rows * size.height - 1);
      }
      refresh(false);
    };
    canvas.addEventListener("pointermove", hover);
    canvas.addEventListener("pointerleave", () => { state.hovered = null; state.drag = null; tip.hidden = true; refresh(false); });
    // A drag over several columns shows only these; a click chooses a cell.
    let dragged = false;
    canvas.addEventListener("pointerdown", (event) => { state.drag = place(event); dragged = false; });
    canvas.addEventListener("pointerup", (event) => {
      const [begin, end] = [state.drag, place(event)];
      state.drag = null;
      if (!begin || !end || Math.abs(begin[0] - end[0]) < 2) return;
      dragged = true;
      const offset = state.sorted.indexOf(state.order[0]);
      zoom(offset + Math.min(begin[0], end[0]), offset + Math.max(begin[0], end[0]) + 1);
      all.hidden = false;
      tip.hidden = true;
      refresh(true);
    });
    const widen = () => { zoom(0, total); all.hidden = true; refresh(true); };
    all.addEventListener("click", widen);
    canvas.addEventListener("dblclick", widen);
    canvas.addEventListener("click", (event) => {
      if (dragged) return;
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
    scale.addEventListener("change", () => refresh(true));
    statistic.addEventListener("change", () => { state.statistic = Number(statistic.value); refresh(true); });
    const sort = () => {
      const mean = (i) => {
        let [sum, n] = [0, 0];
        for (let row = 0; row < rows; row++) {
          const cell = map.cells[row * total + i];
          if (cell) { sum += cell[2] * cell[0]; n += cell[0]; }
        }
        return n ? sum / n : Infinity;
      };
      const indices = map.cpus.map((_, i) => i);
      if (order.value === "speed") {
        const means = indices.map(mean);
        indices.sort((a, b) => means[a] - means[b]);
      } else if (order.value === "topology") {
        const known = indices.map((i) => BUILT.map((place) => placesOf(i)[place] ?? -1));
        indices.sort((a, b) => {
          const apart = BUILT.findIndex((_, i) => known[a][i] !== known[b][i]);
          return apart < 0 ? a - b : known[a][apart] - known[b][apart];
        });
      }
      state.sorted = indices;
      zoom(0, total);
    };
    order.addEventListener("change", () => { sort(); refresh(true); });
    if (levels.length || hasSiblings) order.value = "topology";
    sort();
    paint();
    detail();
    return () => { paint(); detail(); };
  };

  // Maps come up when their part of the page is first shown: a thousand CPUs cost nothing before.
  const waiting = new Map();
  const redraws = [];
  for (const host of document.querySelectorAll(".maps")) waiting.set(host, data.sections[Number(host.dataset.section)]);
  const drawIn = (part) => {
    for (const [host, section] of [...waiting])
      if (part.contains(host)) {
        waiting.delete(host);
        for (const map of section.maps) redraws.push([part, build(host, section, map)]);
      }
  };
  const isShown = (part) => !part.hasAttribute("hidden");
  const redraw = () => redraws.forEach(([part, one]) => isShown(part) && one());

  // With several devices the parts of the page become tabs that the address's # chooses; otherwise they form one column.
  const parts = [...document.querySelectorAll(".page")];
  const links = [...document.querySelectorAll("nav a")];
  let whole = parts.filter((part) => part.classList.contains("device")).length < 2;
  const partOf = (element) => element && parts.find((part) => part.contains(element));
  const aim = () => {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch { /* not an anchor of this page */ }
    return document.getElementById(name);
  };
  const show = (target) => {
    const chosen = partOf(target) || parts[0];
    for (const part of parts) {
      const shown = whole || part === chosen;
      if (shown) part.removeAttribute("hidden");
      else part.setAttribute("hidden", "until-found");
    }
    for (const link of links)
      if (!whole && link.hash.slice(1) === chosen.id) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    parts.filter(isShown).forEach(drawIn);
    redraw();
    // A tab begins with the page's head, so that the other tabs stay in sight.
    if (target && target === chosen && !whole) window.scrollTo(0, 0);
    else if (target) target.scrollIntoView();
  };
  for (const part of parts) part.addEventListener("beforematch", () => { drawIn(part); });
  if (!whole) {
    const toggle = make("button", { type: "button" }, "All on one page");
    document.querySelector("nav ul").append(make("li", {}, toggle));
    toggle.addEventListener("click", () => {
      whole = !whole;
      toggle.textContent = whole ? "As tabs" : "All on one page";
      show(aim());
    });
  }
  window.addEventListener("hashchange", () => show(aim()));
  show(aim());
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 100); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Paper has all parts, in light colours.
  window.matchMedia("print").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => {
    for (const part of parts) part.removeAttribute("hidden");
    parts.forEach(drawIn);
    redraw();
  });
  window.addEventListener("afterprint", () => show(null));
})();
