/** Short labels with <i>, <sub> and <sup>, written by authors, as SVG text or as HTML. Nothing else is read as markup. */

const PIECE = /<(i|sub|sup)>(.*?)<\/\1>/;

/** [{text, kind}] with kind "", "i", "sub" or "sup"; one level deep. */
function pieces(label) {
  const found = [];
  let rest = String(label);
  for (let match = PIECE.exec(rest); match; match = PIECE.exec(rest)) {
    if (match.index) found.push({text: rest.slice(0, match.index), kind: ""});
    found.push({text: match[2], kind: match[1]});
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest) found.push({text: rest, kind: ""});
  return found;
}

/** The label without markup, for screen readers and the address. */
export const plainText = (label) =>
  pieces(label)
    .map(({text}) => text)
    .join("");

/** Fill an HTML element with the label. */
export function fillHtml(node, label) {
  node.textContent = "";
  for (const {text, kind} of pieces(label)) {
    if (!kind) node.append(text);
    else node.appendChild(document.createElement(kind)).textContent = text;
  }
  return node;
}

/** Fill an SVG <text> with the label: letters in italics, indices lowered or raised. */
export function fillSvg(node, label) {
  node.textContent = "";
  let shift = 0;
  for (const {text, kind} of pieces(label)) {
    const span = node.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "tspan"));
    span.textContent = text;
    const wanted = kind === "sub" ? 0.28 : kind === "sup" ? -0.42 : 0;
    if (kind === "i") span.setAttribute("font-style", "italic");
    if (wanted) span.setAttribute("font-size", "75%");
    // dy is in the span's own, maybe smaller, letters; the way back must be as long as the way there.
    const letters = wanted ? 0.75 : 1;
    if (wanted - shift) span.setAttribute("dy", `${(wanted - shift) / letters}em`);
    shift = wanted;
  }
  return node;
}
