// The page: its table, its charts, the feed that it follows, its switches.
import { CHOSEN_AT_FIRST, adopt, at, belowWords, busy, clock, count, draw, errorSum, errorsOf, feed, isIdle, isNumber, isScaled, last, linkWords, make, marked, mb, mostState, own, ownPorts, percent, portOf, rate, readings, secondOf, set, share, stateName, take, tidy, title, unitOf, view } from "./known.js";
import { nice, hovered, Chart, LEAST, layer, drawTraffic } from "./chart.js";
import { paintTopology } from "./topology.js";

// ---- the table of ports ----
const COLUMNS = [
  { head: "Draw", label: "Draw a chart of this port" },
  { head: "Port", left: true, of: title },
  { head: "Errors", title: "Seen in the time that the charts show", of: (p) => errorWords(p), by: (p) => errorTotal.get(p.id) || 0, isBad: (p) => errorTotal.get(p.id) > 0 },
  { head: "Link", left: true, of: (p) => linkWords(p.link, p.possible), by: (p) => (p.link ? p.link.speed_gts * p.link.width : -1), isBad: (p) => p.possible },
  { head: "Rx MB/s", of: (p, r) => marked(r.rx, p, r), by: (p, r) => r.rx },
  { head: "Rx %", of: (p, r) => percent(share(p, r, "rx")), by: (p, r) => share(p, r, "rx"), bar: "rx" },
  { head: "Tx MB/s", of: (p, r) => marked(r.tx, p, r), by: (p, r) => r.tx },
  { head: "Tx %", of: (p, r) => percent(share(p, r, "tx")), by: (p, r) => share(p, r, "tx"), bar: "tx" },
  { head: "State", of: (p, r) => mostState(r.states) },
  { head: "Kernel Rx, Tx", title: "What the kernel counted at the same port, in MB/s: a lower bound", cls: "second", of: (p) => secondWords(p) },
  { head: "Below it", left: true, cls: "below", of: belowWords },
];
const rows = new Map();
const secondWords = (port) => {
  const second = secondOf(port);
  const now = second && portOf(last(), second.id);
  return now && (isNumber(now.rx) || isNumber(now.tx)) ? `${marked(now.rx, second, now)}, ${marked(now.tx, second, now)}` : "-";
};
let errorTotal = new Map();
const errorWords = (port) => {
  const total = errorTotal.get(port.id);
  if (!total) return port.counts_errors ? "0" : "-";
  return (readings().some((r) => (portOf(r, port.id) || {}).at_least) ? ">=" : "") + count(total);
};
const hash = () => { try { return decodeURIComponent(location.hash.replace(/^#port=/, "")); } catch { return ""; } };
const zoomTo = (id) => { location.hash = id === null ? "" : `port=${encodeURIComponent(id)}`; };

const heads = COLUMNS.map((column, place) => {
  const head = make("th", { scope: "col", class: column.left ? "left" : column.cls || "" });
  if (column.title) head.title = column.title;
  if (!column.of) { head.textContent = column.head; return head; }
  const button = make("button", { type: "button" }, column.head);
  button.addEventListener("click", () => {
    // Numbers from the largest down at first, words from A; a third click takes the busiest first again.
    const startsDown = Boolean(column.by);
    if (view.sort !== place) [view.sort, view.down] = [place, startsDown];
    else if (view.down === startsDown) view.down = !startsDown;
    else view.sort = null;
    paint();
  });
  head.append(button);
  return head;
});
at("table").tHead.rows[0].append(...heads);

const rowOf = (port) => {
  let row = rows.get(port.id);
  if (row) return row;
  const cells = COLUMNS.map((c) => make("td", { class: [c.left ? "left" : "", c.cls || "", c.bar ? `share ${c.bar}` : ""].join(" ").trim() }));
  const box = make("input", { type: "checkbox", "aria-label": `${COLUMNS[0].label}: ${title(port)}` });
  box.addEventListener("change", () => { view.touched = true; if (box.checked) view.chosen.add(port.id); else view.chosen.delete(port.id); paint(); });
  const button = make("button", { type: "button", "aria-label": `Zoom on ${title(port)}` }, title(port));
  cells[0].append(box);
  cells[1].append(button);
  row = { tr: make("tr", {}, ...cells), cells, box, button };
  row.tr.addEventListener("click", (event) => { if (event.target !== box && event.target !== cells[0]) zoomTo(port.id); });
  row.tr.addEventListener("keydown", (event) => {
    const next = { ArrowDown: row.tr.nextElementSibling, ArrowUp: row.tr.previousElementSibling }[event.key];
    if (!next) return;
    next.querySelector("td button").focus();
    event.preventDefault();
  });
  rows.set(port.id, row);
  return row;
};

const words = (port) => [title(port), port.source, port.pmu, port.name, port.driver, ...(port.devices || []), linkWords(port.link, port.possible),
  ...(port.below || []).flatMap((b) => [b.bdf, b.name, b.driver, ...(b.devices || [])])].filter(Boolean).join(" ").toLowerCase();
const listed = () => {
  const wanted = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = ownPorts().filter((port) => { const text = words(port); return wanted.every((word) => text.includes(word)); });
  const column = COLUMNS[view.sort];
  if (!column) {
    const means = new Map(found.map((port) => [port, busy(port)]));
    return found.sort((a, b) => means.get(b) - means.get(a));
  }
  const key = column.by || column.of;
  const reading = last();
  const keyed = found.map((port) => [key(port, portOf(reading, port.id) || {}), port]);
  const sign = view.down ? -1 : 1;
  // What is not known comes last, whichever way.
  const known = (k) => typeof k === "string" || isNumber(k);
  keyed.sort(([a], [b]) => (known(a) && known(b)
    ? sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b)
    : Number(known(b)) - Number(known(a))));
  return keyed.map(([, port]) => port);
};

const paintTable = () => {
  const ports = listed();
  const all = ownPorts().length;
  at("table").classList.toggle("two", all < feed.ports.length);
  const reading = last();
  const wanted = ports.map((port) => rowOf(port).tr);
  const body = at("table").tBodies[0];
  if (wanted.length !== body.children.length || wanted.some((tr, i) => tr !== body.children[i])) {
    const focused = document.activeElement;
    body.replaceChildren(...wanted);
    if (focused && body.contains(focused)) focused.focus();
  }
  for (const port of ports) {
    const row = rowOf(port);
    const now = portOf(reading, port.id) || {};
    row.box.checked = view.chosen.has(port.id);
    row.tr.classList.toggle("chosen", port.id === view.zoom);
    row.tr.classList.toggle("idle", isIdle(port));
    COLUMNS.forEach((column, i) => {
      if (!column.of || i === 1) return;
      set(row.cells[i], column.of(port, now));
      if (column.bar) row.cells[i].style.setProperty("--part", String(Math.min(1, Math.max(0, column.by(port, now) / 100 || 0))));
      if (column.isBad) row.cells[i].classList.toggle("bad", !!column.isBad(port));
      if (column.cls === "below") row.cells[i].title = row.cells[i].textContent;
    });
  }
  heads.forEach((head, place) => {
    if (place === view.sort) head.setAttribute("aria-sort", view.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  set(at("shown"), view.filter ? `${ports.length} of ${all} ports` : `${all} port${all === 1 ? "" : "s"}`);
};

// Charts of a list, kept from one drawing to the next.
const charts = (host, height) => {
  const kept = new Map();
  return (keys) => {
    for (const [key, chart] of kept) if (!keys.includes(key)) { chart.figure.remove(); kept.delete(key); }
    return keys.map((key) => {
      if (!kept.has(key)) kept.set(key, new Chart(host, height));
      const chart = kept.get(key);
      host.append(chart.figure);
      return chart;
    });
  };
};
const trafficCharts = charts(at("charts"), 150);
const dieCharts = charts(at("dies"), 190);
let zoomed = null;

const paintZoom = (port) => {
  if (!zoomed) {
    const host = at("zoom-charts");
    zoomed = [new Chart(host, 260), new Chart(host, 130)];
  }
  set(at("zoom-name"), title(port));
  const link = port.link || {};
  const second = secondWords(port);
  const best = !port.possible && !link.is_nominal && link.max_width && (link.max_width !== link.width || link.max_speed_gts !== link.speed_gts)
    ? ` (the port can ${link.max_speed_gts} GT/s x${link.max_width})` : "";
  set(at("zoom-facts"), [port.name, `link ${linkWords(port.link, port.possible)}${best}`, second === "-" ? "" : `the kernel counted Rx, Tx ${second} MB/s`, port.ceiling_bytes_per_s > 0 ? `ceiling ${rate(port.ceiling_bytes_per_s)}` : "",
    port.driver ? `driver ${port.driver}` : "", isNumber(port.node) ? `node ${port.node}` : "", port.error ? `error: ${port.error.text}` : ""].filter(Boolean).join(" · "));
  drawTraffic(zoomed[0], port);

  const names = [...new Set(readings().flatMap((r) => Object.keys((portOf(r, port.id) || {}).states || {})))];
  zoomed[1].figure.hidden = !names.length;
  if (names.length) {
    const now = (portOf(hovered(), port.id) || {}).states || {};
    zoomed[1].begin(`States of the link of ${title(port)}`, 0, 100, [0, 50, 100], (v) => `${v} %`);
    zoomed[1].stack(names.map((name, i) => [layer(i, names.length), (r) => own((portOf(r, port.id) || {}).states, name) * 100]), 1);
    zoomed[1].end();
    zoomed[1].say("Link states", ...names.map((name, i) => [`${stateName(name)} ${percent(own(now, name) * 100)} %`, layer(i, names.length)]));
  }

  const events = readings().filter((r) => errorSum(r, port.id)).reverse();
  at("events").hidden = !events.length;
  at("no-events").hidden = events.length > 0;
  at("events").tBodies[0].replaceChildren(...events.slice(0, 50).map((r) => make("tr", {},
    make("td", { class: "left" }, clock(r.time_ms)), make("td", {}, count(errorSum(r, port.id))), make("td", { class: "left" }, errorsOf(r, port.id)))));
  const below = (port.below || []).map((b) => [b.bdf, ...(b.devices || []), b.name, b.driver ? `(${b.driver})` : ""].filter(Boolean).join(" "));
  at("below").replaceChildren(...(below.length ? below : ["Nothing, or not known."]).map((text) => make("li", {}, text)));
};

const paintDram = () => {
  at("dram").hidden = !feed.channels.length;
  if (!feed.channels.length) return;
  const nodes = [...new Set(feed.channels.map((c) => (isNumber(c.node) ? c.node : null)))].sort((a, b) => a - b);
  const value = (id, way) => (reading) => (own(reading && reading.channels, id) || {})[way];
  const now = hovered();
  const sum = (list, way, reading) => list.reduce((s, c) => s + (value(c.id, way)(reading) || 0), 0);
  dieCharts(nodes.map(String)).forEach((chart, i) => {
    const list = feed.channels.filter((c) => (isNumber(c.node) ? c.node : null) === nodes[i]);
    const most = (way) => readings().reduce((m, r) => Math.max(m, sum(list, way, r)), 0);
    // Each half is as high as its figures need, but high enough to be seen beside the other.
    const ends = [nice(Math.max(most("read"), LEAST)), nice(Math.max(most("write"), LEAST))];
    const [high, low] = [Math.max(ends[0], ends[1] / 5), Math.max(ends[1], ends[0] / 5)];
    const [size, unit] = unitOf(Math.max(high, low));
    const name = nodes[i] === null ? "Node not known" : `Node ${nodes[i]}`;
    chart.begin(`${name}: DRAM reads ${rate(sum(list, "read", now))}, writes ${rate(sum(list, "write", now))}`, -low, high,
      [0, high, -low, high / 2], (v) => `${Number((Math.abs(v) / size).toPrecision(3))} ${unit}`);
    chart.stack(list.map((c, j) => [layer(j, list.length), value(c.id, "read")]), 1);
    chart.stack(list.map((c, j) => [layer(j, list.length), value(c.id, "write")]), -1);
    for (const [y, name] of [[chart.top + 10, "reads"], [chart.bottom - 4, "writes"]]) draw(chart.svg, "text", { x: chart.left + 4, y }, name);
    chart.end();
    const mark = now && list.some((c) => isScaled(own(now.channels, c.id) || {})) ? "~" : "";
    chart.say(name, ...(list.some((c) => c.is_emulated) ? [["EMULATED"]] : []),
      [`read ${mark}${mb(sum(list, "read", now))} MB/s`], [`write ${mark}${mb(sum(list, "write", now))} MB/s`],
      [`${list.length} channel${list.length === 1 ? "" : "s"}`]);
  });
  const colour = new Map();
  for (const node of nodes) {
    const list = feed.channels.filter((c) => (isNumber(c.node) ? c.node : null) === node);
    list.forEach((c, j) => colour.set(c.id, layer(j, list.length)));
  }
  at("channels").tBodies[0].replaceChildren(...feed.channels.map((c) => {
    const box = make("i", { class: "box" });
    box.style.background = colour.get(c.id);
    return make("tr", {}, make("td", { class: "left" }, make("span", { class: "legend" }, box), ` ${c.pmu || c.id}${isNumber(c.cpu) ? ` CPU ${c.cpu}` : ""}`), make("td", {}, isNumber(c.node) ? String(c.node) : "-"),
      ...["read", "write"].map((way) => make("td", {}, marked(value(c.id, way)(now), {}, own(now && now.channels, c.id) || {}))));
  }));
};

const aer = (errors) => (errors ? Object.entries(errors).flatMap(([kind, counts]) =>
  Object.entries(counts).map(([name, n]) => `${kind} ${name} ${count(n)}`)).join(", ") || "0" : "-");
let devicesShown = null;
const paintDevices = () => {
  if (devicesShown === feed.devices) return;
  devicesShown = feed.devices;
  at("devices").hidden = !feed.devices.length;
  at("devices-name").textContent = `PCIe devices: ${feed.devices.length}`;
  if (!feed.ports.length) at("devices").open = true;
  const left = { class: "left" };
  at("devices").querySelector("tbody").replaceChildren(...feed.devices.map((d) => make("tr", {},
    make("td", left, d.bdf), make("td", left, d.port || "-"),
    make("td", d.is_downtrained || d.watched?.lost_bytes ? { class: "left bad" } : left, linkWords(d.link)
      + (d.is_downtrained ? ` (can ${d.link.max_speed_gts} GT/s x${d.link.max_width})` : "")
      + (d.watched?.lost_bytes ? `, ${(d.watched.lost_bytes / 1e9).toFixed(2)} GB lost in 7 days` : "")
      + (d.watched?.changed_s ? `, changed ${new Date(d.watched.changed_s * 1e3).toLocaleString()}: ${d.watched.last}` : "")),
    make("td", left, aer(d.errors)), make("td", left, d.driver || "-"), make("td", left, [...(d.devices || []), `${d.class}: ${d.name}`].join(" ")))));
  at("warnings").replaceChildren(...feed.warnings.map((w) => make("li", {}, make("code", {}, w.code), ` ${w.text}`, w.hint ? ` What to do: ${w.hint}` : "")));
  at("warnings").hidden = !feed.warnings.length;
};

const paint = () => {
  if (document.hidden || !feed.adopted) return;
  set(at("host"), feed.host);
  at("synthetic").hidden = !feed.isSynthetic;
  at("emulated").hidden = ![...feed.ports, ...feed.channels].some((one) => one.is_emulated);
  at("none").hidden = feed.ports.length + feed.channels.length > 0 || feed.status.state === "starting";
  if (feed.status.state === "none") {
    if (feed.status.text) set(at("none-text"), feed.status.text);
    if (feed.status.hint) set(at("none-hint"), feed.status.hint);
  }
  paintDevices();
  at("ports").hidden = at("traffic").hidden = !feed.ports.length;
  errorTotal = new Map(feed.ports.map((p) => [p.id, readings().reduce((s, r) => s + errorSum(r, p.id), 0)]));
  // Until the user chooses: the first busy ones, which keep their charts.
  view.chosen ||= new Set();
  if (!view.touched)
    for (const p of ownPorts().filter((p) => busy(p) > 0).sort((a, b) => busy(b) - busy(a)))
      if (view.chosen.size < CHOSEN_AT_FIRST) view.chosen.add(p.id);
  for (const id of [...rows.keys()]) if (!feed.ports.some((p) => p.id === id)) rows.delete(id);
  const port = feed.ports.find((p) => p.id === view.zoom);
  at("zoom").hidden = !port;
  if (feed.ports.length) paintTable();
  if (port) paintZoom(port);
  if (feed.ports.length) {
    const chosen = [...view.chosen].map((id) => feed.ports.find((p) => p.id === id)).filter(Boolean);
    at("no-traffic").hidden = chosen.length > 0;
    trafficCharts(chosen.map((p) => p.id)).forEach((chart, i) => drawTraffic(chart, chosen[i]));
  }
  paintDram();
  paintTopology();
};
let waiting = false;
const later = view.redraw = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; paint(); });
};

// ---- the feed ----
let source = null;
const tick = () => performance.now();
let heard = tick();
// { since, why, retry: when, in tick() }
let lost = null;
let delay = 1;

let asked = tick();

const fetchState = async () => {
  asked = tick();
  const answer = await fetch("api/state", { cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) throw new Error("the server wants a login");
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  const state = await answer.json();
  // By the server's clock, of which the page knows whole seconds.
  const newest = state.readings.at(-1), age = newest && Date.parse(answer.headers.get("date")) - newest.time_ms;
  state.age = age > 0 && state.status.state !== "replaying" ? age : 0;
  return state;
};
const refresh = async () => {
  const mine = source;
  try {
    const state = await fetchState();
    if (source === mine && !lost) adopt(state);
    if (!view.frozen) later();
  } catch { /* the feed itself says when it is lost */ }
};
// At most once a second; what changed in the meantime is in the next state.
let due = 0;
const soon = () => {
  due ||= setTimeout(() => { due = 0; refresh(); }, 1e3 + asked - tick());
};

const status = () => {
  const silent = (tick() - heard) / 1e3;
  const hasEnded = feed.status.state === "ended";
  const isStale = !lost && !hasEnded && feed.adopted && feed.readings.length > 0 && silent * 1e3 > Math.max(3 * feed.interval, 3000);
  const [cls, word] = lost ? ["lost", "feed lost"] : !feed.adopted ? ["", "connecting"] : view.frozen ? ["paused", "paused"]
    : feed.status.state === "none" ? ["", "no counters"] : hasEnded ? ["", "replay ended"] : isStale ? ["stale", "stale"]
      : feed.readings.length ? ["live", feed.status.state === "replaying" ? "replay" : "live"] : ["", "waiting for a reading"];
  at("state").className = `chip ${cls}`;
  set(at("state"), word);
  const shown = last();
  set(at("when"), (shown ? `reading of ${clock(shown.time_ms)}` : "") + (isStale ? `, none since for ${Math.round(silent)} s` : ""));
  document.body.classList.toggle("stale", !!(lost || isStale));
  at("lost").hidden = !lost;
  if (lost) {
    const wait = Math.max(0, Math.ceil((lost.retry - tick()) / 1e3));
    set(at("lost"), `The feed is lost since ${clock(lost.since)}: ${lost.why}. What is shown is old. ${wait ? `Next try in ${wait} s.` : "Trying again."}`);
  }
  // A silent feed may have ended, and counters, devices and warnings come and go.
  if (!lost && feed.adopted && tick() - asked > (isStale ? 5e3 : 60e3)) refresh();
  const name = `${lost ? "(lost) " : ""}pciescope${feed.host ? ` ${feed.host}` : ""}`;
  document.title = tidy(name);
};
const lose = (why) => {
  source?.close();
  source = null;
  lost = { since: lost?.since ?? Date.now(), why, retry: tick() + delay * 1e3 };
  setTimeout(connect, delay * 1e3);
  delay = Math.min(delay * 2, 10);
  status();
};
const connect = () => {
  // The feed first and the state after it, so that no reading is missed between them.
  const mine = (source = new EventSource("api/events"));
  let early = [];
  const receive = (event) => {
    heard = tick();
    let reading;
    try { reading = JSON.parse(event.data); } catch { return; }
    if (early) early.push(reading);
    else {
      take(reading);
      status();
      if (!view.frozen) later();
    }
  };
  mine.addEventListener("reading", receive);
  mine.addEventListener("changed", () => early || soon());
  mine.onopen = async () => {
    try {
      const state = await fetchState();
      if (source !== mine) return;
      adopt(state);
      early.forEach(take);
      heard = tick() - (early.length ? 0 : state.age);
      early = null;
      feed.adopted = true;
      lost = null;
      delay = 1;
      status();
      paint();
    } catch (error) {
      if (source === mine) lose(error instanceof TypeError ? "the server does not answer" : error.message);
    }
  };
  mine.onerror = () => { if (source === mine) lose("the server does not answer"); };
};

// ---- switches ----
const stored = (name, value) => {
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch { /* a browser may keep nothing */ }
  return null;
};
const theme = () => {
  const wanted = at("theme").value;
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
};
const before = stored("theme");
if (before === "light" || before === "dark") at("theme").value = before;
theme();
at("theme").addEventListener("change", () => { stored("theme", at("theme").value); theme(); });
at("scale").addEventListener("change", () => { view.scale = at("scale").value; paint(); });
at("filter").addEventListener("input", () => { view.filter = at("filter").value; paint(); });
at("pause").addEventListener("click", () => {
  view.frozen = view.frozen ? null : feed.readings.slice();
  at("pause").setAttribute("aria-pressed", String(!!view.frozen));
  set(at("pause"), view.frozen ? "Go on" : "Pause");
  status();
  paint();
});
at("back").addEventListener("click", () => zoomTo(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && view.zoom !== null && event.target !== at("filter")) zoomTo(null);
});
const follow = () => {
  const wanted = location.hash.startsWith("#port=") ? hash() : null;
  const left = view.zoom;
  view.zoom = wanted;
  paint();
  if (wanted !== null && !at("zoom").hidden) at("zoom-name").focus();
  else if (left !== null && rows.has(left)) rows.get(left).button.focus();
};
window.addEventListener("hashchange", follow);
document.addEventListener("visibilitychange", paint);
window.addEventListener("resize", later);
if (location.hash.startsWith("#port=")) view.zoom = hash();
setInterval(status, 1000);
connect();
