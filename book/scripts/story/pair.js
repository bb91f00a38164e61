/** Panel 8: two softmax heads of opposite sign over the forty examples of one prompt. */
import {dot, line, rect, round, words} from "./scene.js";

const SCALE = 33; // px for a unit of likeness
const MIDDLE = 238;

/** Softmax of omega z. Mirrors attnlib.attention.attention_weights. */
export function weights(alike, omega) {
  const top = Math.max(...alike.map((z) => omega * z));
  const parts = alike.map((z) => Math.exp(omega * z - top));
  const sum = parts.reduce((all, one) => all + one, 0);
  return parts.map((part) => part / sum);
}

/** Both heads, their difference, and the straight line that the step of gradient descent with the same slope would give. */
export function pairOf({alike}, omega) {
  const plus = weights(alike, omega);
  const minus = weights(alike, -omega);
  const mean = alike.reduce((all, z) => all + z, 0) / alike.length;
  const difference = plus.map((w, i) => w - minus[i]);
  // The straight line in z that lies nearest to the differences, and how much of them it leaves.
  const [zz, zw] = alike.reduce(([a, b], z, i) => [a + (z - mean) ** 2, b + (z - mean) * difference[i]], [0, 0]);
  const slope = zw / zz;
  const total = difference.reduce((all, w) => all + w * w, 0);
  const left = difference.reduce((all, w, i) => all + (w - slope * (alike[i] - mean)) ** 2, 0);
  return {plus, minus, difference, mean, slope, straight: 1 - left / total};
}

export function pair({prompt}, {omega = prompt.omega} = {}) {
  const found = pairOf(prompt, omega);
  const top = Math.max(...found.plus, ...found.minus);
  const at = (z) => MIDDLE + SCALE * z;
  const marks = [];
  marks.push(words("plusName", 18, 24, "first head: +", {weight: 600}), words("minusName", 18, 214, "second head: \u2212", {weight: 600}));
  prompt.alike.forEach((z, i) => {
    const [up, down] = [(78 * found.plus[i]) / top, (78 * found.minus[i]) / top];
    marks.push(rect(`up${i}`, at(z) - 2, 112 - up, 4, up, {fill: "measured"}), rect(`down${i}`, at(z) - 2, 118, 4, down, {fill: "bound"}));
  });
  marks.push(line("floor", 46, 115, 462, 115, {stroke: "ink", width: 1.2}));
  marks.push(words("topShare", 462, 24, `largest weight: ${top < 0.1 ? top.toFixed(3) : top.toFixed(2)}`, {anchor: "end", fill: "quiet"}));
  const far = Math.max(...found.difference.map(Math.abs));
  const y = (w) => 282 - (48 * w) / far;
  marks.push(line("middle", 46, 282, 462, 282, {stroke: "bound", width: 1}));
  const straight = (z) => found.slope * (z - found.mean);
  const cut = (z) => Math.max(-1.25 * far, Math.min(1.25 * far, straight(z)));
  marks.push(line("straight", at(-5.6), y(cut(-5.6)), at(6.2), y(cut(6.2)), {stroke: "ink", width: 2}));
  prompt.alike.forEach((z, i) => marks.push(dot(`sum${i}`, at(z), y(found.difference[i]), 4.5, {fill: "measured", width: 1})));
  marks.push(words("difference", 18, 250, "their difference", {weight: 600}));
  marks.push(words("unlike", 46, 352, "\u2190 unlike the question", {fill: "quiet"}), words("like", 462, 352, "alike \u2192", {anchor: "end", fill: "quiet"}));
  return {
    marks,
    straight: found.straight,
    words: `Sharpness ${round(omega)}: largest weight ${top.toFixed(2)}; a straight line explains ${(100 * found.straight).toFixed(1)} % of the difference.`,
    says: `Forty examples from unlike to alike. The first head's weights rise, the second head's fall. Their difference lies nearly on a straight line, which explains ${(100 * found.straight).toFixed(1)} per cent of it.`,
  };
}
