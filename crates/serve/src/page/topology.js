// The machine as a picture: root ports, switches, devices, and on each link its speed, its width and the traffic now.
import { NS, at, busy, called, draw, feed, isNumber, last, linkWords, own, ownPorts, portOf, rate, share, sign, title } from "./known.js";

const ROW = 42;
const MOST = 64;
const EDGE = 176;

// Functions by address: what they are, their link, and what hangs below them.
const gather = () => {
  const nodes = new Map();
  const node = (id) => nodes.get(id) || nodes.set(id, { id, words: "", below: new Set(), parent: null }).get(id);
  const join = (above, id) => { if (above !== id && !node(id).parent) { node(id).parent = above; node(above).below.add(id); } };
  for (const port of ownPorts()) {
    const id = port.bdf || port.id;
    Object.assign(node(id), { name: title(port), words: called(port), link: port.link, port });
  }
  for (const d of feed.devices) {
    Object.assign(node(d.bdf), { words: called(d), link: d.link });
    [...(own(feed.paths, d.bdf) || (d.port ? [d.port] : [])), d.bdf].reduce((above, id) => { join(above, id); return id; });
  }
  for (const port of feed.ports) for (const b of port.below || []) {
    join(port.bdf || port.id, b.bdf);
    node(b.bdf).words ||= called(b);
  }
  return nodes;
};

const fitting = (text, room) => (text.length > room ? `${text.slice(0, Math.max(1, room - 1))}\u2026` : text);

let order = null;
export const paintTopology = () => {
  const nodes = gather();
  const roots = [...nodes.values()].filter((n) => !n.parent && (n.below.size || (n.port && busy(n.port) > 0)));
  at("topology").hidden = !roots.some((n) => n.below.size);
  if (at("topology").hidden) return;
  // The busiest first, as they were when the machine last changed: a picture that jumps cannot be read.
  const key = roots.map((n) => n.id).join();
  if (!order || order.key !== key) order = { key, rank: new Map(roots.map((n) => [n.id, n.port ? busy(n.port) : 0])) };
  roots.sort((a, b) => order.rank.get(b.id) - order.rank.get(a.id));
  const host = at("tree");
  const width = host.clientWidth || 700;
  const depthOf = (n, deep = 0) => (deep > 16 ? deep : Math.max(deep, ...[...n.below].map((id) => depthOf(nodes.get(id), deep + 1))));
  const deepest = Math.max(...roots.map((n) => depthOf(n)));
  const column = width / (deepest + 1);
  const indented = column < EDGE + 130;
  const x = (deep) => deep * (indented ? 14 : column);
  const wide = (deep) => (indented ? width - EDGE - x(deep) : Math.min(column - EDGE, 300));
  const svg = document.createElementNS(NS, "svg");
  let row = 0;
  const placeOne = (n, deep, above) => {
    if (row >= MOST || deep > 16) return;
    const y = row * ROW + 2;
    const middle = y + ROW / 2 - 4;
    if (above) {
      const now = above.n.port && deep === 1 ? portOf(last(), above.n.port.id) || {} : null;
      const isBusy = now && now.is_idle === false;
      const part = isBusy ? Math.max(...["rx", "tx"].map((way) => share(above.n.port, now, way)).filter(isNumber), 0) / 100 : 0;
      const [from, to] = [above.y + ROW / 2 - 4, x(deep)];
      const begin = x(deep - 1) + wide(deep - 1);
      const d = indented ? `M${to - 7} ${above.y + ROW - 8}V${middle}H${to}`
        : y === above.y ? `M${begin} ${middle}H${to}` : `M${begin + 8} ${from}V${middle}H${to}`;
      draw(svg, "path", { class: isBusy ? "edge busy" : "edge", d, "stroke-width": isBusy ? 1.5 + 5 * Math.min(part, 1) : 1 });
      const centre = indented ? width - EDGE / 2 : to - EDGE / 2 + 4;
      const text = (dy, words, cls) => draw(svg, "text", { x: centre, y: middle + dy, "text-anchor": "middle", class: cls }, words);
      const link = n.link || above.n.link;
      const best = deep === 1 && above.n.port ? above.n.port.possible : null;
      if (link) text(-6, linkWords(link, best), best ? "bad" : "");
      // The figures of a link stand at the first function behind it.
      if (isBusy && above.first) text(14, [["Rx", "rx"], ["Tx", "tx"]].map(([name, way]) => `${name} ${sign(now[way], above.n.port, now)}${rate(isNumber(now[way]) ? Number(now[way].toPrecision(3)) : null)}`).join(", "), "strong");
      above.first = false;
    }
    draw(svg, "rect", { class: "box", x: x(deep), y, width: wide(deep), height: ROW - 8, rx: 4 });
    draw(svg, "text", { class: "strong", x: x(deep) + 8, y: y + 14 }, n.name || n.id);
    draw(svg, "text", { x: x(deep) + 8, y: y + 28 }, fitting(n.words || "", Math.floor((wide(deep) - 12) / 6)));
    if (indented || !n.below.size) row++;
    const mine = { n, y, first: true };
    for (const id of [...n.below].sort()) placeOne(nodes.get(id), deep + 1, mine);
  };
  for (const n of roots) placeOne(n, 0, null);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Root ports, switches and devices with their links");
  svg.setAttribute("viewBox", `0 0 ${width} ${row * ROW}`);
  svg.setAttribute("height", row * ROW);
  host.replaceChildren(svg);
};
