/** What the colours mean, in one row above the plot: a line's piece, a point, a band. Equal labels share one entry. */
import {css} from "./colours.js";
import {fillHtml} from "./rich.js";
import {svgNode} from "./plot.js";

export function drawLegend({legend, items, spec}) {
  const entries = new Map();
  const add = (kind) => (item) => {
    if (!item.label) return;
    if (!entries.has(item.label)) entries.set(item.label, []);
    entries.get(item.label).push({...item, kind});
  };
  items.areas.forEach(add("area"));
  items.lines.forEach(add("line"));
  items.contours.forEach(add("line"));
  items.points.forEach(add("point"));
  const shown = spec.legend === "none" ? [] : [...entries];
  const signature = JSON.stringify(
    shown.map(([label, list]) => [label, list.map(({kind, colour, dash, hollow}) => [kind, colour, dash, hollow])]),
  );
  if (signature === legend.dataset.shown) return;
  legend.dataset.shown = signature;
  legend.hidden = !shown.length;
  legend.textContent = "";
  for (const [label, list] of shown) {
    const entry = legend.appendChild(document.createElement("li"));
    entry.appendChild(swatch(list));
    fillHtml(entry.appendChild(document.createElement("span")), label);
  }
}

function swatch(list) {
  const svg = svgNode("svg");
  for (const [name, value] of Object.entries({width: 26, height: 12, "aria-hidden": "true", focusable: "false"}))
    svg.setAttribute(name, value);
  const draw = (name, attributes, style) => {
    const node = svg.appendChild(svgNode(name));
    for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
    Object.assign(node.style, style);
  };
  for (const {kind, colour, dash, hollow, opacity, width} of list) {
    if (kind === "area")
      draw("rect", {x: 1, y: 1, width: 24, height: 10, opacity: opacity ?? 0.18}, {fill: css(colour ?? "bound")});
    if (kind === "line") {
      const dashes = dash ? ({true: "5 4", dotted: "1.5 4"}[dash] ?? dash) : null;
      draw(
        "line",
        {x1: 1, x2: 25, y1: 6, y2: 6, "stroke-dasharray": dashes},
        {stroke: css(colour ?? "theory"), strokeWidth: width ?? 1.8},
      );
    }
    if (kind === "point") {
      const ink = css(colour ?? "measured");
      draw(
        "circle",
        {cx: 13, cy: 6, r: 3.6, "stroke-width": 1.4},
        {stroke: ink, fill: hollow ? "var(--explorer-paper)" : ink},
      );
    }
  }
  return svg;
}
