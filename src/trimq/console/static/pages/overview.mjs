// @ts-check
// Overview: whether the broker takes writes, its traffic by protocol, its totals, and where clients connect.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { useLive, usePoll } from "../parts/api.mjs";
import { html } from "../parts/html.mjs";
import { Plot } from "../parts/plot.mjs";
import { Cards, Failed } from "../parts/shown.mjs";
import { bytes, count, duration, rate, t, time } from "../parts/words.mjs";

const KEPT_SAMPLES = 600;

/** Requests and bytes per second of each listener, from two samples. */
export function rates(before, after) {
  const seconds = (after.uptime_ms - before.uptime_ms) / 1000;
  if (seconds <= 0) return {};
  return Object.fromEntries(Object.entries(after.listeners).map(([name, now]) => {
    const then = before.listeners[name] ?? {};
    const each = (key) => Math.max(0, (now[key] ?? 0) - (then[key] ?? 0)) / seconds;
    return [name, { requests: each("requests"), received: each("received_bytes"), sent: each("sent_bytes") }];
  }));
}

export function Overview() {
  const { sample, lostAt } = useLive();
  const { value, error, reload } = usePoll("/api/overview", 15000);
  const before = useRef(null);
  const [history, setHistory] = useState([]);
  const [now, setNow] = useState({});
  useEffect(() => {
    if (!sample) return;
    if (before.current) {
      const found = rates(before.current, sample);
      setNow(found);
      setHistory((last) => [...last, [sample.at, found]].slice(-KEPT_SAMPLES));
    }
    before.current = sample;
  }, [sample]);
  const totals = { ...(value?.totals ?? {}), ...(sample?.totals ?? {}) };
  const listeners = sample?.listeners ?? value?.listeners ?? {};
  const names = Object.keys(listeners).filter((name) => name !== "http");
  const refused = sample ? sample.writes_refused : value?.writes_refused;
  const waiting = (totals.passes_written ?? 0) - (totals.passes_durable ?? 0);
  return html`<h1>${t("page.")} ${lostAt ? html`<small class="lost" role="status">${t("not_live", { since: time(lostAt) })}</small>` : sample ? html`<small class="live">● ${t("live")}</small>` : null}</h1>
    <${Failed} error=${error} reload=${reload}/>
    ${refused && html`<div class="notice bad" role="alert">${t("writes_refused", { reason: refused })}</div>`}
    <div class=${lostAt ? "stale" : ""}>
      <${Cards} items=${[
        [t("total.topics"), count(totals.topics)],
        [t("total.streams"), count(totals.streams)],
        [t("total.queues"), count(totals.queues)],
        [t("total.groups"), count(totals.groups)],
        [t("total.stored"), bytes(totals.stored_bytes)],
        [t("total.free"), bytes(totals.disk_free_bytes)],
        [t("total.waiting"), count(waiting)],
        [t("total.uptime"), duration(sample?.uptime_ms ?? value?.uptime_ms)],
      ]}/>
      <${Plot} title=${t("plot.requests")} series=${names} rows=${history.map(([at, found]) => [at, ...names.map((name) => found[name]?.requests ?? 0)])}/>
      <h2>${t("listeners")}</h2>
      <div class="scroll"><table aria-label=${t("listeners")}><thead><tr>
        <th scope="col">${t("listener")}</th><th scope="col">${t("address")}</th><th scope="col" class="number">${t("connections")}</th>
        <th scope="col" class="number">${t("per_second.requests")}</th><th scope="col" class="number">${t("per_second.received")}</th><th scope="col" class="number">${t("per_second.sent")}</th></tr></thead>
        <tbody>${Object.entries(listeners).map(([name, each]) => html`<tr key=${name}><td>${name}</td><td><code>${value?.addresses?.[name] ?? ""}</code></td>
          <td class="number">${count(each.connections)}</td><td class="number">${rate(now[name]?.requests)}</td>
          <td class="number">${bytes(now[name]?.received)}</td><td class="number">${bytes(now[name]?.sent)}</td></tr>`)}</tbody></table></div>
      <p><small>${value && t("version", { version: value.version })}</small></p>
    </div>`;
}
