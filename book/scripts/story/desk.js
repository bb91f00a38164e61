/**
 * Panels 2 to 4: both samples in two rows, from their two tokens to the margin.
 *
 * A margin is drawn as its two parts, one after the other: what the head reads in the signal, s y v.u, and in the sample's own noise,
 * (1 - s) y v.xi. Both are numbers of the run.
 */
import {arrow, dot, line, path, rect, words} from "./scene.js";

const ROWS = [104, 256];
const UNIT = 0.46; // px for a unit of length
const KINDS = [
  {name: "A", fill: "clean", title: "clean: label +1"},
  {name: "B", fill: "noisy", title: "flipped: label \u22121"},
];
const two = (value) => value.toFixed(2).replace("-", "\u2212");
const sigmoid = (z) => 1 / (1 + Math.exp(-z));

function title(kind, y) {
  return [dot(`face${kind.name}`, 20, y - 55, 7, {fill: kind.fill}), words(`name${kind.name}`, 34, y - 50, kind.title, {weight: 600})];
}

/** Both tokens at the same scale: the short arrow up, the long one to the right. */
function tokens(head, kind, row, x, y) {
  const long = head.lengths[head.followed[row]] * UNIT;
  return [
    arrow(`noise${kind.name}`, x, y, x + long, y, {stroke: "noise", width: 3}),
    arrow(`signal${kind.name}`, x, y, x, y - head.signal_length * UNIT, {stroke: "signal", width: 3}),
  ];
}

/** Softmax: two parts of one width. */
function bar(kind, x, y, width, share, height = 22) {
  const name = kind.name;
  return [
    rect(`barS${name}`, x, y, width * share, height, {fill: "signal"}),
    rect(`barN${name}`, x + width * share, y, width * (1 - share), height, {fill: "noise"}),
    rect(`frame${name}`, x, y, width, height, {fill: "none", stroke: "ink"}),
  ];
}

/** Panel 2: the head before training. `scores`: of the signal and of the noise token; the run's own are zero. */
export function pipeline({head}, {signal = 0, noise = 0} = {}) {
  const share = sigmoid(signal - noise);
  const marks = [];
  const heads = [["two tokens", 66], ["weights", 204], ["mean", 322], ["margin", 424]];
  heads.forEach(([text, x], i) => marks.push(words(`column${i}`, x, 22, text, {anchor: "middle", fill: "quiet"})));
  KINDS.forEach((kind, row) => {
    const y = ROWS[row];
    const long = head.lengths[head.followed[row]] * UNIT;
    marks.push(...title(kind, y), ...tokens(head, kind, row, 22, y + 20), ...bar(kind, 144, y + 1, 120, share));
    marks.push(words(`shareS${kind.name}`, 144, y + 44, two(share), {size: 16}), words(`shareN${kind.name}`, 264, y + 44, two(1 - share), {anchor: "end", size: 16}));
    // The mean of both arrows with these weights.
    const [mx, my] = [(1 - share) * long, -share * head.signal_length * UNIT];
    marks.push(arrow(`mean${kind.name}`, 288, y + 20, 288 + mx, y + 20 + my, {stroke: "ink", width: 2.5}));
    // A dial that stands at zero: the head's own vector is zero.
    marks.push(path(`dial${kind.name}`, `M392 ${y + 24}A34 34 0 0 1 460 ${y + 24}`, {stroke: "bound", width: 2}));
    marks.push(arrow(`needle${kind.name}`, 426, y + 24, 426, y - 4, {stroke: "ink", width: 2.5}), dot(`hub${kind.name}`, 426, y + 24, 4));
    marks.push(words(`margin${kind.name}`, 426, y + 46, "0", {anchor: "middle", size: 16, weight: 600}));
    for (const [i, x] of [[0, 126], [1, 274], [2, 378]].entries()) marks.push(path(`next${i}${kind.name}`, `M${x[1]} ${y + 6}l6 6l-6 6`, {stroke: "bound", width: 2}));
  });
  return {
    marks,
    says:
      `Two rows, a clean sample and a flipped one. In each a short and a long arrow, a bar that is split in two parts of ${two(share)} and ${two(1 - share)}, ` +
      "the mean of both arrows with these weights, and a dial that stands at zero.",
  };
}

const ZERO = 256;

