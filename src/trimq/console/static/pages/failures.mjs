// @ts-check
// Failure ledger: messages that were rejected, expired, dropped or tried too often, and sending them again.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { html } from "../parts/html.mjs";
import { Empty, Failed, Table } from "../parts/shown.mjs";
import { count, t, time } from "../parts/words.mjs";

const SHOWN = 500;

/** Body of an entry as text, if it is one. */
export function textOf(encoded) {
  const raw = Uint8Array.from(atob(encoded), (each) => each.charCodeAt(0));
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(raw);
  } catch {
    return [...raw.slice(0, 64)].map((each) => each.toString(16).padStart(2, "0")).join(" ");
  }
}

export function Failures() {
  const [from, setFrom] = useState(0);
  const { value, error, reload } = usePoll(`/api/failures?from=${from}&limit=${SHOWN}`, 5000);
  const [failed, setFailed] = useState(null);
  const rows = value?.failures ?? [];
  async function redrive(row) {
    try {
      await call(`/api${at("failures", row.id, "redrive")}`, { method: "POST" });
      setFailed(null);
    } catch (failure) {
      setFailed(failure);
    }
    reload();
  }
  return html`<h1>${t("page.failures")}</h1><${Failed} error=${error ?? failed} reload=${reload}/>
    ${value && rows.length === 0 && from === 0 && html`<${Empty} text=${t("failures.empty")}/>`}
    ${rows.length > 0 && html`<${Table} name=${t("page.failures")} rows=${rows} search=${(row) => `${row.queue} ${row.group} ${row.reason}`}
      tools=${html`${from > 0 && html`<button onClick=${() => setFrom(0)}>${t("oldest")}</button>`}<button disabled=${rows.length < SHOWN} onClick=${() => setFrom(value.next)}>${t("further")}</button>`} columns=${[
        { key: "id", label: "#", isNumber: true },
        { key: "time_ms", label: t("message.time"), show: (row) => time(row.time_ms) },
        { key: "queue", label: t("failure.where"), show: (row) => html`${row.queue}${row.group && html`<br/><small>${row.group}</small>`}` },
        { key: "reason", label: t("failure.reason") },
        { key: "attempts", label: t("failure.attempts"), isNumber: true, show: (row) => count(row.attempts) },
        { key: "body", label: t("message.body"), isPlain: true, show: (row) => html`<pre class="body">${textOf(row.body).slice(0, 300)}</pre>` },
        { key: "redriven", label: "", isPlain: true, show: (row) => (row.redriven ? t("failure.redriven") : html`<button onClick=${() => redrive(row)}>${t("failure.redrive")}</button>`) },
      ]}/>`}`;
}
