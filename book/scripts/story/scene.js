/**
 * A drawing as a list of marks, without a page around it: the same list becomes a still picture (text, here) or a live one (stage.js).
 *
 * A mark is {tag, key, at: {attribute: value}, text}. Marks with the same key in two drawings are the same thing: it moves from one to
 * the other. Lengths are those of the view box; letters are 15 or more of its 480, so that they can be read on a phone.
 */
import {css} from "../shared/colours.js";

export const WIDTH = 480;
export const HEIGHT = 360;
const UI = "var(--book-ui-font, system-ui, sans-serif)";
const OWN = {ink: "var(--book-ink, #222222)", quiet: "var(--book-quiet, #4d5560)", rule: "var(--book-rule, #d8dce2)", paper: "var(--book-paper, #ffffff)"};

/** A colour of the book by name. */
export const colour = (name) => OWN[name] ?? css(name);
export const round = (value) => Math.round(value * 100) / 100;

const mark = (tag, key, at, text) => ({tag, key, at, text});

export const line = (key, x1, y1, x2, y2, {stroke = "ink", width = 1.5, dash, opacity} = {}) =>
  mark("path", key, {d: `M${round(x1)} ${round(y1)}L${round(x2)} ${round(y2)}`, fill: "none", stroke: colour(stroke), "stroke-width": width,
    "stroke-linecap": dash ? "butt" : "round", "stroke-dasharray": dash, opacity});

export const rect = (key, x, y, width, height, {fill = "ink", opacity, stroke, rx} = {}) =>
  mark("rect", key, {x: round(x), y: round(y), width: round(Math.max(0, width)), height: round(Math.max(0, height)), fill: fill === "none" ? "none" : colour(fill),
    opacity, stroke: stroke && colour(stroke), rx});

export const dot = (key, x, y, r, {fill = "ink", stroke = "paper", width = 1.5, opacity} = {}) =>
  mark("circle", key, {cx: round(x), cy: round(y), r, fill: fill === "none" ? "none" : colour(fill), stroke: colour(stroke), "stroke-width": width, opacity});

export const path = (key, d, {fill = "none", stroke = "none", width = 1.5, opacity, dash, cap} = {}) =>
  mark("path", key, {d, fill: fill === "none" ? "none" : colour(fill), stroke: stroke === "none" ? "none" : colour(stroke), "stroke-width": width,
    "stroke-linejoin": "round", "stroke-linecap": cap, "stroke-dasharray": dash, opacity});

/** anchor: start, middle or end. */
export const words = (key, x, y, text, {anchor = "start", size = 15, fill = "ink", weight} = {}) =>
  mark("text", key, {x: round(x), y: round(y), fill: colour(fill), "font-family": UI, "font-size": size, "font-weight": weight, "text-anchor": anchor}, text);

/** From (x1, y1) to (x2, y2): the tip of the head is the end. A short arrow has a small head. */
export function arrow(key, x1, y1, x2, y2, {stroke = "ink", width = 2.5, opacity, head = 3.2, dash} = {}) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  const size = Math.min(head * width, 0.6 * length);
  const [ux, uy] = length ? [(x2 - x1) / length, (y2 - y1) / length] : [1, 0];
  const [bx, by] = [x2 - size * ux, y2 - size * uy];
  const side = 0.42 * size;
  const d = `M${round(x1)} ${round(y1)}L${round(bx)} ${round(by)}M${round(x2)} ${round(y2)}L${round(bx - side * uy)} ${round(by + side * ux)}L${round(bx + side * uy)} ${round(by - side * ux)}Z`;
  return mark("path", key, {d, fill: colour(stroke), stroke: colour(stroke), "stroke-width": width, "stroke-linejoin": "round", "stroke-dasharray": dash, opacity});
}

const escaped = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");

const attributes = (at) =>
  Object.entries(at)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => ` ${name}="${escaped(value)}"`)
    .join("");

/** The drawing as an SVG element in text; `says` is read aloud in its place. */
export function toSvg(marks, says, {width = WIDTH, height = HEIGHT} = {}) {
  const body = marks.map(({tag, at, text}) => `<${tag}${attributes(at)}${text === undefined ? "/>" : `>${escaped(text)}</${tag}>`}`);
  const name = says ? `role="img" aria-label="${escaped(says)}"` : 'aria-hidden="true"';
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" ${name}>\n${body.join("\n")}\n</svg>\n`;
}
