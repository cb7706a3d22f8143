// @ts-check
// Plot of numbers over time, with a table of the same numbers behind it.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import uPlot from "../vendor/uplot.mjs";
import { html } from "./html.mjs";
import { rate, t, time } from "./words.mjs";

const COLOURS = ["#2f7fb8", "#d1772e", "#3a9a5f", "#a05fb0", "#b8443c", "#6b7785"];
const HEIGHT = 220;

/** `series`: names; `rows`: [time in ms, value of each series]. */
export function Plot({ title, series, rows }) {
  const place = useRef(null);
  const plot = useRef(null);
  const [isTable, setTable] = useState(false);
  const names = series.join("|");
  useEffect(() => {
    if (isTable) return undefined;
    const text = getComputedStyle(document.body).color;
    const line = getComputedStyle(place.current).borderTopColor;
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    const clock = (_, times) => times.map((each) => new Date(each * 1000).toTimeString().slice(0, 8));
    plot.current = new uPlot({
      width: Math.max(240, place.current.clientWidth - 16),
      height: HEIGHT,
      series: [{ label: t("time"), value: (_, at) => (at == null ? "–" : time(at * 1000)) }, ...series.map((label, index) => ({ label, stroke: COLOURS[index % COLOURS.length], width: 2, value: (_, value) => rate(value) }))],
      axes: [{ ...axis, values: clock, space: 90 }, { ...axis, values: (_, values) => values.map(rate), size: 60 }],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high)] } },
    }, columns(rows, series.length), place.current);
    const resize = () => plot.current.setSize({ width: Math.max(240, place.current.clientWidth - 16), height: HEIGHT });
    window.addEventListener("resize", resize);
    return () => {
      window.removeEventListener("resize", resize);
      plot.current.destroy();
      plot.current = null;
    };
  }, [names, isTable]);
  useEffect(() => {
    if (plot.current) plot.current.setData(columns(rows, series.length));
  }, [rows]);
  return html`<section aria-label=${title}><div class="tools"><h2>${title}</h2><button class="plot-switch" onClick=${() => setTable(!isTable)}>${isTable ? t("plot") : t("table")}</button></div>
    ${isTable
      ? html`<div class="scroll"><table><thead><tr><th scope="col">${t("time")}</th>${series.map((each) => html`<th scope="col" class="number" key=${each}>${each}</th>`)}</tr></thead>
          <tbody>${rows.slice(-20).reverse().map((row) => html`<tr key=${row[0]}><td>${time(row[0])}</td>${row.slice(1).map((value, index) => html`<td class="number" key=${index}>${rate(value)}</td>`)}</tr>`)}</tbody></table></div>`
      : html`<div class="plot" ref=${place}></div>`}</section>`;
}

function columns(rows, width) {
  return [rows.map((row) => row[0] / 1000), ...Array.from({ length: width }, (_, index) => rows.map((row) => row[index + 1]))];
}
