/**
 * Links in the prose that set an explorer: <a href="two_steps.html" data-settings="n=200&amp;step=5">try it</a>.
 * The settings are not the link's fragment: Bootstrap's scroll spy reads every fragment of the page as a CSS selector.
 */
import {fromText} from "./controls.js";

/**
 * Follow a page's `a[data-settings]`: what the link names is set, everything else goes back to its start.
 * @param {object[]} controls the explorer's controls
 * @param {(values: object) => void} set the explorer's `set`
 * @param {string} name the explorer's name, to bring it into view
 */
export function followTries(controls, set, name) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-settings]");
    if (!link || event.button > 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const asked = new URLSearchParams(link.dataset.settings);
    const wanted = (control) => (asked.has(control.key) ? fromText(control, asked.get(control.key)) : control.value);
    set(Object.fromEntries(controls.map((control) => [control.key, wanted(control)])));
    document.querySelector(`[data-explorer="${name}"]`).scrollIntoView({block: "start"});
  });
}
