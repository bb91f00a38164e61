/**
 * The front page: all training samples, by attention and margin, before training and after one and two steps. Still pictures; scripts of
 * the page move nothing. Letters are 19 or more of the width of 600.
 */
import {superscript} from "../shared/format.js";
import {arrow, dot, line, path, round, words} from "./scene.js";

export const [WIDTH, HEIGHT] = [600, 315];
/** File name -> number of steps. */
export const FRAMES = {before: 0, "step-1": 1, "step-2": 2};
const TITLES = ["before training", "after step 1", "after step 2"];
const [LEFT, RIGHT, TOP, BOTTOM] = [62, 580, 84, 262];
const [LOW, HIGH] = [-1, 3];
const SIZE = 19;

/** Where a sample stands: attention on its signal token, margin. */
export const place = (attention, margin) => [
  round(LEFT + attention * (RIGHT - LEFT)),
  round(BOTTOM - ((margin - LOW) / (HIGH - LOW)) * (BOTTOM - TOP)),
];

/** [attention, margin] of every sample after `step` steps; before the second one every weight is one half. */
export const samplesAt = (front, step) =>
  front.attention.map((attention, i) => [step < 2 ? 0.5 : attention, step ? front.margins[step - 1][i] : 0]);

const mean = (points) => [0, 1].map((k) => points.reduce((sum, point) => sum + point[k], 0) / points.length);

function axes() {
  const zero = place(0, 0)[1];
  const marks = [
    line("left", LEFT, TOP - 6, LEFT, BOTTOM, {stroke: "bound"}),
    line("bottom", LEFT, BOTTOM, RIGHT, BOTTOM, {stroke: "bound"}),
    line("zero", LEFT, zero, RIGHT, zero, {stroke: "ink", width: 2}),
    words("fitted", LEFT + 10, zero - 8, "above: fitted", {size: SIZE, fill: "quiet"}),
    words("up", 14, TOP - 18, "margin", {size: SIZE, fill: "quiet"}),
    words("none", LEFT - 6, BOTTOM + 22, "0", {size: SIZE, fill: "quiet"}),
    words("noise", LEFT - 6, BOTTOM + 44, "its own noise", {size: SIZE, fill: "quiet"}),
    words("half", (LEFT + RIGHT) / 2, BOTTOM + 22, "0.5", {anchor: "middle", size: SIZE, fill: "quiet"}),
    words("across", (LEFT + RIGHT) / 2, BOTTOM + 44, "attention", {anchor: "middle", size: SIZE, fill: "quiet"}),
    words("all", RIGHT, BOTTOM + 22, "1", {anchor: "end", size: SIZE, fill: "quiet"}),
    words("signal", RIGHT, BOTTOM + 44, "the shared signal", {anchor: "end", size: SIZE, fill: "quiet"}),
  ];
  for (let tick = LOW; tick <= HIGH; tick += 1)
    marks.push(words(`tick${tick}`, LEFT - 9, place(0, tick)[1] + 6, String(tick).replace("-", "\u2212"), {anchor: "end", size: SIZE, fill: "quiet"}));
  return marks;
}

/** A kind of samples: every one a dot, all in one path, with its name beside it and the way that its mean has come. */
function cloud(name, fill, points, before, title) {
  const from = place(...mean(before));
  const to = place(...mean(points));
  const right = Math.max(...points.map((point) => place(...point)[0]));
  const marks = [arrow(`way${name}`, ...from, ...to, {stroke: fill, width: 3, opacity: 0.45}), dot(`from${name}`, ...from, 5, {fill: "paper", stroke: fill, width: 2})];
  const dots = points.map((point) => `M${place(...point).join(" ")}h0`).join("");
  marks.push(path(`dots${name}`, dots, {stroke: fill, width: name === "Clean" ? 5 : 9, cap: "round"}));
  marks.push(words(`name${name}`, right + 14, to[1] + 7, title, {size: SIZE, weight: 600}));
  return marks;
}

/** `data`: the story's run; `front`: margins and attention of all samples. */
export function front({head}, all, step) {
  const [now, before] = [samplesAt(all, step), samplesAt(all, Math.max(0, step - 1))];
  const of = (points, flipped) => points.filter((_, i) => head.flipped.includes(i) === flipped);
  const power = Math.round(-head.log10_error[step]);
  const wrong = step ? `1 in 10${superscript(power)}` : "1 in 2";
  const fitted = `${head.fitted[step]} of ${head.n}`;
  const marks = [
    words("title", 14, 32, TITLES[step], {size: 25, weight: 700}),
    words("count", RIGHT, 26, `labels fitted: ${fitted}`, {anchor: "end", size: SIZE}),
    words("error", RIGHT, 52, `wrong on fresh data: ${wrong}`, {anchor: "end", size: SIZE}),
    ...axes(),
  ];
  if (!step) {
    const [x, y] = place(0.5, 0);
    marks.push(dot("every", x, y, 9), words("nameEvery", x, y - 20, `all ${head.n} samples`, {anchor: "middle", size: SIZE, weight: 600}));
  } else {
    marks.push(...cloud("Clean", "clean", of(now, false), of(before, false), `${head.n - head.wrong} clean`));
    marks.push(...cloud("Flipped", "noisy", of(now, true), of(before, true), `${head.wrong} flipped labels`));
  }
  const where = step < 2 ? "Every sample gives half of its attention to the signal." : "Clean samples lean to the signal, flipped ones to their own noise.";
  return {
    marks,
    says: `${TITLES[step]}: attention across, margin upwards, for ${head.n} training samples. ${where} Labels fitted: ${fitted}; wrong on fresh data: ${wrong}.`,
  };
}
