"use strict";
// Tables: a click on a head sorts the rows, and each table can be had as CSV.
(() => {
  const units = { n: 1e-9, "µ": 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  const number = (text) => {
    const found = text.replace(/,/g, "").match(/^[−-]?[\d.]+(?:\s*([nµmkMGT])(?=[a-zA-Z]*$))?/);
    return found ? parseFloat(found[0].replace("−", "-")) * (units[found[1]] ?? 1) : undefined;
  };
  const words = (row) => [...row.cells].map((cell) => cell.dataset.csv ?? cell.textContent.trim());
  const compare = (column) => (one, other) => {
    const [a, b] = [one, other].map((row) => row.cells[column].dataset.csv ?? row.cells[column].textContent.trim());
    const [x, y] = [number(a), number(b)];
    return Number.isFinite(x) && Number.isFinite(y) ? x - y : a.localeCompare(b);
  };
  const sort = (table, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const rows = [...table.tBodies[0].rows].sort(compare(head.cellIndex));
    table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...(down ? rows.reverse() : rows));
  };
  document.querySelectorAll(".scroll > table").forEach((table, index) => {
    if (table.rows.length < 2) return;
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head));
      head.append(button);
    }
    const link = document.createElement("a");
    const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    link.className = "csv";
    link.textContent = "CSV";
    link.download = `table-${index + 1}.csv`;
    link.href = "#";
    link.addEventListener("click", () => {
      const text = [...table.rows].map((row) => words(row).map(quoted).join(",")).join("\n") + "\n";
      link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(text);
    });
    table.parentElement.after(link);
  });
})();
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const plots = [];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const height = 240;
  const draw = (place) => {
    const chart = data[place.dataset.test][place.dataset.kind];
    if (!chart || !chart.columns[0].length) {
      place.textContent = "No series was recorded.";
      return;
    }
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const show = (u, value) => (value == null ? "–" : value.toPrecision(4) + " " + chart.unit);
    const series = chart.labels.map((label, i) => ({
      label, stroke: chart.colours[i], width: 2, spanGaps: true, value: show,
      dash: chart.dashes[i] ? [6, 4] : undefined, points: { show: chart.columns[0].length < 3 },
    }));
    const options = {
      width: place.clientWidth || 600, height,
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, (high || 1) * 1.08] } },
      axes: [{ ...axis, values: (u, all) => all.map((v) => v + " s") }, { ...axis, size: 52 }],
      series: [{ label: "time", value: (u, v) => (v == null ? "–" : v.toFixed(1) + " s") }, ...series],
      legend: { show: new Set(chart.labels).size === chart.labels.length },
      cursor: { sync: { key: "time" } },
    };
    place.textContent = "";
    plots.push([place, new uPlot(options, chart.columns, place)]);
  };
  const places = [...document.querySelectorAll(".chart")];
  const all = () => {
    plots.splice(0).forEach(([, plot]) => plot.destroy());
    places.forEach(draw);
  };
  all();
  let width = innerWidth;
  const resize = () => plots.forEach(([place, plot]) => plot.setSize({ width: place.clientWidth, height }));
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; resize(); } });
  addEventListener("beforeprint", resize);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  document.documentElement.dataset.drawn = plots.length;
})();
// Flame graphs: a click makes a function as wide as the figure, a search colours what has the text in its name.
document.querySelectorAll("figure.flame").forEach((figure) => {
  const frames = [...figure.querySelectorAll("svg svg")];
  const span = (frame) => [parseFloat(frame.dataset.x), parseFloat(frame.dataset.w)];
  const show = ([from, wide], depth) => {
    for (const frame of frames) {
      const [x, w] = span(frame);
      const holds = x <= from + 1e-9 && x + w >= from + wide - 1e-9 && +frame.dataset.d <= depth;
      const inside = x >= from - 1e-9 && x + w <= from + wide + 1e-9;
      frame.classList.toggle("gone", !holds && !inside);
      frame.setAttribute("x", (holds ? 0 : ((x - from) * 100) / wide) + "%");
      const width = (holds ? 100 : (w * 100) / wide) + "%";
      frame.setAttribute("width", width);
      frame.style.width = width;
    }
  };
  const whole = () => show([0, 1], 0);
  frames.forEach((frame) => frame.addEventListener("click", () => show(span(frame), +frame.dataset.d)));
  figure.querySelector(".flame-all").addEventListener("click", whole);
  const find = (text) => {
    let [share, end] = [0, 0];
    for (const frame of frames) {
      const hit = text !== "" && frame.dataset.n.toLowerCase().includes(text.toLowerCase());
      frame.firstElementChild.classList.toggle("found", hit);
      const [x, w] = span(frame);
      if (hit && x >= end - 1e-9) [share, end] = [share + w, x + w];
    }
    figure.querySelector(".flame-found").textContent = text === "" ? "" : (share * 100).toFixed(1) + " % of all samples";
  };
  figure.querySelector(".flame-find").addEventListener("input", (event) => find(event.target.value));
});
