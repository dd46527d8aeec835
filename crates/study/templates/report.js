"use strict";
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
    const unit = place.dataset.kind === "latency" ? "µs" : "Mbit/s";
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const show = (u, value) => (value == null ? "–" : value.toPrecision(4) + " " + unit);
    const series = chart.labels.map((label, i) => ({
      label, stroke: chart.colours[i], width: 2, spanGaps: true, value: show,
      dash: chart.dashes[i] ? [6, 4] : undefined, points: { show: chart.columns[0].length < 3 },
    }));
    const options = {
      width: place.clientWidth || 600, height,
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, (high || 1) * 1.08] } },
      axes: [{ ...axis, values: (u, all) => all.map((v) => v + " s") }, { ...axis, size: 62 }],
      series: [{ label: "time", value: (u, v) => (v == null ? "–" : v.toFixed(1) + " s") }, ...series],
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