/** One margin: the axis, the part of the signal, the part of the noise, and their sum. `pulls`: many small ones make the first part. */
function margin(kind, y, scale, bySignal, byNoise, {ends, pulls}) {
  const name = kind.name;
  const at = (value) => ZERO + scale * value;
  const sum = bySignal + byNoise;
  const marks = [
    line(`axis${name}`, at(ends[0]), y + 50, at(ends[1]), y + 50, {stroke: "bound", width: 1.2}),
    line(`zero${name}`, ZERO, y - 34, ZERO, y + 56, {stroke: "ink", width: 1.2}),
  ];
  for (let tick = Math.ceil(ends[0]); tick <= ends[1]; tick += 1)
    marks.push(line(`tick${tick}${name}`, at(tick), y + 50, at(tick), y + 55, {stroke: "bound", width: 1.2}));
  if (pulls) {
    const one = scale * pulls.unit;
    const side = Math.sign(bySignal);
    const far = ZERO + side * pulls.clean * one;
    marks.push(line(`pulls${name}`, ZERO, y - 14, far, y - 14, {stroke: "signal", width: 16, dash: `${(0.66 * one).toFixed(3)} ${(0.34 * one).toFixed(3)}`}));
    marks.push(line(`against${name}`, far, y - 25, far - side * pulls.flipped * one, y - 25, {stroke: "noisy", width: 3}));
  }
  marks.push(arrow(`bySignal${name}`, ZERO, pulls ? y + 4 : y - 12, at(bySignal), pulls ? y + 4 : y - 12, {stroke: "signal", width: pulls ? 2.5 : 5, head: pulls ? 3.2 : 2.4}));
  marks.push(arrow(`byNoise${name}`, at(bySignal), y + 22, at(sum), y + 22, {stroke: "noise", width: 5, head: 2.4}));
  marks.push(line(`drop${name}`, at(bySignal), pulls ? y + 4 : y - 12, at(bySignal), y + 22, {stroke: "bound", width: 1, dash: "2 3"}));
  marks.push(dot(`sum${name}`, at(sum), y + 50, 7, {fill: kind.fill, width: 2}));
  marks.push(words(`margin${name}`, at(sum), y + 76, two(sum), {anchor: "middle", size: 17, weight: 600}));
  return marks;
}

/** Margins after one step if the signal had another length: the part of the signal grows with its square, that of the noise stays. */
export function afterOneStep(head, length) {
  const ratio = (length / head.signal_length) ** 2;
  return {signal: head.by_signal[1].map((value) => value * ratio), noise: head.by_noise[1], unit: head.unit_pull * ratio};
}

/** Length of the signal at which the flipped sample's margin after one step is zero. */
export const outvotedFrom = (head) => head.signal_length * Math.sqrt(head.by_noise[1][1] / -head.by_signal[1][1]);

/** Panel 3: one step. */
export function pulls({head}, {length = head.signal_length} = {}) {
  const found = afterOneStep(head, length);
  const marks = [];
  KINDS.forEach((kind, row) => {
    const y = ROWS[row];
    marks.push(...title(kind, y), ...tokens({...head, signal_length: length}, kind, row, 22, y + 4), ...bar(kind, 22, y + 24, 96, 0.5, 16));
    marks.push(...margin(kind, y, 78, found.signal[row], found.noise[row], {ends: [-1.4, 2.7], pulls: {unit: found.unit, clean: head.clean_counts[0], flipped: head.flipped_counts[0]}}));
  });
  const [a, b] = [0, 1].map((row) => found.signal[row] + found.noise[row]);
  return {
    marks,
    margins: [a, b],
    says: `Two margins after one step. Clean: ${two(found.signal[0])} through the signal and ${two(found.noise[0])} through its own noise, together ${two(a)}. Flipped: ${two(found.signal[1])} and ${two(found.noise[1])}, together ${two(b)}.`,
  };
}

/** Panel 4: attention takes sides. `step`: 0, 1, ... */
export function sides({head}, {step = 2} = {}) {
  const marks = [];
  KINDS.forEach((kind, row) => {
    const y = ROWS[row];
    const share = head.attention[step][row];
    marks.push(...title(kind, y), ...tokens(head, kind, row, 22, y - 8), ...bar(kind, 22, y + 14, 120, share, 26));
    marks.push(words(`shareS${kind.name}`, 22, y + 59, two(share), {size: 16}), words(`shareN${kind.name}`, 142, y + 59, two(1 - share), {anchor: "end", size: 16}));
    marks.push(...margin(kind, y, 48, head.by_signal[step][row], head.by_noise[step][row], {ends: [-1.6, 4.2]}));
  });
  const [s, m] = [head.attention[step], head.margins[step]];
  return {
    marks,
    says: `After step ${step}. Clean: attention ${two(s[0])} on the signal, margin ${two(m[0])}. Flipped: attention ${two(s[1])} on the signal, margin ${two(m[1])}.`,
  };
}
