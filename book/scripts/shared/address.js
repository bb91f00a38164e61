/** Settings in the page's address, so that a link shows the same picture: #signal_norm=3&label_noise=0.1 */
import {complaint, fromText, toText} from "./controls.js";

/** {values, complaints: {key: sentence}} of the address as it is now; values are good ones only. */
export function readAddress(controls) {
  const asked = new URLSearchParams(window.location.hash.slice(1));
  const values = {};
  const complaints = {};
  for (const control of controls) {
    if (!asked.has(control.key)) continue;
    const text = asked.get(control.key);
    const value = fromText(control, text);
    const sentence = complaint(control, value, text, {...values});
    if (sentence) complaints[control.key] = `In the address: ${sentence}`;
    else values[control.key] = value;
  }
  return {values, complaints};
}

/** The settings that differ from the explorer's own, as text for the address. */
export function settingsText(controls, state) {
  return controls
    .filter(({key, value}) => state[key] !== value)
    .map((control) => `${control.key}=${encodeURIComponent(toText(control, state[control.key]))}`)
    .join("&");
}

/** The address of the explorer's page, `page` where it is not this one, with the settings. */
export function linkTo(controls, state, page = "") {
  const text = settingsText(controls, state);
  return new URL(page, window.location.href).href.split("#")[0] + (text ? `#${text}` : "");
}

/** Put the settings into the address bar without a new entry in the history. */
export function writeAddress(controls, state) {
  const link = linkTo(controls, state);
  const held = new URLSearchParams(window.location.hash.slice(1));
  const ours = controls.some(({key}) => held.has(key));
  if (link === window.location.href || (!ours && !link.includes("#"))) return; // an anchor of the page is left alone
  try {
    window.history.replaceState(null, "", link);
  } catch {
    // Some browsers refuse on pages opened from disk; "copy link" works nevertheless.
  }
}

/** Copy `text`; resolves to whether it worked. Pages opened from disk may have no clipboard interface. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.body.appendChild(document.createElement("textarea"));
    field.value = text;
    field.setAttribute("readonly", "");
    field.style.position = "fixed";
    field.style.opacity = "0";
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}
