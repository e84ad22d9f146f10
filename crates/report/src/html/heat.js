// Draws heat maps on canvases. All text from records is set as text.
const heatMap = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const FIGURES = [
    ["Min", 1], ["Mean", 2], ["Median", 3], ["P90", 4], ["P95", 5], ["P99", 6], ["P99.9", 7], ["P99.99", 8], ["Max", 9],
  ];
  const PLACES = ["node", "package", "L3 of CPU", "core", "thread"];

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const time = (ns, digits = 4) => {
    const [per, unit] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "us"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
    return `${Number((ns / per).toPrecision(digits))} ${unit}`;
  };
  const colour = (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (data.palette.length - 1);
    const step = Math.min(Math.floor(place), data.palette.length - 2);
    return data.palette[step].map((a, i) => Math.round(a + (data.palette[step + 1][i] - a) * (place - step)));
  };
  const css = (rgb) => `rgb(${rgb.join(",")})`;
  const ink = (rgb) => (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140 ? "#000" : "#fff");

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

  // Fills a map of the page; returns what draws it again.
  return (host) => {
    const section = data.sections[Number(host.dataset.section)];
    const map = section.maps[Number(host.dataset.map)];
    let columns = map.cpus.length;
    const [total, rows] = [columns, map.targets.length];
    const known = map.cells.filter(Boolean);
    // `order` holds the columns shown, from `from` of `sorted` on.
    const state = { statistic: MEDIAN, sorted: [], order: [], from: 0, pinned: null, hovered: null, drag: null };
    const node = document.getElementById("heat").content.cloneNode(true);
    const find = (selector) => node.querySelector(selector);
    const [statistic, order, scale] = node.querySelectorAll("select");
    const [all, save] = node.querySelectorAll("button");
    const [legend, canvas, tip, keys, said, figures] =
      [".legend", "canvas", ".tip", ".keys", ".said", ".figures"].map(find);
    // A statistic is offered where every cell's samples support it.
    for (const option of [...statistic.options])
      if (!known.every((cell) => cell[Number(option.value)] > 0)) option.remove();
    if (columns <= 2) order.parentElement.remove();
    if (mapsOf(section.scale).length < 2) scale.parentElement.remove();
    // Where the others would leave one colour of it, a map begins with a scale of its own.
    const spans = [endsOf([map], MEDIAN), sharedEnds(section.scale, MEDIAN)].map(([low, high]) => Math.log(Math.max(high / low, data.leastSpan)));
    if (spans[1] > 4 * spans[0]) scale.value = "own";
    all.textContent = `All ${total} CPUs`;
    if (columns * rows === 1) keys.textContent = "";
    if (map.cores.length) keys.append(" A line above CPU numbers joins the threads of a core.");
    if (total > 16) keys.append(" Drag across for fewer CPUs, double click for all.");
    if (known.every((cell) => !cell[BINS].length))
      keys.append(" So many cells come without their histograms, and with four digits; the records have all.");
    else if (map.perOctave < data.perOctave)
      keys.append(` Cells' histograms are kept in ${map.perOctave} bins per octave here; their figures are not affected.`);
    save.addEventListener("click", () => {
      const head = "cpu,target,count,min_ns,mean_ns,p50_ns,p90_ns,p95_ns,p99_ns,p999_ns,p9999_ns,max_ns";
      // A percentile that the samples do not support is 0 here and an empty field there.
      const field = (value, place) => (place > MEAN && place < MOST && value === 0 ? "" : value);
      const line = (cell, i) => cell
        && [map.cpus[i % total], JSON.stringify(map.targets[Math.floor(i / total)]), ...cell.slice(0, BINS).map(field)].join(",");
      const text = [head, ...map.cells.map(line).filter(Boolean), ""].join("\n");
      const href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      make("a", { download: `${section.test}-${map.name}.csv`, href }).click();
      setTimeout(() => URL.revokeObjectURL(href), 1000);
    });
    host.querySelector(".heat").append(node);

    const cellAt = ([column, row]) => map.cells[row * total + state.order[column]] || null;
    const placesOf = (column, most) => (section.places[map.cpus[state.order[column]]] || []).slice(0, most)
      .map((place, i) => (place === null ? "" : `${PLACES[i]} ${place}`)).filter(Boolean);
    let left, size;
    const isByPlace = () => order.value === "topology";
    // The part of a range of sorted columns that is shown; null where that is nothing.
    const clipped = ([from, to]) => {
      const part = [Math.max(from - state.from, 0), Math.min(to - state.from, columns)];
      return part[0] < part[1] ? part : null;
    };
    const zoom = (from, to) => {
      const kept = state.pinned && state.order[state.pinned[0]];
      state.from = from;
      state.order = state.sorted.slice(from, to);
      columns = state.order.length;
      const place = kept === null ? -1 : state.order.indexOf(kept);
      state.pinned = place < 0 ? null : [place, state.pinned[1]];
      state.hovered = null;
      all.hidden = columns === total;
    };

    const paint = () => {
      // Maps of the same kind of test share a scale, which spans a factor of two at least: noise is not a pattern.
      const ends = scale.value === "own" ? endsOf([map], state.statistic) : sharedEnds(section.scale, state.statistic);
      const [low, high] = [ends[0], Math.max(ends[1], ends[0] * data.leastSpan)];
      const shareOf = (v) => Math.log(v / low) / Math.log(high / low);
      const strips = isByPlace() ? map.strips : [];
      const context = canvas.getContext("2d");
      const font = "12px ui-monospace, 'DejaVu Sans Mono', monospace";
      context.font = font;
      left = Math.ceil(Math.max(...[...map.targets, "CPU"].map((t) => context.measureText(t).width))) + 10;
      const room = canvas.parentElement.clientWidth - left - 2;
      const width = Math.min(Math.max(room / columns, 1), 92);
      const height = Math.min(Math.max(560 / rows, 5), 28);
      size = { width, height };
      const extent = [left + Math.ceil(width * columns) + 2, Math.ceil(height * rows) + [34, 50, 74][strips.length]];
      const ratio = window.devicePixelRatio || 1;
      [canvas.width, canvas.height] = extent.map((length) => length * ratio);
      [canvas.style.width, canvas.style.height] = extent.map((length) => `${length}px`);
      context.scale(ratio, ratio);
      context.font = font;
      context.textBaseline = "middle";
      const none = style("--none");
      const gap = width >= 8 && height >= 8 ? 1 : 0;
      // Whole device pixels, so that a thousand narrow cells neither overlap nor leave seams.
      const snap = (v) => Math.round(v * ratio) / ratio;
      const word = (text, x, y, fill, align) => {
        [context.fillStyle, context.textAlign] = [fill, align];
        context.fillText(text, x, y);
      };
      for (let row = 0; row < rows; row++)
        for (let column = 0; column < columns; column++) {
          const cell = cellAt([column, row]);
          const rgb = cell && colour(shareOf(cell[state.statistic]));
          context.fillStyle = rgb ? css(rgb) : none;
          const [x0, x1] = [left + column * width, left + (column + 1) * width - gap];
          const wide = Math.max(snap(x1) - snap(x0), 1 / ratio);
          context.fillRect(snap(x0), snap(row * height), wide, snap((row + 1) * height - gap) - snap(row * height));
          if (cell && width >= 60 && height >= 15)
            word(time(cell[state.statistic], 3), x0 + (width - gap) / 2, (row + 0.5) * height, ink(rgb), "center");
        }
      const skip = Math.ceil(13 / height);
      for (let row = 0; row < rows; row += skip)
        word(map.targets[row], left - 6, Math.max((row + 0.5) * height, 7), style("--ink"), "right");
      const bottom = rows * height;
      // Strips and words say to which node and package neighbours belong, where there are several.
      strips.forEach((strip, level) => strip.forEach(([from, to, words], n) => {
        const part = clipped([from, to]);
        if (!part) return;
        const [x0, x1] = part.map((column) => snap(left + column * width));
        context.fillStyle = n % 2 ? style("--all") : style("--line");
        context.fillRect(x0, bottom + (level ? 47 : 3), Math.max(x1 - x0 - 1, 1 / ratio), 5);
        const fitting = words.find((one) => context.measureText(one).width + 6 <= x1 - x0);
        if (fitting) word(fitting, (x0 + x1) / 2, bottom + (level ? 62 : 37), style("--soft"), "center");
      }));
      context.fillStyle = style("--soft");
      for (const part of isByPlace() && width >= 4 ? map.cores.map(clipped) : [])
        if (part) context.fillRect(left + (part[0] + 0.3) * width, bottom + 10, (part[1] - part[0] - 0.6) * width, 1.5);
      const widest = context.measureText(String(Math.max(...map.cpus))).width + 10;
      const every = Math.max(1, Math.ceil(widest / width));
      for (let column = 0; column < columns; column += every) {
        const x = Math.max(left + (column + 0.5) * width, left + 4);
        if (x + widest / 2 <= extent[0] + 6)
          word(String(map.cpus[state.order[column]]), x, bottom + 19, style("--ink"), "center");
      }
      word("CPU", left - 6, bottom + 19, style("--soft"), "right");
      const box = (column, row, wide, high, lines) => lines.forEach(([line, stroke]) => {
        [context.lineWidth, context.strokeStyle] = [line, style(stroke)];
        context.strokeRect(left + column * width - 1, row * height - 1, wide + 1, high + 1);
      });
      if (state.pinned) box(...state.pinned, Math.max(width, 4), Math.max(height, 4), [[3, "--card"], [1.6, "--accent"]]);
      if (state.drag && state.hovered) {
        const [a, b] = [state.drag[0], state.hovered[0]].sort((one, other) => one - other);
        box(a, 0, (b + 1 - a) * width, bottom, [[1, "--ink"]]);
      }
      const gradient = `background:linear-gradient(90deg,${data.palette.map(css).join(",")})`;
      legend.replaceChildren(time(low, 3), make("i", { style: gradient }), time(high, 3));
      const words = `Heat map of ${columns} CPUs by ${rows} targets, ${time(low)} to ${time(high)}. Arrow keys move.`;
      canvas.setAttribute("aria-label", words);
    };

    // What is said of the cell below the pointer, else of the chosen one, else of all.
    const detail = () => {
      const at = state.hovered || state.pinned;
      const cell = at && cellAt(at);
      // Hops are not mixed: behind a cell stands its own hop, and without one the device at the end.
      const isPath = map.rows.length > 1;
      const shown = cell || (isPath ? map.rows[at ? at[1] : rows - 1] : map.all);
      const cpus = `All ${total} CPU${total > 1 ? "s" : ""}`;
      said.textContent = isPath ? `${cpus}, ${map.targets[rows - 1]}, the device itself; the charts have each hop`
        : `${cpus} and ${rows} target${rows > 1 ? "s" : ""} together`;
      if (at) {
        const places = placesOf(at[0]).join(", ");
        said.textContent = `CPU ${map.cpus[state.order[at[0]]]}, ${map.targets[at[1]]}`
          + (places && ` (${places})`) + (cell ? "" : ": not measured");
      }
      const figure = (name, value) => make("li", {}, make("span", {}, `${name} `), make("b", {}, value));
      figures.replaceChildren(figure("Samples", shown[COUNT].toLocaleString("en-US")), ...FIGURES
        .filter(([name, place]) => shown[place] > 0 || name === "Min").map(([name, place]) => figure(name, time(shown[place]))));
      for (const chart of host.querySelectorAll("[data-axis]")) overlay(chart, cell, map.perOctave);
    };

    let waiting = false;
    const refresh = (isPainted) => {
      if (isPainted) paint();
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
    canvas.addEventListener("pointermove", (event) => {
      const at = place(event);
      state.hovered = at;
      tip.hidden = !at;
      if (at) {
        const cell = cellAt(at);
        const groups = map.strips.length ? placesOf(at[0], 2).reverse().join(", ") : "";
        tip.textContent = `CPU ${map.cpus[state.order[at[0]]]}${groups && ` (${groups})`}, ${map.targets[at[1]]}: `
          + (cell ? time(cell[state.statistic]) : "not measured");
        const box = canvas.getBoundingClientRect();
        const x = Math.min(event.clientX - box.left + 14, canvas.clientWidth - tip.offsetWidth - 4);
        [tip.style.left, tip.style.top] = [`${Math.max(0, x)}px`, `${event.clientY - box.top + 16}px`];
      }
      refresh(Boolean(state.drag && at));
    });
    canvas.addEventListener("pointerleave", () => { state.hovered = state.drag = null; tip.hidden = true; refresh(false); });
    // A drag over several columns shows only these; a click chooses a cell.
    let dragged = false;
    canvas.addEventListener("pointerdown", (event) => { state.drag = place(event); dragged = false; });
    canvas.addEventListener("pointerup", (event) => {
      const [begin, end] = [state.drag, place(event)];
      state.drag = null;
      if (!begin || !end || Math.abs(begin[0] - end[0]) < 2) return;
      dragged = true;
      zoom(state.from + Math.min(begin[0], end[0]), state.from + Math.max(begin[0], end[0]) + 1);
      tip.hidden = true;
      refresh(true);
    });
    const widen = () => { zoom(0, total); refresh(true); };
    all.addEventListener("click", widen);
    canvas.addEventListener("dblclick", widen);
    canvas.addEventListener("click", (event) => {
      if (dragged) return;
      const at = place(event);
      state.pinned = at && String(at) === String(state.pinned) ? null : at;
      refresh(true);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const [column, row] = state.pinned || [0, 0];
      const within = (value, most) => Math.min(Math.max(value, 0), most - 1);
      if (step && state.pinned) state.pinned = [within(column + step[0], columns), within(row + step[1], rows)];
      else if (step) state.pinned = [0, 0];
      else if (event.key === "Home") state.pinned = [0, row];
      else if (event.key === "End") state.pinned = [columns - 1, row];
      else if (event.key === "Escape") state.pinned = null;
      else return;
      event.preventDefault();
      state.hovered = null;
      refresh(true);
    });
    const sort = () => {
      const mean = (i) => {
        let [sum, n] = [0, 0];
        for (let cell = i; cell < map.cells.length; cell += total) {
          const one = map.cells[cell];
          if (one) { sum += one[MEAN] * one[COUNT]; n += one[COUNT]; }
        }
        return n ? sum / n : Infinity;
      };
      state.sorted = isByPlace() ? map.order : map.cpus.map((_, i) => i);
      if (order.value === "speed") {
        const means = state.sorted.map(mean);
        state.sorted.sort((a, b) => means[a] - means[b]);
      }
      zoom(0, total);
    };
    scale.addEventListener("change", () => refresh(true));
    statistic.addEventListener("change", () => { state.statistic = Number(statistic.value); refresh(true); });
    order.addEventListener("change", () => { sort(); refresh(true); });
    if (map.strips.length || map.cores.length) order.value = "topology";
    state.statistic = Number(statistic.value);
    sort();
    paint();
    detail();
    return () => { paint(); detail(); };
  };
})();
