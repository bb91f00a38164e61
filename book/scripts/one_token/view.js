/** The explorer of one token matters: risks against the strength, the threshold, and the weights of one draw. */
import {number} from "../shared/format.js";
import {mount} from "../shared/shell.js";
import {bayesRisk, grids, linearRisk, normals, ownScoreRisk, weights} from "./model.js";

const [LOW, HIGH] = [0.5, 40];
const GRID = Array.from({length: 61}, (_, i) => LOW + ((HIGH - LOW) * i) / 60);
const FLOOR = 1e-5;
const KINDS = [
  ["softmax", "softmax (Bayes)", "clean"],
  ["sigmoid", "sigmoid", "signal"],
  ["linear", "linear", "noisy"],
];
let stored = null; // the grids of GRID do not depend on the number of tokens

function drawRisks(plot, tokens, strength, risk, set) {
  stored ??= GRID.map(grids);
  const line = (value) => GRID.map((nu, i) => [nu, Math.max(value(nu, i), FLOOR)]);
  plot.lines([
    {key: "softmax", label: "softmax (Bayes)", colour: "clean", width: 2, points: line((_, i) => bayesRisk(stored[i], tokens))},
    {key: "sigmoid", label: "sigmoid", colour: "signal", width: 2, points: line((nu) => ownScoreRisk(tokens, nu))},
    {key: "centred", label: "linear, centred scores", colour: "noise", dash: "6 3", points: line((nu) => linearRisk(tokens, nu, true))},
    {key: "linear", label: "linear", colour: "noisy", width: 2, points: line((nu) => linearRisk(tokens, nu, false))},
  ]);
  const threshold = 2 * Math.log(tokens);
  plot.rules([{x: threshold, label: "2 log <i>L</i>", dash: "2 3", colour: "bound"}]);
  plot.marker({
    key: "here", x: strength, y: Math.max(risk, FLOOR), draggable: "x", colour: "measured", name: "strength",
    label: `<i>ν</i> = ${number(strength)}`, valuetext: number(strength), onmove: ([x]) => set({strength: x}),
  });
}

function drawWeights(plot, scores, strength) {
  const found = KINDS.map(([kind, label, colour], place) => ({
    key: kind, label, colour, radius: 4, hollow: kind === "linear",
    points: weights(kind, scores, strength).map((weight, i) => [i + 1 + 0.18 * (place - 1), weight]),
  }));
  const all = found.flatMap(({points}) => points.map(([, y]) => y));
  plot.axes({x: {domain: [0.4, scores.length + 0.6]}, y: {domain: [Math.min(-0.3, ...all) - 0.05, Math.max(1, ...all) + 0.1]}});
  plot.points(found);
  plot.rules([{y: 0, colour: "bound"}, {y: 1, colour: "bound", dash: "2 3"}]);
  return found.map(({points}) => points[0][1]);
}

function update({tokens, strength, draw}, {plots, values, say, set}) {
  const risk = bayesRisk(grids(strength), tokens);
  const sigmoid = ownScoreRisk(tokens, strength);
  drawRisks(plots.risks, tokens, strength, risk, set);
  const scores = normals(tokens, draw).map((z, i) => (i === 0 ? z + Math.sqrt(strength) : z));
  const [first] = drawWeights(plots.weights, scores, strength);
  plots.risks.describe(`With ${tokens} tokens at strength ${number(strength)} softmax has the risk ${number(risk)} and the sigmoid ${number(sigmoid)}.`);
  plots.weights.describe(`In this draw softmax gives the hidden token the weight ${number(first)}.`);
  const threshold = 2 * Math.log(tokens);
  values({
    bayes_risk: risk, own_score_risk: sigmoid, linear_risk: linearRisk(tokens, strength, false),
    centred_risk: linearRisk(tokens, strength, true), threshold,
  });
  const side = strength > threshold ? "above" : "below";
  say(`The strength is ${side} 2 log <i>L</i> = ${number(threshold)}. Softmax has the risk ${number(risk)}, the best possible; the sigmoid has ${number(sigmoid)}.`);
}

mount("one_token", {
  controls: [
    {key: "tokens", label: "number of tokens <i>L</i>", kind: "log-range", min: 2, max: 200, value: 8, integer: true},
    {key: "strength", label: "strength <i>ν</i>", kind: "range", min: LOW, max: HIGH, value: 8, step: 0.1},
    {key: "draw", label: "draw", kind: "range", min: 1, max: 50, value: 1, integer: true},
  ],
  plots: [
    {
      key: "risks", title: "Risk", label: "risk against the strength", height: 320, wide: true,
      x: {label: "strength <i>ν</i>", domain: [0, HIGH]}, y: {label: "risk", scale: "log", domain: [FLOOR, 1.2]},
    },
    {
      key: "weights", title: "Weights of one draw", label: "weights of the tokens of one draw", height: 300,
      x: {label: "token (1: hidden)", domain: [0.4, 8.6]}, y: {label: "weight", domain: [-0.3, 1.1]},
    },
  ],
  values: [
    {key: "bayes_risk", label: "risk of softmax", digits: 4},
    {key: "own_score_risk", label: "risk of the sigmoid", digits: 4},
    {key: "linear_risk", label: "risk of linear weights", digits: 4},
    {key: "centred_risk", label: "risk of linear weights, centred scores", digits: 4},
    {key: "threshold", label: "threshold 2 log <i>L</i>", digits: 4},
  ],
  command: ({tokens, strength}) =>
    `python -m attnlib rerun one_token/01_one_token -p tokens ${tokens} -p strength ${strength} -o out.ipynb`,
  update,
});
