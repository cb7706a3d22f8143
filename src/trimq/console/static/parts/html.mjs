// @ts-check
// The functions that make pages: Preact with htm.
import { h } from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export const html = htm.bind(h);
