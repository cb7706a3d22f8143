// @ts-check
// Consumer groups: members, lag of each stream, moving the cursors, removal.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { Dialog } from "../parts/dialog.mjs";
import { html } from "../parts/html.mjs";
import { open } from "../parts/navigation.mjs";
import { Cards, Empty, Failed, Table } from "../parts/shown.mjs";
import { count, duration, t, time } from "../parts/words.mjs";

export function Groups() {
  const { value, error, reload } = usePoll("/api/groups", 3000);
  return html`<h1>${t("page.groups")}</h1><${Failed} error=${error} reload=${reload}/>
    ${value && value.groups.length === 0 && html`<${Empty} text=${t("groups.empty")}/>`}
    ${value && value.groups.length > 0 && html`<${Table} name=${t("page.groups")} rows=${value.groups.map((each) => ({ ...each, id: `${each.protocol} ${each.name}` }))} search=${(row) => row.name} columns=${[
      { key: "name", label: t("name"), show: (row) => html`<a href=${at("groups", protocolOf(row), row.name)}>${row.name}</a>` },
      { key: "protocol", label: t("protocol"), show: (row) => html`<span class="tag">${row.protocol === "rocketmq" ? "RocketMQ" : `Kafka${row.protocol ? ` · ${row.protocol}` : ""}`}</span>` },
      { key: "state", label: t("group.state") },
      { key: "members", label: t("group.members"), isNumber: true, show: (row) => count(row.members) },
    ]}/>`}`;
}

function protocolOf(group) {
  return group.protocol === "rocketmq" ? "rocketmq" : "kafka";
}

export function Group({ protocol, name }) {
  const query = protocol === "rocketmq" ? "?protocol=rocketmq" : "";
  const path = `/api${at("groups", name)}`;
  const { value, error, reload } = usePoll(path + query, 2000);
  const [dialog, setDialog] = useState("");
  const cursors = (value?.cursors ?? []).map((each) => ({ ...each, id: `${each.topic}/${each.stream}`, lag: each.lag ?? 0 }));
  const lag = cursors.reduce((sum, each) => sum + each.lag, 0);
  async function move(form) {
    const isEarliest = form.get("to") === "earliest";
    const moved = [];
    for (const each of cursors) {
      const streams = isEarliest ? (await call(`/api${at("streams", each.topic)}`)).streams : [];
      const start = streams.find((found) => found.stream === each.stream)?.start ?? 0;
      moved.push({ topic: each.topic, stream: each.stream, offset: isEarliest ? start : each.end });
    }
    await call(`${path}/cursors${query}`, { method: "PUT", body: { cursors: moved } });
  }
  const close = (isDone) => (setDialog(""), isDone && reload());
  const hasMembers = (value?.members ?? []).length > 0;
  return html`<h1>${name} <span class="tag">${protocol === "rocketmq" ? "RocketMQ" : "Kafka"}</span></h1><${Failed} error=${error} reload=${reload}/>
    ${value && html`
      <${Cards} items=${[[t("group.state"), value.state], [t("group.members"), count(value.members.length)], [t("lag"), count(lag)], [t("group.rebalances"), count(value.rebalances?.completed)], [t("group.rebalancing"), value.rebalances?.running_ms == null ? "–" : duration(value.rebalances.running_ms)]]}/>
      <div class="tools"><button onClick=${() => setDialog("move")} disabled=${hasMembers || !cursors.length}>${t("group.move")}</button><button class="danger" disabled=${hasMembers} onClick=${() => setDialog("delete")}>${t("delete")}</button>${hasMembers && html`<small>${t("group.has_members", { n: count(value.members.length) })}</small>`}</div>
      <${Table} name=${t("lag")} rows=${cursors} search=${(row) => row.topic} columns=${[
        { key: "topic", label: t("topic"), show: (row) => html`<a href=${at("topics", row.topic)}>${row.topic}</a>` },
        { key: "stream", label: t("stream"), isNumber: true },
        { key: "offset", label: t("cursor"), isNumber: true, show: (row) => (row.offset == null ? t("group.never") : count(row.offset)) },
        { key: "end", label: t("end"), isNumber: true, show: (row) => count(row.end) },
        { key: "lag", label: t("lag"), isNumber: true, show: (row) => count(row.lag) },
      ]}/>
      ${value.last_commit_ms > 0 && html`<p>${t("group.last_commit", { at: time(value.last_commit_ms) })}</p>`}
      <h2>${t("group.members")}</h2>
      ${hasMembers ? html`<${Table} name=${t("group.members")} rows=${value.members.map((each) => ({ ...each, id: each.id ?? each.client_id }))} columns=${[
        { key: "client_id", label: t("client_id") },
        { key: "host", label: t("address") },
        { key: "details", label: t("details"), isPlain: true, show: (row) => row.subscriptions ? html`${row.subscriptions.map((each) => `${each.topic}: ${each.expression}`).join(", ")}${row.differs ? html` <b class="lost">${t("group.differs")}</b>` : null}` : row.id },
      ]}/>` : html`<p>${t("group.no_members")}</p>`}`}
    ${dialog === "move" && html`<${Dialog} title=${t("group.move_title", { name })} act=${move} close=${close} label=${t("group.move")}>
      <label class="field">${t("group.move_to")}<select name="to"><option value="earliest">${t("group.earliest", { n: count(cursors.reduce((sum, each) => sum + (each.offset ?? 0), 0)) })}</option><option value="latest">${t("group.latest", { n: count(lag) })}</option></select></label><//>`}
    ${dialog === "delete" && html`<${Dialog} title=${t("group.delete", { name })} isDanger typed=${name} label=${t("delete")} act=${() => call(path + query, { method: "DELETE" })} close=${(isDone) => (setDialog(""), isDone && open("/groups"))}><p>${t("group.delete_warning")}</p><//>`}`;
}
