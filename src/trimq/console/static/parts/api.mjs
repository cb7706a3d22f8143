// @ts-check
// Requests to the broker, and what a page shows while it waits and when one fails.
import { useEffect, useRef, useState } from "../vendor/hooks.mjs";

/** Answer of the broker that is not 2xx. */
export class ApiError extends Error {
  /** @param {number} status @param {string} name @param {string} message @param {string} asked */
  constructor(status, name, message, asked) {
    super(message);
    this.status = status;
    this.error = name;
    this.asked = asked;
  }
}

/** @type {Set<() => void>} */
const loginListeners = new Set();

/** Calls back when a request was refused because nobody is logged in. @param {() => void} listener */
export function onLoginNeeded(listener) {
  loginListeners.add(listener);
  return () => loginListeners.delete(listener);
}

/**
 * @param {string} path
 * @param {{ method?: string, body?: unknown }} [options]
 */
export async function call(path, { method = "GET", body } = {}) {
  const asked = `${method} ${path}`;
  const headers = { "X-TriMQ": "1" };
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    throw new ApiError(0, "NoAnswer", String(error), asked);
  }
  const text = await answer.text();
  const value = text && (answer.headers.get("content-type") ?? "").includes("json") ? JSON.parse(text) : {};
  if (answer.ok) return value;
  if (answer.status === 401 && path !== "/api/session") loginListeners.forEach((listener) => listener());
  throw new ApiError(answer.status, value.error ?? "", value.message ?? text, asked);
}

/** Path with its words percent-encoded. @param {...(string | number)} words */
export function at(...words) {
  return "/" + words.map((word) => encodeURIComponent(String(word))).join("/");
}

/**
 * Asks again and again while the page is open and visible. Keeps the last answer when a request fails.
 * @param {string} path
 * @param {number} intervalMs
 */
export function usePoll(path, intervalMs = 3000) {
  const [state, setState] = useState({ path, value: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    let isOver = false;
    let timer = 0;
    async function ask() {
      clearTimeout(timer);
      try {
        const value = await call(path);
        if (!isOver) setState({ path, value, error: null });
      } catch (error) {
        if (!isOver) setState((last) => ({ path, value: last.path === path ? last.value : null, error }));
      }
      if (!isOver) timer = setTimeout(() => (document.hidden ? wait() : ask()), intervalMs);
    }
    function wait() {
      document.addEventListener("visibilitychange", () => isOver || ask(), { once: true });
    }
    again.current = ask;
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [path, intervalMs]);
  const isCurrent = state.path === path;
  return { value: isCurrent ? state.value : null, error: isCurrent ? state.error : null, reload: () => again.current() };
}

/** Live numbers of the broker, one event a second. */
export function useLive() {
  const [state, setState] = useState({ sample: null, lostAt: null });
  useEffect(() => {
    const source = new EventSource("/api/live");
    source.onmessage = (event) => setState({ sample: { ...JSON.parse(event.data), at: Date.now() }, lostAt: null });
    source.onerror = () => setState((last) => ({ ...last, lostAt: last.lostAt ?? Date.now() }));
    return () => source.close();
  }, []);
  return state;
}
