// @ts-check
// The console: navigation, login, and the page of each address.
import { render } from "./vendor/preact.mjs";
import { useEffect, useLayoutEffect, useState } from "./vendor/hooks.mjs";
import { call, onLoginNeeded } from "./parts/api.mjs";
import { html } from "./parts/html.mjs";
import { open } from "./parts/navigation.mjs";
import { Failed } from "./parts/shown.mjs";
import { LANGUAGES, chooseLanguage, currentLanguage, loadWords, t } from "./parts/words.mjs";
import { Clients } from "./pages/clients.mjs";
import { Failures } from "./pages/failures.mjs";
import { Group, Groups } from "./pages/groups.mjs";
import { Message } from "./pages/message.mjs";
import { Overview } from "./pages/overview.mjs";
import { Queues } from "./pages/queues.mjs";
import { Topic } from "./pages/topic.mjs";
import { Topics } from "./pages/topics.mjs";
import { Users } from "./pages/users.mjs";

// Each page with the first word of its path, its letter after `g`, and its component.
const PAGES = [
  ["", "o", Overview],
  ["topics", "t", Topics],
  ["queues", "q", Queues],
  ["groups", "g", Groups],
  ["failures", "f", Failures],
  ["clients", "c", Clients],
  ["users", "u", Users],
];

function pageOf(path) {
  const words = path.split("/").slice(1).map(decodeURIComponent);
  if (words[0] === "topics" && words.length > 1) return html`<${Topic} key=${words[1]} name=${words[1]} tab=${words[2] ?? "streams"}/>`;
  if (words[0] === "groups" && words.length > 2) return html`<${Group} key=${path} protocol=${words[1]} name=${words[2]}/>`;
  if (words[0] === "messages" && words.length > 3) return html`<${Message} key=${path} topic=${words[1]} stream=${words[2]} offset=${words[3]}/>`;
  const found = PAGES.find(([word]) => word === words[0]);
  return found && words.length === 1 ? html`<${found[2]}/>` : html`<h1>${t("no_page")}</h1><p><a href="/">${t("page.")}</a></p>`;
}

const THEME = "trimq.theme";
document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? "";

function switchTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem(THEME, document.documentElement.dataset.theme);
}

// Links and keys work as soon as a page is visible: before its first paint.
function useLinks() {
  useLayoutEffect(() => {
    const follow = (event) => {
      const link = event.target.closest?.("a[href^='/']");
      if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.target || link.hasAttribute("download")) return;
      event.preventDefault();
      open(link.getAttribute("href"));
    };
    document.addEventListener("click", follow);
    return () => document.removeEventListener("click", follow);
  }, []);
}

function useKeys() {
  useLayoutEffect(() => {
    let hasGo = false;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
      if (event.key === "/") {
        const filter = document.getElementById("filter");
        if (filter) {
          event.preventDefault();
          filter.focus();
        }
      } else if (hasGo) {
        const page = PAGES.find(([, letter]) => letter === event.key);
        if (page) open(`/${page[0]}`);
      } else if (event.key === "t") {
        document.querySelector(".plot-switch")?.click();
      }
      hasGo = event.key === "g" && !hasGo;
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}

function Login({ done }) {
  const [error, setError] = useState(null);
  async function submit(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      done(await call("/api/session", { method: "POST", body: { user: form.get("user"), password: form.get("password") } }));
    } catch (failure) {
      setError(failure);
    }
  }
  return html`<form class="login card" onSubmit=${submit}><h1>TriMQ</h1><${Failed} error=${error}/>
    <label class="field">${t("user")}<input name="user" required autocomplete="username" autofocus/></label>
    <label class="field">${t("password")}<input name="password" type="password" required autocomplete="current-password"/></label>
    <button class="main">${t("log_in")}</button></form>`;
}

function App({ first }) {
  const [session, setSession] = useState(first);
  const [path, setPath] = useState(location.pathname);
  const [, setLanguage] = useState(currentLanguage());
  useLinks();
  useKeys();
  useEffect(() => {
    const moved = () => setPath(location.pathname);
    addEventListener("popstate", moved);
    const forget = onLoginNeeded(() => setSession({ user: null, login_required: true }));
    return () => (removeEventListener("popstate", moved), forget());
  }, []);
  const word = path.split("/")[1];
  useEffect(() => {
    document.title = `${t(`page.${word}`)} – TriMQ`;
  });
  const languages = Object.entries(LANGUAGES).filter(([code]) => code !== currentLanguage());
  async function logOut() {
    await call("/api/session", { method: "DELETE" });
    setSession({ user: null, login_required: true });
  }
  const mustLogIn = session.login_required && !session.user;
  return html`<header><strong>TriMQ</strong>
      <nav aria-label=${t("pages")}>${!mustLogIn && PAGES.map(([page]) => html`<a key=${page} href=${`/${page}`} aria-current=${page === word ? "page" : undefined}>${t(`page.${page}`)}</a>`)}</nav>
      ${languages.map(([code, label]) => html`<button key=${code} lang=${code} onClick=${async () => (await chooseLanguage(code), setLanguage(code))}>${label}</button>`)}
      <button onClick=${switchTheme} aria-label=${t("theme")} title=${t("theme")}>◐</button>
      ${session.user && html`<span>${session.user}</span><button onClick=${logOut}>${t("log_out")}</button>`}
    </header>
    <main>${!session.login_required && html`<div class="notice">${t("open_broker")}<pre>trimq users set NAME --administrator yes</pre></div>`}
      ${mustLogIn ? html`<${Login} done=${setSession}/>` : pageOf(path)}</main>`;
}

await loadWords();
const first = await call("/api/session").catch(() => ({ user: null, login_required: false }));
render(html`<${App} first=${first}/>`, document.getElementById("app"));
