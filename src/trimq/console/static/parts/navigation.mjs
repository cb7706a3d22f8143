// @ts-check
// Moves between the pages of the console without loading it anew.

/** @param {string} path */
export function open(path) {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}
