// @ts-check
// Small parts of all pages: numbers in cards, facts, errors, empty pages, the table.
import { useState } from "../vendor/hooks.mjs";
import { html } from "./html.mjs";
import { count, t } from "./words.mjs";

export function Cards({ items }) {
  return html`<dl class="cards">${items.map(([name, value]) => html`<div class="card" key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function Facts({ items }) {
  return html`<dl class="facts">${items.flatMap(([name, value]) => [html`<dt key=${name}>${name}</dt>`, html`<dd>${value}</dd>`])}</dl>`;
}

/** The broker's own sentence, and the request that failed. */
export function Failed({ error, reload }) {
  if (!error) return null;
  const sentence = error.status === 0 ? t("error.no_answer") : error.status === 403 ? t("error.forbidden", { reason: error.message }) : error.message;
  return html`<div class="notice bad" role="alert">${sentence}<br/><small>${error.asked}</small>
    ${reload && html` <button onClick=${reload}>${t("again")}</button>`}</div>`;
}

export function Empty({ text, line }) {
  return html`<div class="notice">${text}${line && html`<pre>${line}</pre>`}</div>`;
}

const PAGE = 100;

/**
 * Table with a filter, sorting and pages. A column: key, label, `show(row)`, `isNumber`, `sort(row)`.
 */
export function Table({ columns, rows, name, search, tools }) {
  const [filter, setFilter] = useState("");
  const [order, setOrder] = useState({ key: columns[0].key, down: false });
  const [page, setPage] = useState(0);
  const wanted = filter.toLowerCase();
  const found = wanted && search ? rows.filter((row) => search(row).toLowerCase().includes(wanted)) : rows;
  const column = columns.find((each) => each.key === order.key) ?? columns[0];
  const value = column.sort ?? ((row) => row[column.key]);
  const sorted = [...found].sort((a, b) => compare(value(a), value(b)) * (order.down ? -1 : 1));
  const last = Math.max(0, Math.ceil(sorted.length / PAGE) - 1);
  const current = Math.min(page, last);
  const shown = sorted.slice(current * PAGE, (current + 1) * PAGE);
  const choose = (key) => setOrder({ key, down: order.key === key && !order.down });
  return html`
    <div class="tools">
      ${search && html`<input type="search" id="filter" aria-label=${t("filter")} placeholder=${t("filter")} value=${filter} onInput=${(event) => (setFilter(event.target.value), setPage(0))}/>`}
      ${tools}
      <span class="rest">${t("rows", { n: count(found.length) })}</span>
      ${last > 0 && html`<button disabled=${current === 0} onClick=${() => setPage(current - 1)} aria-label=${t("previous")}>‹</button>
        <span>${current + 1} / ${last + 1}</span>
        <button disabled=${current === last} onClick=${() => setPage(current + 1)} aria-label=${t("next")}>›</button>`}
    </div>
    <div class="scroll"><table aria-label=${name}>
      <thead><tr>${columns.map((each) => html`<th scope="col" key=${each.key} class=${each.isNumber ? "number" : ""} aria-sort=${order.key === each.key ? (order.down ? "descending" : "ascending") : "none"}>
        ${each.isPlain ? each.label : html`<button onClick=${() => choose(each.key)}>${each.label}${order.key === each.key ? (order.down ? " ▾" : " ▴") : ""}</button>`}</th>`)}</tr></thead>
      <tbody>${shown.map((row, index) => html`<tr key=${row.id ?? row.name ?? index}>${columns.map((each) => html`<td key=${each.key} class=${each.isNumber ? "number" : ""}>${each.show ? each.show(row) : row[each.key]}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}

function compare(a, b) {
  if (a == null || b == null) return a == null ? (b == null ? 0 : -1) : 1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
