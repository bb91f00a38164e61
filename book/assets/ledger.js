/* The ledger answers: filters claims, counts, keeps the choice in the address, opens the claim that a link names.
 *
 * A plain script without modules: pages are read from disk, too. Without it every claim is listed and can be opened.
 * Written by book/bookkit/ledger/page.py: form.ledger-filter, nav.ledger-overview,
 * div.ledger-group > div.ledger-page > details.claim.
 *
 * The address: ?paper=2410.07746&verdict=fails&sharpness=over 10 %&source=derived;measured&page=single_head/02_two_steps&q=margin&order=weakest#claim-c8
 * Choices of one kind are joined by "or", kinds by "and", words by "and". `part=` (once `wing=`) is read, too.
 */
(function () {
  "use strict";

  const form = document.querySelector(".ledger-filter");
  const overview = document.querySelector(".ledger-overview");
  const kinds = ["paper", "verdict", "sharpness", "source"];
  const papers = {}; // part -> value of the chip "paper"
  const claims = readClaims();
  const flat = document.createElement("div");
  flat.className = "ledger-flat";
  const byId = new Map(claims.map((claim) => [claim.node.id, claim]));

  /** What can be asked of each claim; hundreds of them, so that nothing is looked up before it is needed. */
  function readClaims() {
    const options = form ? [...form.querySelectorAll("optgroup > option:first-child")] : [];
    const chips = form ? [...form.querySelectorAll("[name=paper]")] : [];
    options.forEach((option, place) => { if (chips[place]) papers[option.value] = chips[place].value; });
    const found = [];
    for (const group of document.querySelectorAll(".ledger-group")) {
      const {part, source} = group.dataset;
      for (const page of group.querySelectorAll(".ledger-page")) {
        for (const node of page.querySelectorAll("details")) {
          const verdict = node.dataset.verdict || "holds";
          const sharpness = node.dataset.sharpness;
          const size = node.dataset.size === undefined ? -1 : Number(node.dataset.size);
          const paper = papers[part] || "none";
          found.push({node, part, paper, source, verdict, sharpness, size, page: page.dataset.page, home: page, group});
        }
      }
    }
    return found;
  }

  /** The words of a claim, read once. */
  function wordsOf(claim) {
    // A formula is found by its TeX.
    const tex = () => [...claim.node.querySelectorAll("[data-tex]")].map((formula) => formula.dataset.tex).join(" ");
    claim.words = claim.words || plain(`${claim.node.textContent} ${tex()}`);
    return claim.words;
  }

  function badge(claim) {
    return claim.node.querySelector(".verdict").textContent;
  }

  /** Letters without case and accents, signs of LaTeX dropped: "\(\rho\)" is found by "rho" and by "\rho". */
  function plain(text) {
    return text.normalize("NFKD").replace(/[\u0300-\u036f\\{}$]/g, "").replace(/\s+/g, " ").toLowerCase();
  }

  // --- the choice -------------------------------------------------------------------------------------------------

  /** What the form says: {paper: Set, verdict: Set, source: Set, page: text, words: [text]}. */
  function chosen() {
    const state = {page: form.elements.page.value, words: plain(form.elements.q.value).trim().split(" ").filter(Boolean)};
    for (const kind of kinds) {
      state[kind] = new Set([...form.querySelectorAll(`[name=${kind}]:checked`)].map((box) => box.value));
    }
    return state;
  }

  /** Whether a claim meets the choice; one kind can be left out, to count what another choice of it would give. */
  function meets(claim, state, without) {
    return (
      kinds.every((kind) => kind === without || !state[kind].size || state[kind].has(claim[kind])) &&
      (!state.page || claim.page === state.page || claim.part === state.page) &&
      state.words.every((word) => wordsOf(claim).includes(word))
    );
  }

  function show() {
    order();
    const state = chosen();
    const shown = new Set(claims.filter((claim) => meets(claim, state)));
    for (const claim of claims) claim.node.hidden = !shown.has(claim);
    for (const group of document.querySelectorAll(".ledger-group")) {
      const left = group.querySelectorAll(".claim:not([hidden])").length;
      group.hidden = !left;
      group.querySelector(".ledger-head span").textContent = left;
      for (const page of group.querySelectorAll(".ledger-page")) page.hidden = !page.querySelector(".claim:not([hidden])");
      const section = group.closest("section");
      section.classList.toggle("ledger-none", !section.querySelector(".ledger-group:not([hidden])"));
    }
    if (overview) overview.classList.toggle("chosen", shown.size < claims.length);
    for (const square of squares()) square.classList.toggle("dim", !shown.has(byId.get(square.hash.slice(1))));
    for (const kind of kinds) {
      const others = claims.filter((claim) => meets(claim, state, kind));
      for (const box of form.querySelectorAll(`[name=${kind}]`)) {
        const count = others.filter((claim) => claim[kind] === box.value).length;
        box.parentElement.querySelector("small").textContent = count;
        box.parentElement.classList.toggle("empty", !count && !box.checked);
      }
    }
    form.querySelector(".ledger-count").textContent = sentence([...shown]);
  }

  /** One list of all claims, the least sharp first, bounds and what has no scale last; or each claim back under its page. */
  function order() {
    const weakest = form.elements.order.value === "weakest";
    if (weakest === flat.isConnected) return;
    if (weakest) {
      flat.append(...[...claims].sort((a, b) => b.size - a.size).map(alone));
      document.querySelector(".ledger-group").closest("section").before(flat);
    } else {
      for (const claim of claims) claim.home.append(claim.node);
      flat.replaceChildren();
      flat.remove();
    }
  }

  /** A claim out of its group, with what the style sheet writes into its row, and with its size. */
  function alone(claim) {
    const holder = document.createElement("div");
    holder.dataset.source = claim.source;
    holder.style.cssText = claim.group.style.cssText;
    const words = claim.size < 0 ? "" : claim.size < 1e-3 ? "under\u00a00.1\u00a0%" : `${Number((100 * claim.size).toPrecision(2))}\u00a0%`;
    if (words) holder.style.setProperty("--part", `${claim.group.style.getPropertyValue("--part")} " · ${words}"`);
    holder.append(claim.node);
    return holder;
  }

  /** As in "12 of 350 claims: 11 hold, 1 fails as expected"; verdicts in the words of their badges. */
  function sentence(shown) {
    if (!shown.length) return "Nothing matches. Take a choice back, or press Reset to see all claims.";
    const counts = new Map();
    for (const name of shown.map(badge)) counts.set(name, (counts.get(name) || 0) + 1);
    // One claim, several claims.
    const said = {
      holds: ["holds", "hold"],
      "not contradicted": ["is not contradicted", "are not contradicted"],
      "fails as expected": ["fails as expected", "fail as expected"],
      "outside its regime": ["is outside its regime", "are outside their regime"],
    };
    const order = Object.keys(said);
    const parts = [...counts].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b))
      .map(([name, count]) => `${count} ${(said[name] || [name, name])[count > 1 ? 1 : 0]}`);
    const all = shown.length === claims.length ? "All" : `${shown.length} of`;
    return `${all} ${claims.length} claims: ${parts.join(", ")}.`;
  }

  function squares() {
    return overview ? [...overview.querySelectorAll(".ledger-squares a")] : [];
  }

  // --- the address ------------------------------------------------------------------------------------------------

  function writeAddress(hash) {
    const query = new URLSearchParams();
    for (const kind of kinds) {
      const values = [...form.querySelectorAll(`[name=${kind}]:checked`)].map((box) => box.value);
      if (values.length) query.set(kind, values.join(";"));
    }
    if (form.elements.page.value) query.set("page", form.elements.page.value);
    if (form.elements.q.value.trim()) query.set("q", form.elements.q.value.trim());
    if (form.elements.order.value) query.set("order", form.elements.order.value);
    const text = query.toString();
    try {
      history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}${hash}`);
    } catch (error) {
      // Some browsers refuse on pages read from disk: the list is filtered all the same.
    }
  }

  /** The choice of the address; names that are not known are passed over. */
  function readAddress() {
    const query = new URLSearchParams(location.search);
    for (const kind of kinds) {
      const values = (query.get(kind) || "").split(";");
      for (const box of form.querySelectorAll(`[name=${kind}]`)) box.checked = values.includes(box.value);
    }
    const page = query.get("page") || query.get("part") || query.get("wing") || "";
    const known = [...form.elements.page.options].some((option) => option.value === page);
    form.elements.page.value = known ? page : "";
    form.elements.q.value = query.get("q") || "";
    form.elements.order.value = query.get("order") === "weakest" ? "weakest" : "";
  }

  // --- one claim --------------------------------------------------------------------------------------------------

  /** Open the claim that the address names and go there; a filter that hides it is taken back. */
  function openNamed() {
    const claim = byId.get(location.hash.slice(1));
    if (!claim) return;
    if (claim.node.hidden) {
      form.reset();
      writeAddress(location.hash);
      show();
    }
    wordsOf(claim);
    claim.node.open = true;
    claim.node.scrollIntoView();
    claim.node.querySelector("summary").focus({preventScroll: true});
  }

  /** What claims share, said in the one that is opened: its page, the commands, its source line, its own address. */
  function equip(node) {
    const list = node.querySelector("dl");
    if (list.querySelector(".claim-link")) return;
    const {home, group} = byId.get(node.id);
    const head = home.querySelector(".ledger-from");
    const [again, read] = [...head.querySelectorAll("code")].map((code) => code.textContent);
    const id = node.querySelector("summary b").textContent.split("-").pop(); // III-I11 is registered as I11
    const lines = [again, `${read} ${id}`];
    linkFunction(list.querySelector("code"), group.dataset.repository);

    const command = document.createElement("pre");
    command.textContent = lines.join("\n");
    const link = document.createElement("a");
    link.className = "claim-link";
    link.href = `#${node.id}`;
    link.textContent = `${location.pathname.split("/").slice(-2).join("/")}#${node.id}`;
    row(list, "Page", [head.querySelector("a").cloneNode(true)]);
    row(list, "Run it", [command, copyButton("Copy the command", () => lines.join(" && "))]);
    row(list, "Link", [link, copyButton("Copy link", () => link.href)]);
  }

  function row(list, name, said) {
    const term = document.createElement("dt");
    term.textContent = name;
    const description = document.createElement("dd");
    description.append(...said);
    list.append(term, description);
  }

  /** attnlib.part.claims.name with data-at 12 -> REPOSITORY attnlib/part/claims.py#L12; or data-at is file#L12 itself. */
  function linkFunction(code, repository) {
    const at = code.dataset.at;
    if (!at || !repository) return;
    const file = `${code.textContent.split(".").slice(0, -1).join("/")}.py#L`;
    const link = document.createElement("a");
    link.href = repository + (/^\d+$/.test(at) ? file + at : at);
    code.replaceWith(link);
    link.append(code);
  }

  function copyButton(label, text) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "claim-copy screen-only";
    button.textContent = label;
    const said = document.createElement("span");
    said.setAttribute("role", "status");
    said.className = "claim-copied screen-only";
    button.addEventListener("click", () => {
      copy(text()).then(
        () => { said.textContent = "Copied."; },
        () => { said.textContent = "This browser does not let a page copy: select the text instead."; },
      );
    });
    const both = document.createElement("span");
    both.append(button, said);
    return both;
  }

  function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text).catch(() => copyOldWay(text));
    return copyOldWay(text);
  }

  /** For pages whose browser keeps the clipboard to itself. */
  function copyOldWay(text) {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("not copied"));
  }

  // --- start ------------------------------------------------------------------------------------------------------

  document.addEventListener("toggle", (event) => {
    const claim = byId.get(event.target.id);
    if (claim && claim.node.open) {
      wordsOf(claim);
      equip(claim.node);
    }
  }, true);

  /** A square says which claim it is before it is pressed. */
  function nameSquare(event) {
    const square = event.target.closest(".ledger-squares a");
    const claim = square && byId.get(square.hash.slice(1));
    if (!claim || square.title) return;
    square.title = `${square.textContent.split(" ")[0]}: ${claim.node.querySelector("summary span").textContent} (${badge(claim)})`;
  }
  if (overview) {
    overview.addEventListener("pointerover", nameSquare);
    overview.addEventListener("focusin", nameSquare);
  }

  window.addEventListener("hashchange", openNamed);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#claim-']");
    if (link && link.hash === location.hash) openNamed(); // the browser sees no change of address
  });
  if (form && claims.length) {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { show(); writeAddress(""); });
    form.addEventListener("reset", () => setTimeout(() => { show(); writeAddress(""); }));
    window.addEventListener("popstate", () => { readAddress(); show(); });
    if (location.search) {
      readAddress();
      show();
    }
  }
  openNamed();
})();
