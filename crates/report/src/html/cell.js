"use strict";
// Places in a histogram's array; see data.rs.
const [COUNT, MEAN, MEDIAN, MOST, BINS] = [0, 2, 3, 9, 10];

// The bins of a cell: from and to in ns, count.
const binsOf = (cell, perOctave) => {
  const edge = (bin) => 2 ** (bin / perOctave) / 1e3;
  const bins = [];
  let bin = 0;
  for (let i = 0; i < cell[BINS].length; i += 2) {
    bin += cell[BINS][i];
    bins.push([edge(bin), edge(bin + 1), cell[BINS][i + 1]]);
  }
  return bins;
};
// Draws a cell over a chart of all. A cell without a histogram of its own has its median and its slowest sample marked.
const overlay = (figure, cell, perOctave) => {
  const [low, high, left, right, top, bottom, decades] = figure.dataset.axis.split(" ").map(Number);
  figure.querySelectorAll(".cell").forEach((old) => old.remove());
  if (!cell) return;
  const x = (ns) => left + Math.min(Math.max(Math.log(ns / low) / Math.log(high / low), 0), 1) * (right - left);
  const bins = binsOf(cell, perOctave);
  let d = "";
  if (!bins.length) {
    for (const ns of [cell[MEDIAN], cell[MOST]]) if (ns > 0) d += `M${x(ns)} ${top}V${bottom}`;
  } else if (decades > 0) {
    let rest = cell[COUNT];
    d = `M${left} ${top}`;
    for (const [, to, n] of bins) {
      rest -= n;
      const y = rest > 0 ? top - (Math.log10(rest / cell[COUNT]) / decades) * (bottom - top) : bottom;
      d += `H${x(to)}V${Math.min(y, bottom)}`;
    }
  } else {
    const most = bins.reduce((high, bin) => Math.max(high, bin[2]), 0);
    let last = null;
    for (const [from, to, n] of bins) {
      if (last !== from) d += `${last === null ? "" : `V${bottom}`}M${x(from)} ${bottom}`;
      d += `V${bottom - (n / most) * (bottom - top)}H${x(to)}`;
      last = to;
    }
    d += `V${bottom}`;
  }
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("class", "cell");
  path.setAttribute("d", d);
  figure.querySelector("svg").append(path);
};
