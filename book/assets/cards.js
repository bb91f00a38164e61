/* Hover cards: what a claim, a theorem, a citation or a symbol says, beside the link that is pointed at, reached by keyboard or
 * touched. Escape closes. Without this script the links are links.
 *
 * What the cards say lies in cards_data.js (written by book/bookkit/sphinx/hover_cards.py), a script file that is asked for
 * when the first such link is pointed at: it works from file://. A citation's card is its link's own title.
 * A link that is touched shows its card first; the card, or a second touch, leads on. A formula that is one symbol of the
 * notation has a card for pointer and touch.
 */
(() => {
  "use strict";
  const root = new URL("..", document.currentScript.src).href; // the book's folder
  const DATA = "_static/cards_data.js";
  const PAUSE = 160; // ms before a card comes or goes: the pointer may only be passing
  const LONGEST = 40; // letters of TeX in a symbol

  const article = document.querySelector("article");
  if (!article) return;
  const card = document.createElement("div");
  card.id = "hover-card";
  card.className = "hover-card screen-only";
  card.setAttribute("role", "tooltip");
  card.hidden = true;
  document.body.append(card);

  let of = null; // whose card is shown
  let asked = null; // whose card is to be shown
  let timer;

  let data = null;
  function load() {
    data ??= new Promise((done) => {
      const script = document.createElement("script");
      script.src = root + DATA;
      script.onload = () => done(window.bookCards);
      script.onerror = () => done({ links: {}, symbols: {} });
      document.head.append(script);
    });
    return data;
  }

  // --- what has a card ------------------------------------------------------------------------------------------------

  const ASIDE = ".headerlink, .ledger-squares a, .claim-link, nav a";

  /** The link or the formula at a place that may have a card. */
  function candidate(node) {
    const link = node.closest?.("a[href]");
    if (link) return article.contains(link) && link.hash && link.href.startsWith(root) && !link.matches(ASIDE) ? link : null;
    const formula = node.closest?.("span.math");
    return formula && article.contains(formula) && symbolOf(formula) ? formula : null;
  }

  /** The TeX of a short formula without its spaces. */
  function symbolOf(formula) {
    const tex = formula.dataset.tex ?? "";
    return tex.length <= LONGEST ? tex.replace(/\s/g, "") : "";
  }

  /** The card of a candidate, as HTML; nothing where the book has none. */
  function said(node, { links, symbols }) {
    if (!node.matches("a")) {
      const page = location.href.slice(root.length).split(/[?#]/)[0];
      const part = Object.keys(symbols).find((name) => name && new RegExp(`(^|/)${name}[/_]`).test(page));
      return symbols[part]?.[symbolOf(node)] ?? symbols[""]?.[symbolOf(node)];
    }
    const key = decodeURIComponent(node.href.slice(root.length).replace(/\?[^#]*/, ""));
    if (links[key]) return links[key];
    if (!node.closest(".bibtex-citation") || !(node.title || node.dataset.title)) return undefined;
    const text = document.createElement("p");
    text.textContent = node.title || node.dataset.title;
    return text.outerHTML;
  }

  // --- showing --------------------------------------------------------------------------------------------------------

  function place() {
    const at = of.getClientRects()[0] ?? of.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const below = at.bottom + card.offsetHeight + 12 < window.innerHeight || at.top < card.offsetHeight + 70;
    card.style.left = `${Math.max(8, Math.min(at.left, wide - card.offsetWidth - 8)) + window.scrollX}px`;
    card.style.top = `${(below ? at.bottom + 6 : at.top - card.offsetHeight - 6) + window.scrollY}px`;
  }

  /** Show the card of `node`. Resolves to whether it has one. */
  async function show(node) {
    asked = node;
    const html = said(node, await load());
    if (asked !== node) return false;
    if (!html) {
      hide();
      return false;
    }
    if (of !== node) hide();
    asked = of = node;
    if (node.title) { // the browser would show it as well
      node.dataset.title = node.title;
      node.removeAttribute("title");
    }
    card.innerHTML = html;
    if (node.matches("a")) {
      const on = document.createElement("a");
      on.href = node.href;
      on.textContent = "Go there";
      on.tabIndex = -1; // the link itself is the stop on the keyboard's way
      card.append(on);
    }
    node.setAttribute("aria-describedby", card.id);
    card.hidden = false;
    place();
    return true;
  }

  function hide() {
    clearTimeout(timer);
    asked = null;
    if (!of) return;
    of.removeAttribute("aria-describedby");
    if (of.dataset.title) {
      of.title = of.dataset.title;
      delete of.dataset.title;
    }
    of = null;
    card.hidden = true;
  }

  // --- pointer, keyboard, touch ---------------------------------------------------------------------------------------

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    clearTimeout(timer);
    if (card.contains(event.target)) return; // the card can be read and followed
    const node = candidate(event.target);
    if (node) {
      load();
      timer = setTimeout(() => show(node), PAUSE);
    } else if (of || asked) timer = setTimeout(hide, 2 * PAUSE);
  });
  article.addEventListener("focusin", (event) => {
    const node = candidate(event.target);
    if (node && event.target.matches(":focus-visible")) show(node);
  });
  article.addEventListener("focusout", (event) => {
    if (of && event.target === of && !card.matches(":hover")) hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });

  let touched = false;
  document.addEventListener("pointerdown", (event) => (touched = event.pointerType === "touch"), true);
  document.addEventListener("click", (event) => {
    if (card.contains(event.target)) return event.target.closest("a") && hide();
    if (!touched || event.ctrlKey || event.metaKey) return hide();
    const node = candidate(event.target);
    if (!node || node === of) return hide(); // the second touch leads on
    if (!node.matches("a")) return void show(node);
    event.preventDefault();
    show(node).then((shown) => {
      if (!shown && asked !== node) location.href = node.href;
    });
  });
})();
