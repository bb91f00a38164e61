/* What every page of the book needs from a script, small, and without waiting for anything on the way to the text:
 *
 * - formulas are drawn by MathJax when they come near the view, a few at a time; MathJax itself is fetched for the
 *   first of them, so a page without formulas never asks for it. Until then, and without scripts, the TeX is shown;
 * - who presses a button or closes a dialog by keyboard is where he was before;
 * - what a script of a page puts in later: `await window.typeset(element)`;
 * - paper wants everything: `await window.drawWholePage()` draws all formulas and loads all pictures, and is called by
 *   every way to print that can wait (the page's button, Ctrl+P).
 *
 * Loaded with `defer` as <script src="light.js" data-mathjax="path of MathJax, as seen from the page">; the attribute
 * is there only where the page has formulas. Nothing is fetched but by script elements: it works from file://.
 */
(() => {
  "use strict";
  const own = document.currentScript;
  const AHEAD = "700px"; // how far below the view a formula is drawn
  const AT_ONCE = 12; // formulas drawn without a pause: some 50 ms on a slow phone

  const idle = () => new Promise((done) => (window.requestIdleCallback ? requestIdleCallback(done, { timeout: 500 }) : setTimeout(done, 20)));

  // --- MathJax ------------------------------------------------------------------------------------------------------

  let started = null;

  /** Fetch and start MathJax once. Resolves to false where it cannot be had: the TeX stays as it is. */
  function start() {
    started ??= new Promise((done) => {
      if (!own.dataset.mathjax) return done(false);
      const drawn = () => window.MathJax.startup.promise.then(() => done(true), () => done(false));
      const failed = () => done(false);
      window.MathJax = { ...window.MathJax, startup: { typeset: false }, onstart: drawn, onfail: failed };
      const script = document.createElement("script");
      script.src = own.dataset.mathjax;
      script.onerror = failed;
      document.head.append(script);
    });
    return started;
  }

  const waiting = new Set(); // formulas to draw
  let drawing = null;
  let hurried = 0; // how many wait for all of them

  /** Draw what waits, a few at a time; resolves when nothing waits any more. */
  function draw() {
    drawing ??= (async () => {
      if (await start()) {
        while (waiting.size) {
          const some = [...waiting].slice(0, hurried ? Infinity : AT_ONCE);
          some.forEach((formula) => waiting.delete(formula));
          await window.MathJax.typesetPromise(some);
          reachable(some);
          if (!hurried) await idle();
        }
      }
      waiting.clear(); // without MathJax the TeX stays
      drawing = null;
    })();
    return drawing;
  }

  /** A formula wider than its box scrolls in itself, or in its paragraph: the keyboard must reach what scrolls. */
  function reachable(formulas) {
    const boxes = new Set(formulas.flatMap((formula) => [formula.querySelector("mjx-container"), formula.closest("p, dd")]));
    boxes.delete(null);
    const wide = [...boxes].filter((box) => box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX === "auto");
    wide.forEach((box) => (box.tabIndex = 0));
  }

  const formulasIn = (element) => [...element.querySelectorAll(".math")].filter((formula) => !formula.querySelector("mjx-container"));

  async function drawAll(element) {
    formulasIn(element).forEach((formula) => waiting.add(formula));
    hurried += 1;
    while (waiting.size || drawing) await draw();
    hurried -= 1;
  }

  function drawNearTheView() {
    if (!window.IntersectionObserver) return void drawAll(document);
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (!isIntersecting) continue;
          observer.unobserve(target);
          waiting.add(target);
        }
        if (waiting.size) draw();
      },
      { rootMargin: `${AHEAD} 0px` },
    );
    formulasIn(document).forEach((formula) => observer.observe(formula));
  }

  window.typeset = drawAll;

  // --- paper --------------------------------------------------------------------------------------------------------

  window.drawWholePage = async () => {
    const pictures = [...document.images];
    pictures.forEach((picture) => (picture.loading = "eager"));
    if (own.dataset.mathjax !== undefined) await drawAll(document);
    // A picture that is missing must not keep the others from the paper.
    await Promise.all(pictures.map((picture) => picture.decode().catch(() => {})));
    await document.fonts.ready;
  };

  const print = window.print.bind(window);
  window.print = () => window.drawWholePage().then(print);
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    event.preventDefault();
    window.print();
  });

  // --- keyboard -----------------------------------------------------------------------------------------------------

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

  // --- menu ---------------------------------------------------------------------------------------------------------

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

  // The text comes first: formulas wait until the page stands.
  if (own.dataset.mathjax !== undefined) {
    if (document.readyState === "complete") drawNearTheView();
    else window.addEventListener("load", drawNearTheView, { once: true });
  }
})();
