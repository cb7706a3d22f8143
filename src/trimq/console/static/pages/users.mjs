// @ts-check
// Users and their permissions.
import { useState } from "../vendor/hooks.mjs";
import { at, call, usePoll } from "../parts/api.mjs";
import { Dialog, Field } from "../parts/dialog.mjs";
import { html } from "../parts/html.mjs";
import { Empty, Failed, Table } from "../parts/shown.mjs";
import { t } from "../parts/words.mjs";

export function Users() {
  const users = usePoll("/api/users", 10000);
  const permissions = usePoll("/api/permissions", 10000);
  const [dialog, setDialog] = useState(null);
  const close = (isDone) => (setDialog(null), isDone && (users.reload(), permissions.reload()));
  const putUser = (form) => call(`/api${at("users", form.get("name"))}`, { method: "PUT", body: { password: form.get("password"), administrator: form.get("administrator") === "on" } });
  const putPermission = (form) => call(`/api${at("permissions", form.get("user"))}?vhost=${encodeURIComponent(form.get("vhost"))}`, { method: "PUT", body: { configure: form.get("configure"), write: form.get("write"), read: form.get("read") } });
  return html`<h1>${t("page.users")}</h1><${Failed} error=${users.error} reload=${users.reload}/>
    ${users.value && users.value.users.length === 0 && html`<${Empty} text=${t("users.empty")}/>`}
    ${users.value && html`<${Table} name=${t("page.users")} rows=${users.value.users} search=${(row) => row.name} tools=${html`<button class="main" onClick=${() => setDialog({ kind: "user" })}>${t("users.create")}</button>`} columns=${[
      { key: "name", label: t("name") },
      { key: "administrator", label: t("users.administrator"), show: (row) => (row.administrator ? t("yes") : t("no")) },
      { key: "remove", label: "", isPlain: true, show: (row) => html`<button class="danger" onClick=${() => setDialog({ kind: "remove", name: row.name })}>${t("delete")}</button>` },
    ]}/>`}
    <h2>${t("permissions")}</h2><${Failed} error=${users.error ? null : permissions.error} reload=${permissions.reload}/>
    ${permissions.value && html`<${Table} name=${t("permissions")} rows=${permissions.value.permissions.map((each) => ({ ...each, id: `${each.user} ${each.vhost}` }))} search=${(row) => `${row.user} ${row.vhost}`}
      tools=${html`<button disabled=${!users.value?.users.length} onClick=${() => setDialog({ kind: "permission" })}>${t("permissions.set")}</button>`} columns=${[
        { key: "user", label: t("user") }, { key: "vhost", label: t("vhost") },
        ...["configure", "write", "read"].map((key) => ({ key, label: t(`permission.${key}`), show: (row) => html`<code>${row[key]}</code>` })),
        { key: "remove", label: "", isPlain: true, show: (row) => html`<button class="danger" onClick=${() => setDialog({ kind: "withdraw", row })}>${t("delete")}</button>` },
      ]}/>`}
    ${dialog?.kind === "user" && html`<${Dialog} title=${t("users.create")} act=${putUser} close=${close} label=${t("create")}>
      <${Field} label=${t("name")} name="name" required/><${Field} label=${t("password")} name="password" type="password" required/>
      <label><input type="checkbox" name="administrator" defaultChecked=${!users.value.users.length}/> ${t("users.administrator")}</label><//>`}
    ${dialog?.kind === "permission" && html`<${Dialog} title=${t("permissions.set")} act=${putPermission} close=${close} label=${t("change")}>
      <label class="field">${t("user")}<select name="user">${users.value.users.map((each) => html`<option key=${each.name}>${each.name}</option>`)}</select></label>
      <${Field} label=${t("vhost")} name="vhost" value="/" required/>
      ${["configure", "write", "read"].map((key) => html`<${Field} key=${key} label=${t(`permission.${key}`)} name=${key} value=".*" hint=${t("permission.hint")}/>`)}<//>`}
    ${dialog?.kind === "remove" && html`<${Dialog} title=${t("users.delete", { name: dialog.name })} isDanger typed=${dialog.name} label=${t("delete")} act=${() => call(`/api${at("users", dialog.name)}`, { method: "DELETE" })} close=${close}><p>${t("users.delete_warning")}</p><//>`}
    ${dialog?.kind === "withdraw" && html`<${Dialog} title=${t("permissions.delete", { user: dialog.row.user, vhost: dialog.row.vhost })} isDanger label=${t("delete")} act=${() => call(`/api${at("permissions", dialog.row.user)}?vhost=${encodeURIComponent(dialog.row.vhost)}`, { method: "DELETE" })} close=${close}/>`}`;
}
