// @ts-check
// Dialogs: a question before something is removed, and forms.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";
import { html } from "./html.mjs";
import { Failed } from "./shown.mjs";
import { t } from "./words.mjs";

/**
 * Dialog with a form. `act` makes the request; the dialog closes when it succeeds. `typed`: a name that must be typed
 * before a thing is deleted.
 */
export function Dialog({ title, act, close, label, isDanger, typed, children }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [written, setWritten] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    try {
      await act(new FormData(event.target));
      close(true);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  }
  return html`<dialog ref=${dialog} onClose=${() => close(false)} aria-label=${title}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      <${Failed} error=${error}/>
      ${children}
      ${typed && html`<label class="field">${t("type_name", { name: typed })}<input value=${written} onInput=${(event) => setWritten(event.target.value)} autocomplete="off"/></label>`}
      <div class="buttons">
        <button type="button" onClick=${() => close(false)}>${t("cancel")}</button>
        <button class=${isDanger ? "danger" : "main"} disabled=${isBusy || (typed && written !== typed)}>${label}</button>
      </div>
    </form></dialog>`;
}

export function Field({ label, name, value = "", type = "text", required = false, hint }) {
  return html`<label class="field">${label}<input name=${name} type=${type} required=${required} defaultValue=${value} autocomplete=${type === "password" ? "new-password" : "off"}/>${hint && html`<small>${hint}</small>`}</label>`;
}
