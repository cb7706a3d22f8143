// @ts-check
// Texts of the console in the language of the reader, and numbers, sizes and times in its form.

export const LANGUAGES = { en: "English", zh: "中文" };
const STORED = "trimq.language";

/** @type {Record<string, string>} */
let words = {};
let language = "en";

/** Loads the texts: of the language that was chosen in this browser, or else that of the browser. */
export async function loadWords() {
  const chosen = localStorage.getItem(STORED) ?? (navigator.language.startsWith("zh") ? "zh" : "en");
  language = chosen in LANGUAGES ? chosen : "en";
  const answer = await fetch(new URL(`../words/${language}.json`, import.meta.url));
  words = await answer.json();
  document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
}

export function currentLanguage() {
  return language;
}

/** @param {string} chosen */
export async function chooseLanguage(chosen) {
  localStorage.setItem(STORED, chosen);
  await loadWords();
}

/**
 * Returns the text with this key; `{name}` in it is replaced.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  const text = words[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/** @param {number | null | undefined} value */
export function count(value) {
  return value == null ? "–" : new Intl.NumberFormat(language, { maximumFractionDigits: 0 }).format(value);
}

/** @param {number | null | undefined} value */
export function rate(value) {
  if (value == null) return "–";
  return new Intl.NumberFormat(language, { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value == null) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${new Intl.NumberFormat(language, { maximumFractionDigits: value < 10 && unit ? 1 : 0 }).format(value)} ${UNITS[unit]}`;
}

/** @param {number | null | undefined} ms */
export function time(ms) {
  if (ms == null || ms < 0) return "–";
  return new Intl.DateTimeFormat(language, { dateStyle: "short", timeStyle: "medium", hourCycle: "h23" }).format(ms);
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms == null) return "–";
  const seconds = Math.floor(ms / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const found = [];
  let left = seconds;
  for (const [size, unit] of parts) {
    const whole = Math.floor(left / Number(size));
    left -= whole * Number(size);
    if (whole || (unit === "s" && !found.length)) found.push(`${whole} ${unit}`);
  }
  return found.slice(0, 2).join(" ");
}
