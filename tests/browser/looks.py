"""What a page of the book must be in a browser. Each check returns its faults in words; none is good."""

import re

from axe_playwright_python.base import AXE_SCRIPT

from tests.browser.browsing import Visit

# The only serious finding of axe that stays, as axe's rule and a piece of its HTML: docutils writes the bibliography as a list
# whose return links are not list items; its content reads well aloud. Everything else is an error.
ALLOWED = {"aria-required-children": 'class="citation-list"'}

# Least contrast, WCAG AA, of all text of the article. Backgrounds may be half transparent: they are laid over each other.
CONTRAST = """() => {
  const rgba = text => { const p = text.match(/[\\d.]+/g).map(Number); return [p[0], p[1], p[2], p[3] ?? 1]; };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const background = node => {
    if (!node) return [255, 255, 255, 1];
    const own = rgba(getComputedStyle(node).backgroundColor);
    return own[3] === 1 ? own : over(own, background(node.parentElement));
  };
  const light = c => { const f = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                       return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  let worst = {ratio: 21, text: "", texts: 0};
  for (const node of document.querySelectorAll(".bd-article :is(p, li, td, th, h1, h2, h3, figcaption, a, code, span)")) {
    const text = [...node.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
    if (!text || !node.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    if (node.closest(".headerlink, math, .visually-hidden")) continue;
    const behind = background(node), front = over(rgba(getComputedStyle(node).color), behind);
    const [a, b] = [light(front), light(behind)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    worst.texts += 1;
    if (ratio < worst.ratio) worst = {...worst, ratio, text: `${node.tagName} ${node.className}: ${text.slice(0, 60)}`};
  }
  return worst;
}"""

# Findings of axe as one list; slighter ones than serious are no fault. Formulas go first: a page has thousands of their parts, and
# axe looks at each. Contrast takes three quarters of its time and is judged by CONTRAST; axe does it where `contrast` is asked for.
FINDINGS = """async contrast => {
  document.querySelectorAll("math").forEach(formula => formula.replaceChildren());
  const found = await axe.run({resultTypes: ["violations"], preload: false, rules: {"color-contrast": {enabled: contrast}}});
  return found.violations
  .filter(({impact}) => ["serious", "critical"].includes(impact))
  .flatMap(({id, impact, nodes}) => nodes.map(({html, failureSummary}) => ({id, impact, html, summary: failureSummary})));
}"""


def loading(visit: Visit) -> list[str]:
    """Requests to other hosts, errors in the console, pictures that did not arrive."""
    broken = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => `broken picture: ${i.src}`)"
    # A request to a host that is not found is in the console, too.
    errors = [f"console: {text}" for text in visit.errors if "ERR_NAME_NOT_RESOLVED" not in text]
    return [f"asks another host: {url}" for url in visit.outside] + visit.page.evaluate(broken) + errors


def sideways(visit: Visit) -> list[str]:
    """Whether the document is wider than the window. Boxes that scroll in themselves do not count."""
    moved = visit.page.evaluate("() => { scrollTo(500, 0); return scrollX }")
    return [f"scrolls sideways by {moved} px"] if moved else []


def centred(visit: Visit) -> list[str]:
    """Formulas on lines of their own, without a number, that do not stand in the middle of their column."""
    return visit.page.evaluate("""() => [...document.querySelectorAll("div.math > .formula:only-child")]
      .filter(node => node.checkVisibility() && node.scrollWidth <= node.clientWidth)
      .map(node => {
        const parts = [...node.children].map(part => part.getBoundingClientRect()), box = node.parentElement.getBoundingClientRect();
        const middle = (Math.min(...parts.map(p => p.left)) + Math.max(...parts.map(p => p.right))) / 2;
        return [Math.round(middle - (box.left + box.right) / 2), node.parentElement.dataset.tex];
      })
      .filter(([off]) => Math.abs(off) > 4)
      .map(([off, tex]) => `formula ${off} px off the middle: ${tex.slice(0, 60)}`)""")


def small_code(visit: Visit) -> list[str]:
    """Code that is read, set in less than 13 px, or so large that a line of 88 letters scrolls."""
    return visit.page.evaluate("""() => [...document.querySelectorAll('.cell:not([class*="tag_hide"]) .cell_input pre')]
      .map(pre => {
        const ruler = pre.appendChild(document.createElement("span")), style = getComputedStyle(pre);
        ruler.textContent = "0".repeat(88);
        const room = pre.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        const line = Math.ceil(ruler.getBoundingClientRect().width), code = pre.textContent.slice(0, 40);
        ruler.remove();
        if (parseFloat(style.fontSize) < 13) return `code of ${style.fontSize}: ${code}`;
        return line > room ? `88 letters do not fit: ${line} px in ${room} px: ${code}` : "";
      })
      .filter(Boolean)""")


def uneven(visit: Visit) -> list[str]:
    """Formulas between two paragraphs that have more room above than below, or less."""
    return visit.page.evaluate("""() => [...document.querySelectorAll("div.math")]
      .filter(box => box.checkVisibility() && box.previousElementSibling?.matches("p") && box.nextElementSibling?.matches("p"))
      .map(box => {
        const parts = [...box.querySelectorAll("math")].map(part => part.getBoundingClientRect());
        const above = Math.min(...parts.map(p => p.top)) - box.previousElementSibling.getBoundingClientRect().bottom;
        const below = box.nextElementSibling.getBoundingClientRect().top - Math.max(...parts.map(p => p.bottom));
        const even = Math.abs(above - below) <= 4 && below >= 12;
        return even ? "" : `uneven room: ${above} px above, ${below} below: ${box.dataset.tex.slice(0, 60)}`;
      })
      .filter(Boolean)""")


def ledger_fits(visit: Visit) -> list[str]:
    """On a desktop the ledger is seen whole: no box around it scrolls, no cell is narrower than its content."""
    return visit.page.evaluate("""() => [...document.querySelectorAll("table.ledger, table.ledger td")]
      .map(node => node.matches("table") ? node.parentElement : node)
      .filter(node => node.scrollWidth > node.clientWidth + 1)
      .map(node => `${node.scrollWidth} px in ${node.clientWidth} px: ${node.textContent.slice(0, 80)}`)""")


def readable(visit: Visit, scheme: str) -> list[str]:
    """Whether the page follows the reader's `scheme`, and text with contrast below 4.5 (WCAG AA)."""
    paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", paper)[:3])) / 3
    good = brightness < 60 if scheme == "dark" else brightness > 240
    worst = visit.page.evaluate(CONTRAST)
    faults = [] if good else [f"paper is {paper} in {scheme} mode"]
    faults += [] if worst["texts"] else ["no text found"]
    return faults + ([f"contrast {worst['ratio']:.2f} of {worst['text']}"] if worst["ratio"] < 4.5 else [])


def accessible(visit: Visit, contrast: bool = False) -> list[str]:
    """Serious and critical findings of axe-core that are not in `ALLOWED`. The page has no formulas afterwards: ask last."""
    visit.page.evaluate(AXE_SCRIPT)
    return [
        f"{finding['id']} ({finding['impact']}): {finding['html'][:200]} {finding['summary'][:200]}"
        for finding in visit.page.evaluate(FINDINGS, contrast)
        if ALLOWED.get(finding["id"], "\0") not in finding["html"]
    ]
