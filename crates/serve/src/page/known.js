// What is known from the feed, and how it is written. All text that comes from the feed is set as text.

export const NS = "http://www.w3.org/2000/svg";
export const CHOSEN_AT_FIRST = 4;
export const at = (id) => document.getElementById(id);
export const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);
export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Marks that control a terminal or reorder the words around them, and more text than one reads.
export const tidy = (text) => {
  const clean = text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  return clean.length > 600 ? `${clean.slice(0, 600)}…` : clean;
};
export const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, tidy(String(value)));
  element.append(...children.map((child) => (typeof child === "string" ? tidy(child) : child)));
  return element;
};
export const draw = (parent, tag, attributes, text) => {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = tidy(text);
  parent.append(element);
  return element;
};
export const set = (element, text) => {
  const clean = tidy(text);
  if (element.textContent !== clean) element.textContent = clean;
};

// Figures as the tables of the tool write them: MB is 10^6 bytes.
export const mb = (value) => (isNumber(value) ? (value / 1e6).toFixed(2) : "-");
// Estimated: counters took turns.
export const isScaled = (reading) => isNumber(reading.running) && reading.running < 1;
// Before a figure: >= where the kernel counted, a lower bound; ~ where it is estimated.
export const sign = (value, port, reading) => (!isNumber(value) ? "" : port.source ? ">=" : isScaled(reading) ? "~" : "");
export const marked = (value, port, reading) => sign(value, port, reading) + mb(value);
export const percent = (value) => (isNumber(value) ? value.toFixed(1) : "-");
export const count = (n) => n.toLocaleString("en-US");
const UNITS = [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]];
export const unitOf = (most) => UNITS.find(([size]) => most >= size) || UNITS[3];
export const rate = (value) => {
  if (!isNumber(value)) return "-";
  const [size, name] = unitOf(value);
  return `${Number((value / size).toPrecision(4))} ${name}`;
};
const two = (n) => String(n).padStart(2, "0");
// A small time is one since the beginning of a run, not one of a calendar.
export const clock = (ms) => {
  const date = new Date(ms);
  const parts = ms < 1e11
    ? [Math.floor(ms / 3.6e6), Math.floor(ms / 6e4) % 60, Math.floor(ms / 1e3) % 60]
    : [date.getHours(), date.getMinutes(), date.getSeconds()];
  return parts.map(two).join(":");
};
export const stateName = (key) => key.replace(/_share$/, "").replace(/_(?=\d)/g, ".").replace(/_/g, " ").replace(/\bl(?=\d)/g, "L");

// ---- what is known ----
export const feed = { host: "", interval: 1000, ports: [], channels: [], devices: [], paths: {}, warnings: [], status: {}, readings: [] };
export const view = { sort: null, down: false, filter: "", chosen: null, touched: false, zoom: null, scale: "auto", frozen: null, hover: null, redraw: null };
// So much is kept and drawn, in ms: more where readings come seldom.
export const kept = () => Math.max(300e3, 60 * feed.interval);
export const readings = () => view.frozen || feed.readings;
export const last = () => readings()[readings().length - 1];
export const portOf = (reading, id) => own(reading && reading.ports, id);
// The counters that saw the errors of a reading: several see the same error.
export const errorsOf = (reading, id) =>
  Object.entries((portOf(reading, id) || {}).errors || {}).filter(([, n]) => isNumber(n) && n > 0).map(([name, n]) => `${name} ${count(n)}`).join(", ");
export const errorSum = (reading, id) => (portOf(reading, id) || {}).error_count || 0;
export const share = (port, reading, way) => {
  const part = reading[`${way}_share`];
  if (isNumber(part)) return part * 100;
  return isNumber(reading[way]) && port.ceiling_bytes_per_s > 0 ? (reading[way] / port.ceiling_bytes_per_s) * 100 : NaN;
};
export const both = (reading) => (reading.rx || 0) + (reading.tx || 0);
// The mean over the time that the charts show: it moves slowly, so that rows keep their places. 0 where it was always idle.
export const busy = (port) => {
  let sum = 0, time = 0;
  for (const r of readings()) {
    const one = portOf(r, port.id);
    if (!one) continue;
    if (!one.is_idle) sum += both(one) * (r.seconds || 1);
    time += r.seconds || 1;
  }
  return sum / (time || 1);
};
export const isIdle = (port) => !!(portOf(last(), port.id) || {}).is_idle;
export const title = (port) => port.bdf || port.pmu || port.id;
// Where hardware counts a port, the kernel's account of it is a second figure of the same port.
export const ownPorts = () => feed.ports.filter((p) => !p.is_second);
export const secondOf = (port) => feed.ports.find((p) => p.is_second && p.bdf === port.bdf);
const of = (now, best) => (best && best > now ? `${now} of ${best}` : `${now}`);
export const linkWords = (link, best) => {
  if (!link) return "-";
  if (!link.width) return "no link";
  if (link.is_nominal) return "nominal";
  return `${of(link.speed_gts, best?.speed_gts)} GT/s x${of(link.width, best?.width)}`;
};
// A function by what programs call it, else by its driver or name.
export const called = (one) => (one.devices || []).join(", ") || one.driver || one.name;
export const belowWords = (port) => (port.error ? `error: ${port.error.code}`
  : (port.below || []).map((b) => `${b.bdf} ${called(b)}`).join(", ") || (port.devices || []).join(", ") || "-");
export const mostState = (states) => {
  const found = Object.entries(states || {}).filter(([, v]) => isNumber(v)).sort((a, b) => b[1] - a[1])[0];
  return found ? `${stateName(found[0])} ${percent(found[1] * 100)} %` : "-";
};

const keep = () => {
  const list = feed.readings;
  const newest = list.length ? list[list.length - 1].time_ms : 0;
  let old = 0;
  while (old < list.length && list[old].time_ms < newest - kept()) old++;
  if (old) feed.readings = list.slice(old);
};
export const take = (reading) => {
  if (!reading || !isNumber(reading.time_ms)) return;
  const newest = feed.readings.length ? feed.readings[feed.readings.length - 1].time_ms : -Infinity;
  if (reading.time_ms === newest) return;
  // Time that goes back: a replay begins again, or the server's clock was set.
  if (reading.time_ms < newest) feed.readings = [];
  feed.readings.push(reading);
  keep();
};
export const adopt = (state) => {
  feed.isSynthetic = !!state.is_synthetic;
  feed.host = [state.host, state.label].filter(Boolean).join(" · ");
  feed.interval = Math.max(50, (state.interval_s || 1) * 1e3);
  feed.status = state.status || {};
  feed.paths = state.paths || {};
  for (const name of ["ports", "channels", "devices", "warnings"]) feed[name] = state[name] || [];
  const theirs = state.readings || [];
  const first = theirs.length ? theirs[0].time_ms : Infinity;
  const newest = feed.readings.length ? feed.readings[feed.readings.length - 1].time_ms : -Infinity;
  // A server that was started again has no past; what was seen before stays where time went on.
  const goesOn = !theirs.length || theirs[theirs.length - 1].time_ms >= newest;
  feed.readings = (goesOn ? feed.readings.filter((r) => r.time_ms < first) : []).concat(theirs);
  keep();
};
