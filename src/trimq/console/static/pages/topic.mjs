// @ts-check
// One topic: its streams, its messages, its settings, and its removal.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { Dialog, Field } from "../parts/dialog.mjs";
import { html } from "../parts/html.mjs";
import { open } from "../parts/navigation.mjs";
import { Empty, Failed, Table } from "../parts/shown.mjs";
import { bytes, count, t, time } from "../parts/words.mjs";
import { Protocol } from "./topics.mjs";

const TABS = ["streams", "messages", "settings"];

export function Topic({ name, tab }) {
  const { value, error, reload } = usePoll(`/api${at("streams", name)}`, 3000);
  const [isDeleting, setDeleting] = useState(false);
  const isQueue = value?.home === "queue-log";
  const removal = isQueue ? `/api${at("queues", name)}` : `/api${at("topics", name)}`;
  return html`<h1>${name} ${value && html`<${Protocol} home=${value.home}/>`}</h1><${Failed} error=${error} reload=${reload}/>
    <nav class="tabs" aria-label=${t("tabs")}>${TABS.filter((each) => each !== "settings" || value?.home === "partition-log").map((each) => html`<a key=${each} href=${at("topics", name, each)} aria-current=${each === tab ? "page" : undefined}>${t(`tab.${each}`)}</a>`)}
      ${value && html`<button class="danger" onClick=${() => setDeleting(true)}>${t("delete")}</button>`}</nav>
    ${value && tab === "streams" && html`<${Streams} name=${name} streams=${value.streams}/>`}
    ${value && tab === "messages" && html`<${Messages} name=${name} streams=${value.streams}/>`}
    ${value && tab === "settings" && html`<${Settings} name=${name}/>`}
    ${isDeleting && html`<${Dialog} title=${t("topic.delete", { name })} isDanger label=${t("delete")} typed=${name}
      act=${() => call(removal, { method: "DELETE" })} close=${(isDone) => (setDeleting(false), isDone && open("/topics"))}>
      <p>${t("topic.delete_warning", { n: count(messages(value.streams)) })}</p><//>`}`;
}

function messages(streams) {
  return streams.reduce((sum, each) => sum + each.end - each.start, 0);
}

function Streams({ name, streams }) {
  return html`<${Table} name=${t("tab.streams")} rows=${streams.map((each) => ({ ...each, id: each.stream }))} columns=${[
    { key: "stream", label: t("stream"), isNumber: true, show: (row) => html`<a href=${`${at("topics", name, "messages")}?stream=${row.stream}`}>${row.stream}</a>` },
    { key: "start", label: t("start"), isNumber: true, show: (row) => count(row.start) },
    { key: "end", label: t("end"), isNumber: true, show: (row) => count(row.end) },
    { key: "stable_end", label: t("stable_end"), isNumber: true, show: (row) => count(row.stable_end) },
    { key: "bytes", label: t("size"), isNumber: true, show: (row) => bytes(row.bytes) },
  ]}/>`;
}

const SHOWN = 50;

function Messages({ name, streams }) {
  const first = Number(new URLSearchParams(location.search).get("stream") ?? streams[0]?.stream ?? 0);
  const [stream, setStream] = useState(first);
  const ends = streams.find((each) => each.stream === stream) ?? { start: 0, end: 0 };
  const [from, setFrom] = useState(null);
  const offset = from ?? Math.max(ends.start, ends.end - SHOWN);
  const { value, error, reload } = usePoll(`/api${at("messages", name, stream)}?from=${offset}&limit=${SHOWN}`, 5000);
  const choose = (event) => (setStream(Number(event.target.value)), setFrom(null));
  return html`<div class="tools">
      <label>${t("stream")} <select value=${stream} onChange=${choose}>${streams.map((each) => html`<option key=${each.stream} value=${each.stream}>${each.stream}</option>`)}</select></label>
      <label>${t("from_offset")} <input type="number" min="0" value=${offset} onChange=${(event) => setFrom(Number(event.target.value))}/></label>
      <button onClick=${() => setFrom(ends.start)}>${t("oldest")}</button><button onClick=${() => setFrom(null)}>${t("newest")}</button>
      <button disabled=${!value || value.next >= value.end} onClick=${() => setFrom(value.next)}>${t("further")}</button>
    </div><${Failed} error=${error} reload=${reload}/>
    ${value && value.messages.length === 0 && html`<${Empty} text=${t("messages.empty")}/>`}
    ${value && value.messages.length > 0 && html`<div class="scroll"><table aria-label=${t("tab.messages")}><thead><tr>${["offset", "time", "key", "headers", "body"].map((each) => html`<th scope="col" key=${each}>${t(`message.${each}`)}</th>`)}</tr></thead>
      <tbody>${value.messages.map((each) => html`<tr key=${each.offset}><td><a href=${at("messages", name, stream, each.offset)}>${each.offset}</a></td><td>${time(each.time_ms)}</td><td><${Shown} value=${each.key}/></td>
        <td>${[...Object.entries(each.fields), ...each.headers.map(([header, shown]) => [header, shown?.text ?? ""])].map(([header, text], index) => html`<div key=${index}><code>${header}=${text}</code></div>`)}</td>
        <td><${Shown} value=${each.body} size=${each.body_bytes}/></td></tr>`)}</tbody></table></div>`}`;
}

/** A value as it is stored, as text or in hexadecimal digits; says when it is cut. */
export function Shown({ value, size }) {
  if (value == null) return html`<i>null</i>`;
  return html`<pre class="body">${value.text}</pre>${value.form === "hex" && html`<small>${t("message.hex")}</small>`}${value.is_cut && html`<small> ${t("message.cut", { size: bytes(size) })}</small>`}`;
}

function Settings({ name }) {
  const { value, error, reload } = usePoll(`/api${at("topics", name)}`, 10000);
  const all = usePoll("/api/topic-settings", 600000).value?.settings ?? [];
  const [changed, setChanged] = useState(null);
  async function act(form) {
    const text = form.get("value");
    await call(`/api${at("topics", name)}`, { method: "PATCH", body: { settings: { [changed.name]: text === "" ? null : text } } });
  }
  const rows = all.map((each) => ({ ...each, set: value?.settings?.[each.name] }));
  return html`<${Failed} error=${error} reload=${reload}/>${value && html`<${Table} name=${t("tab.settings")} rows=${rows} search=${(row) => `${row.name} ${row.kafka_name}`} columns=${[
      { key: "name", label: t("name"), show: (row) => html`<b>${row.name}</b>${row.kafka_name && html`<br/><small>${row.kafka_name}</small>`}` },
      { key: "set", label: t("value"), show: (row) => html`${row.set ?? html`<i>${row.default ?? ""}</i>`} <button onClick=${() => setChanged(row)}>${t("change")}</button>` },
      { key: "description", label: t("meaning"), isPlain: true },
    ]}/>`}
    ${changed && html`<${Dialog} title=${changed.name} act=${act} label=${t("change")} close=${(isDone) => (setChanged(null), isDone && reload())}>
      <p>${changed.description}</p><${Field} label=${t("value")} name="value" value=${changed.set ?? ""} hint=${t("settings.hint", { value: changed.default ?? "" })}/><//>`}`;
}
