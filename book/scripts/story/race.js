/** Panel 6: the race of signal and noise. Above, the run itself for a thousand steps; below, the flow where the reader wants it. */
import {flow, reading} from "../long_run/flow.js";
import {dot, line, rect, round, words} from "./scene.js";

const START = 84;
const RULER = {x: 84, width: 376, y: 322};
const X = [0.5, 5]; // ends of the ruler, logarithmic
const TIMES = [1, 10, 100, 1e3, 1e4, 1e5];

const ruler = (x) => RULER.x + (RULER.width * Math.log(x / X[0])) / Math.log(X[1] / X[0]);

/** The flow at the reader's setting: scores of both runners at the times, attention at the end. */
export function raced({x, flips}) {
  const path = flow({x, label_noise: flips});
  const states = TIMES.map(path.at);
  const end = reading(states[states.length - 1]);
  return {signal: states.map((s) => s[0]), noise: states.map((s) => s[1]), attention: end.attention_clean};
}

/** One runner on its lane: a footprint for every moment, and where it stands at the end. */
function lane(key, y, scale, scores, {fill, name}) {
  const at = (score) => START + 12 + scale * Math.max(score, -0.2);
  const marks = [line(`lane${key}`, START, y, 464, y, {stroke: "rule", width: 13}), words(`name${key}`, START - 10, y + 5, name, {anchor: "end"})];
  scores.slice(0, -1).forEach((score, i) => marks.push(dot(`foot${key}${i}`, at(score), y, 4, {fill, width: 1, opacity: 0.55})));
  const last = scores[scores.length - 1];
  marks.push(dot(`runner${key}`, at(last), y, 10, {fill, width: 2}));
  return marks;
}

function bar(key, x, y, width, share) {
  return [
    rect(`barS${key}`, x, y, width * share, 14, {fill: "signal"}), rect(`barN${key}`, x + width * share, y, width * (1 - share), 14, {fill: "noise"}),
    rect(`frame${key}`, x, y, width, 14, {fill: "none", stroke: "ink"}), words(`shareS${key}`, x + width + 8, y + 13, share.toFixed(2), {size: 16}),
  ];
}

export function race({long, thresholds}, {x = 1.3, flips = 0.2} = {}) {
  const marks = [];
  const own = {signal: long.signal.slice(1), noise: long.noise.slice(1), attention: long.attention[long.attention.length - 1]};
  const free = raced({x, flips});
  const threshold = thresholds.find(([eta]) => Math.abs(eta - flips) < 1e-6)[1];
  marks.push(words("one", 18, 26, `our class: ${long.steps[long.steps.length - 1]} steps`, {weight: 600}), ...bar("A", 330, 14, 90, own.attention));
  marks.push(...lane("A1", 56, 36, own.signal, {fill: "signal", name: "signal"}), ...lane("A2", 88, 36, own.noise, {fill: "noise", name: "noise"}));
  const scale = Math.min(36, 340 / Math.max(free.signal[free.signal.length - 1], free.noise[free.noise.length - 1]));
  marks.push(words("two", 18, 154, flips < 0.04 ? "its limit, drawn from x" : `${Math.round(100 * flips)} % flipped labels`, {weight: 600}), ...bar("B", 330, 142, 90, free.attention));
  marks.push(...lane("B1", 184, scale, free.signal, {fill: "signal", name: "signal"}), ...lane("B2", 216, scale, free.noise, {fill: "noise", name: "noise"}));
  // The ruler of x: noise wins, the trap, signal wins.
  const [a, b, c, d] = [ruler(X[0]), ruler(1), ruler(Math.min(threshold, X[1])), ruler(X[1])];
  marks.push(rect("zoneN", a, RULER.y - 10, b - a, 16, {fill: "noise"}), rect("zoneT", b, RULER.y - 10, c - b, 16, {fill: "noisy"}), rect("zoneS", c, RULER.y - 10, d - c, 16, {fill: "signal"}));
  marks.push(words("rulerX", RULER.x - 12, RULER.y + 3, "x", {anchor: "end"}), words("one1", b, RULER.y + 26, "1", {anchor: "middle"}));
  marks.push(words("noiseWins", (a + b) / 2, RULER.y - 22, "noise wins", {anchor: "middle", fill: "quiet"}));
  marks.push(words("signalWins", Math.max((c + d) / 2, c + 44), RULER.y - 22, "signal wins", {anchor: "middle", fill: "quiet"}));
  if (c - b > 34) marks.push(words("trap", (b + c) / 2, RULER.y - 22, "trap", {anchor: "middle", fill: "quiet"}));
  if (c - b > 30) marks.push(words("star", c, RULER.y + 26, threshold.toFixed(2), {anchor: "middle"}));
  marks.push(dot("here", ruler(x), RULER.y - 2, 10, {fill: "ink", width: 2.5}));
  const word = x < 1 ? "noise wins" : x < threshold ? "trapped" : "signal wins";
  return {
    marks,
    word,
    words: `x = ${x.toFixed(2)}: ${word}. At the end clean samples give the signal a weight of ${free.attention.toFixed(2)}.`,
    says:
      `Two races of a signal and a noise runner. Our class: after ${long.steps[long.steps.length - 1]} steps the signal stands at ${round(own.signal[own.signal.length - 1])}, the noise at ${round(own.noise[own.noise.length - 1])}. ` +
      `Below, x = ${x.toFixed(2)} with ${Math.round(100 * flips)} % flipped labels: ${word}. A ruler of x has three zones: noise wins below 1, a trap between 1 and ${threshold.toFixed(2)}, signal wins above.`,
  };
}
