// @ts-check
// AMQP queues: what waits, what is out, who consumes; purge.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { Dialog } from "../parts/dialog.mjs";
import { html } from "../parts/html.mjs";
import { Empty, Failed, Table } from "../parts/shown.mjs";
import { count, t } from "../parts/words.mjs";

export function Queues() {
  const vhosts = usePoll("/api/vhosts", 60000).value?.vhosts ?? [];
  const [vhost, setVhost] = useState("/");
  const query = `?vhost=${encodeURIComponent(vhost)}`;
  const { value, error, reload } = usePoll(`/api/queues${query}`, 3000);
  const [purged, setPurged] = useState(null);
  const hosts = html`<label>${t("vhost")} <select value=${vhost} onChange=${(event) => setVhost(event.target.value)}>${vhosts.map((each) => html`<option key=${each.name}>${each.name}</option>`)}</select></label>`;
  return html`<h1>${t("page.queues")}</h1><${Failed} error=${error} reload=${reload}/>
    ${value && value.queues.length === 0 && html`<${Empty} text=${t("queues.empty")}/>`}
    ${value && html`<${Table} name=${t("page.queues")} rows=${value.queues} search=${(row) => row.name} tools=${vhosts.length > 1 && hosts} columns=${[
      { key: "name", label: t("name"), show: (row) => (vhost === "/" ? html`<a href=${at("topics", row.name)}>${row.name}</a>` : row.name) },
      { key: "type", label: t("kind") },
      { key: "ready", label: t("queue.ready"), isNumber: true, show: (row) => count(row.ready) },
      { key: "unacknowledged", label: t("queue.unacked"), isNumber: true, show: (row) => count(row.unacknowledged) },
      { key: "dead_letters", label: t("queue.dead_letters"), isNumber: true, show: (row) => count(row.dead_letters) },
      { key: "consumers", label: t("queue.consumers"), isNumber: true, show: (row) => count(row.consumers) },
      { key: "purge", label: "", isPlain: true, show: (row) => row.ready > 0 && html`<button class="danger" onClick=${() => setPurged(row)}>${t("queue.purge")}</button>` },
    ]}/>`}
    ${purged && html`<${Dialog} title=${t("queue.purge_title", { name: purged.name })} isDanger typed=${purged.name} label=${t("queue.purge")}
      act=${() => call(`/api${at("queues", purged.name, "messages")}${query}`, { method: "DELETE" })} close=${(isDone) => (setPurged(null), isDone && reload())}>
      <p>${t("queue.purge_warning", { n: count(purged.ready) })}</p><//>`}`;
}
