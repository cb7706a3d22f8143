// @ts-check
// One message: its content, and how clients of each protocol see it.
import { at, usePoll } from "../parts/api.mjs";
import { html } from "../parts/html.mjs";
import { Facts, Failed } from "../parts/shown.mjs";
import { bytes, t, time } from "../parts/words.mjs";
import { Shown } from "./topic.mjs";

const NAMES = { kafka: "Kafka", rocketmq: "RocketMQ", amqp: "AMQP" };
const STILL = 600000;

export function Message({ topic, stream, offset }) {
  const page = usePoll(`/api${at("messages", topic, stream)}?from=${offset}&limit=1`, STILL);
  const explained = usePoll(`/api/explain?topic=${encodeURIComponent(topic)}&stream=${stream}&offset=${offset}`, STILL);
  const message = page.value?.messages.find((each) => String(each.offset) === offset);
  const found = explained.value;
  return html`<h1><a href=${at("topics", topic)}>${topic}</a> ${stream} @ ${offset}</h1>
    <${Failed} error=${page.error} reload=${page.reload}/>
    ${page.value && !message && html`<div class="notice">${t("message.gone")}</div>`}
    ${message && html`<${Facts} items=${[[t("message.time"), time(message.time_ms)], [t("message.key"), html`<${Shown} value=${message.key}/>`], [t("size"), bytes(message.body_bytes)]]}/>
      <h2>${t("message.headers")}</h2>${message.headers.length + Object.keys(message.fields).length === 0 ? html`<p>${t("none")}</p>` : html`<${Facts} items=${[...Object.entries(message.fields), ...message.headers.map(([name, value]) => [name, html`<${Shown} value=${value}/>`])]}/>`}
      <h2>${t("message.body")}</h2><div class="notice"><${Shown} value=${message.body} size=${message.body_bytes}/></div>`}
    ${found && html`<h2>${t("message.explain")}</h2><p>${t("message.stored", { form: found.stored.form, size: bytes(found.stored.bytes) })}</p>
      <div class="cards">${Object.entries(found.views).map(([face, view]) => html`<section class="card" key=${face}><h2>${NAMES[face] ?? face}</h2><pre class="body">${JSON.stringify(view, null, 1)}</pre></section>`)}</div>
      <h2>${t("message.head")}</h2><pre class="body notice">${found.stored.head}</pre>`}
    ${!found && explained.error && html`<p><small>${explained.error.message}</small></p>`}`;
}
