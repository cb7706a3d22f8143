// @ts-check
// Open connections of every protocol, and closing one.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { Dialog, Field } from "../parts/dialog.mjs";
import { html } from "../parts/html.mjs";
import { Failed, Table } from "../parts/shown.mjs";
import { count, t, time } from "../parts/words.mjs";

export function Clients() {
  const { value, error, reload } = usePoll("/api/connections", 3000);
  const [closed, setClosed] = useState(null);
  const act = (form) => call(`/api${at("connections", closed.name)}?reason=${encodeURIComponent(form.get("reason"))}`, { method: "DELETE" });
  return html`<h1>${t("page.clients")}</h1><${Failed} error=${error} reload=${reload}/>
    ${value && html`<${Table} name=${t("page.clients")} rows=${value.connections} search=${(row) => `${row.client_id} ${row.user} ${row.address} ${row.protocol}`} columns=${[
      { key: "client_id", label: t("client_id"), show: (row) => row.client_id || row.client_properties?.product || "–" },
      { key: "protocol", label: t("protocol"), show: (row) => html`<span class="tag">${row.protocol}</span>` },
      { key: "user", label: t("user") },
      { key: "address", label: t("address") },
      { key: "vhost", label: t("vhost") },
      { key: "channels", label: t("channels"), isNumber: true, show: (row) => count(row.channels) },
      { key: "connected_ms", label: t("since"), show: (row) => time(row.connected_ms) },
      { key: "close", label: "", isPlain: true, show: (row) => html`<button class="danger" onClick=${() => setClosed(row)}>${t("close")}</button>` },
    ]}/>`}
    ${closed && html`<${Dialog} title=${t("client.close", { name: closed.client_id || closed.address })} isDanger label=${t("close")} act=${act} close=${(isDone) => (setClosed(null), isDone && reload())}>
      <${Field} label=${t("reason")} name="reason" value=${t("client.reason")} required/><//>`}`;
}
