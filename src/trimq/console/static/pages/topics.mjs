// @ts-check
// Topics of every layout in one list, and the form that creates one.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { Dialog, Field } from "../parts/dialog.mjs";
import { html } from "../parts/html.mjs";
import { Empty, Failed, Table } from "../parts/shown.mjs";
import { t } from "../parts/words.mjs";

const PROTOCOLS = { "partition-log": "Kafka", "commit-log": "RocketMQ", "queue-log": "AMQP" };

/** NORMAL, RETRY, DLQ and INTERNAL, as RocketMQ's own console names them. */
export function kindOf(topic) {
  if (topic.name.startsWith("%RETRY%")) return "retry";
  if (topic.name.startsWith("%DLQ%")) return "dead_letters";
  if (topic.internal || topic.name.startsWith("__")) return "internal";
  return topic.gives_away ? "queue" : "normal";
}

export function Protocol({ home }) {
  return html`<span class="tag">${PROTOCOLS[home] ?? home}</span>`;
}

const KINDS = ["normal", "queue", "retry", "dead_letters", "internal"];

export function Topics() {
  const { value, error, reload } = usePoll("/api/streams", 5000);
  const [shown, setShown] = useState(new Set(["normal", "queue", "dead_letters"]));
  const [isCreating, setCreating] = useState(false);
  const rows = (value?.topics ?? []).map((topic) => ({ ...topic, kind: kindOf(topic) }));
  const toggle = (kind) => setShown((last) => new Set(last.has(kind) ? [...last].filter((each) => each !== kind) : [...last, kind]));
  const boxes = KINDS.map((kind) => html`<label key=${kind}><input type="checkbox" checked=${shown.has(kind)} onChange=${() => toggle(kind)}/> ${t(`kind.${kind}`)}</label>`);
  return html`<h1>${t("page.topics")}</h1><${Failed} error=${error} reload=${reload}/>
    ${value && rows.every((row) => row.kind === "internal") && html`<${Empty} text=${t("topics.empty")} line="trimq topics create hello"/>`}
    ${value && html`<${Table} name=${t("page.topics")} rows=${rows.filter((row) => shown.has(row.kind))} search=${(row) => row.name}
      tools=${html`${boxes}<button class="main" onClick=${() => setCreating(true)}>${t("create")}</button>`}
      columns=${[
        { key: "name", label: t("name"), show: (row) => html`<a href=${at("topics", row.name)}>${row.name}</a>` },
        { key: "home", label: t("protocol"), show: (row) => html`<${Protocol} home=${row.home}/>` },
        { key: "kind", label: t("kind"), show: (row) => t(`kind.${row.kind}`) },
      ]}/>`}
    ${isCreating && html`<${CreateTopic} close=${(isDone) => (setCreating(false), isDone && reload())}/>`}`;
}

function CreateTopic({ close }) {
  async function act(form) {
    const body = { name: form.get("name"), streams: Number(form.get("streams")), home: form.get("home") };
    await call("/api/topics", { method: "POST", body });
  }
  return html`<${Dialog} title=${t("topics.create")} act=${act} close=${close} label=${t("create")}>
    <${Field} label=${t("name")} name="name" required/>
    <label class="field">${t("protocol")}<select name="home"><option value="partition-log">Kafka</option><option value="commit-log">RocketMQ</option></select></label>
    <${Field} label=${t("streams")} name="streams" type="number" value="1" required/>
  <//>`;
}
