/* The few things every page of the book needs from a script; without scripts it is read all the same:
 *
 * - a link that leads into a folded part opens it;
 * - what scrolls in itself is reached by keyboard;
 * - a formula is copied as its TeX;
 * - who presses a button or closes a dialog by keyboard is where he was before;
 * - the menu of a phone opens where one is.
 */
(() => {
  "use strict";

  // --- places ---------------------------------------------------------------------------------------------------------

  /** Open what hides the place that the address names. Newer browsers do it themselves. */
  function unfold() {
    let named = null;
    try {
      named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch (error) {
      return; // not every % stands for a letter
    }
    const folds = [];
    for (let fold = named; (fold = fold?.parentElement?.closest("details:not([open])")); ) folds.push(fold);
    folds.forEach((fold) => (fold.open = true));
    if (folds.length) named.scrollIntoView();
  }
  window.addEventListener("hashchange", unfold);
  unfold();

  for (const box of document.querySelectorAll(".wide-picture, .formula")) if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;

  // --- copying --------------------------------------------------------------------------------------------------------

  // Browsers copy a formula as its signs, each on a line of its own. What is marked inside one formula is copied so still.
  document.addEventListener("copy", (event) => {
    const marked = getSelection();
    const copied = document.createElement("div");
    if (marked.rangeCount) copied.append(marked.getRangeAt(0).cloneContents());
    const formulas = copied.querySelectorAll("[data-tex]");
    if (!formulas.length) return;
    event.clipboardData.setData("text/html", copied.innerHTML);
    for (const formula of formulas) {
      const sign = formula.matches("div") ? "$$" : "$";
      formula.textContent = sign + formula.dataset.tex + sign;
    }
    document.body.append(copied); // only what is on the page has its lines
    event.clipboardData.setData("text/plain", copied.innerText);
    copied.remove();
    event.preventDefault();
  });

  // --- keyboard -------------------------------------------------------------------------------------------------------

  // The theme takes the focus off its buttons; who came by keyboard would start at the top again.
  let opener = null;
  const comeBack = () => {
    if (document.activeElement === document.body && !document.querySelector("dialog[open]")) opener?.focus();
  };
  document.addEventListener(
    "click",
    (event) => {
      opener = event.target.closest?.("button") ?? null;
      if (event.detail === 0) setTimeout(comeBack); // pressed by a key, not by a pointer
    },
    true,
  );
  const dialogs = document.querySelectorAll("#pst-primary-sidebar-modal, #pst-secondary-sidebar-modal, #pst-search-dialog");
  dialogs.forEach((dialog) => dialog.addEventListener("close", () => setTimeout(comeBack))); // after the theme

  // --- menu -----------------------------------------------------------------------------------------------------------

  /** The menu shows where one is: its entry for this page comes into view, unless it is there already. */
  function showOwnEntry(box) {
    const entry = [...box.querySelectorAll(".bd-docs-nav .active > a")].pop();
    if (!entry) return;
    const [inner, outer] = [entry.getBoundingClientRect(), box.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) entry.scrollIntoView({ block: "center" });
  }
  const menu = document.querySelector("#pst-primary-sidebar-modal"); // of a phone; the theme moves the side bar into it
  const opened = () => menu.open && showOwnEntry(menu);
  if (menu) new MutationObserver(opened).observe(menu, { attributes: true, attributeFilter: ["open"] });
})();
