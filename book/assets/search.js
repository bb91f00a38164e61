/* Search, on the search page only, before Sphinx's own script: pages that treat what is asked come first, and excerpts come from
 * one file, also from a disk.
 *
 * bookkit/sphinx/search.py writes what both need: `window.bookSubjects` = {document: {word or pair of words: weight}} in
 * search_subjects.js, on the page; `window.bookTexts` = {document: text} in search_texts.js, asked for by the first result.
 */
(() => {
  "use strict";
  const own = document.currentScript.src;
  // A paper's number on arXiv is one word, as in the index (bookkit/sphinx/search.py): Sphinx looks for no numbers.
  // And a word that all objects of JavaScript hold, as "constructor", would be found where no page has it.
  window.splitQuery = (query) => (query.replace(/\b(\d{4})\.(\d{5})\b/g, "arxiv$1x$2").match(/[\p{L}\p{N}_]+/gu) ?? [])
    .map((word) => (word.toLowerCase() in {} ? `${word}_` : word));
  const words = window.splitQuery((new URLSearchParams(location.search).get("q") ?? "").toLowerCase());
  const whole = words.join(" ");
  const asked = [...words, ...words.slice(1).map((word, place) => `${words[place]} ${word}`), ...(words.length > 2 ? [whole] : [])];

  /** Whether a page's title begins with what is asked ("max margin": "I.4 Maximum margin"); its number or kind may stand before. */
  const begins = (title) => {
    const own = window.splitQuery(title.toLowerCase().replace(/^([ivx]+\.\d+ |explorer: )/, ""));
    return words.length > 0 && words.every((word, place) => own[place]?.startsWith(word));
  };

  // Sphinx gives 15 to a word in a title and 5 to a word in the text, however often it stands there.
  window.Scorer = {
    score: ([name, title, anchor, , score]) => score + asked.reduce((sum, term) => sum + (window.bookSubjects?.[name]?.[term] ?? 0), 0)
      + (!anchor && begins(title) ? 300 : 0),
    objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
    title: 15, partialTitle: 7, term: 5, partialTerm: 2,
  };

  let texts = null;
  const load = () => (texts ??= new Promise((done) => {
    const script = document.createElement("script");
    script.src = new URL("search_texts.js", own).href;
    script.onload = () => done(window.bookTexts);
    script.onerror = () => done({});
    document.head.append(script);
  }));
  // Sphinx's script would read each page that it found, and no page from a disk may: it gets the text from here.
  window.fetch = async (address) => {
    const name = new URL(address, location.href).href.slice(new URL("..", own).href.length).replace(/\.html$/, "");
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = (await load())[name] ?? "";
    return { text: async () => main.outerHTML };
  };
})();
