/** The explorer of finite data: the plane of prompts and tasks, and the errors along one line of it. */
import {ramp} from "../shared/colours.js";
import {number} from "../shared/format.js";
import {mount} from "../shared/shell.js";
import {gain, limitError, manyPrompts, patternError, promptCost, ridgeError, word} from "./model.js";

const TAU = [0.1, 10];
const KAPPA = [0.125, 8];
const TOP = 30;
const between = ([low, high], count) => Array.from({length: count}, (_, i) => low * (high / low) ** (i / (count - 1)));
const middles = (edges) => edges.slice(1).map((edge, i) => Math.sqrt(edge * edges[i]));

const EDGES = {tau: between(TAU, 73), kappa: between(KAPPA, 49)};
const CELLS = {tau: middles(EDGES.tau), kappa: middles(EDGES.kappa)};
const LINE = between(TAU, 241);
const SHADES = ramp("cividis", [0.2, 10], {scale: "log"});
const BADGES = {regresses: "holds", memorises: "fails", "does neither": "outside"};
const INK = "#222222";
const PAPER = "#ffffff";

function drawPlane(plot, state, set) {
  const rows = CELLS.kappa.map((kappa) => CELLS.tau.map((tau) => limitError({...state, tau, kappa})));
  const gains = (tasks) => rows.map((row) => row.map((error) => Math.max(-5, gain(error[tasks], state))));
  plot.heat({
    x: EDGES.tau, y: EDGES.kappa, colour: SHADES, bar: {label: "error on fresh tasks", ticks: [0.2, 0.5, 1, 2, 5, 10]},
    values: rows.map((row) => row.map(({fresh}) => Math.min(10, fresh))),
  });
  const edge = (key, tasks, label, dash) => ({key, x: CELLS.tau, y: CELLS.kappa, values: gains(tasks), levels: [0.5], colour: PAPER, width: 2, dash, label});
  plot.contours([edge("fresh", "fresh", "half of the gain, fresh"), edge("seen", "seen", "half of the gain, seen", "4 3")]);
  plot.rules([{x: 1, colour: PAPER, dash: "2 3"}]);
  plot.marker({
    key: "here", x: state.tau, y: state.kappa, colour: INK, draggable: true, name: "prompts and tasks",
    label: "here", valuetext: `tau ${number(state.tau)}, kappa ${number(state.kappa)}`, onmove: ([tau, kappa]) => set({tau, kappa}),
  });
  plot.onpoint(([tau, kappa]) => set({tau, kappa}));
  plot.describe(`The error on fresh tasks is large along tau = 1 and smallest for many prompts of many tasks. At the point linear attention ${word(state)}.`);
}

function drawCurve(plot, state, set) {
  const curve = (tasks) => LINE.map((tau) => {
    const error = limitError({...state, tau})[tasks];
    return [tau, error < 3 * TOP ? error : null];
  });
  const flat = (key, label, y, dash) => ({key, label, colour: "theory", dash, width: 1.3, points: [[TAU[0], y], [TAU[1], y]]});
  plot.lines([
    {key: "fresh", label: "fresh tasks", colour: "noisy", width: 2.2, points: curve("fresh")},
    {key: "seen", label: "seen tasks", colour: "clean", width: 2.2, points: curve("seen")},
    flat("zero", "predicting zero", 1 + state.noise, "2 3"),
    flat("best", "the best step", patternError(state), "6 4"),
    flat("ridge", "ridge regression", ridgeError(state), "8 3 2 3"),
  ]);
  plot.rules([{x: 1, colour: "bound", dash: "2 3"}]);
  const here = limitError(state).fresh;
  plot.marker({
    key: "tau", x: state.tau, y: Math.min(here, TOP), draggable: "x", colour: "noisy", name: "prompts",
    label: `<i>τ</i> = ${number(state.tau)}`, valuetext: number(state.tau), onmove: ([tau]) => set({tau}),
  });
  plot.describe(`Both errors have a peak at tau = 1; at tau ${number(state.tau)} the error on fresh tasks is ${Number.isFinite(here) ? number(here) : "infinite"}.`);
}

function update(state, {plots, values, say, set}) {
  drawPlane(plots.plane, state, set);
  drawCurve(plots.curve, state, set);
  const here = limitError(state);
  const end = manyPrompts(state);
  values({
    fresh: here.fresh, seen: here.seen, unlimited: end.fresh, cost: promptCost(state).fresh,
    pattern: patternError(state), ridge: ridgeError(state), zero: 1 + state.noise,
  });
  const said = word(state);
  const reason = state.tau === 1 ? "At <i>τ</i> = 1 there are as many prompts as entries, and both errors are infinite in the limit."
    : `Its error is ${number(here.fresh, 3)} on fresh tasks and ${number(here.seen, 3)} on seen ones; predicting zero has ${number(1 + state.noise, 3)}, the best step ${number(patternError(state), 3)}.`;
  say(`Linear attention ${said}. ${reason}`, {badge: BADGES[said], word: said});
}

mount("finite_data", {
  controls: [
    {key: "tau", label: "prompts <i>τ</i> = <i>n</i>/<i>d</i><sup>2</sup>", kind: "log-range", min: TAU[0], max: TAU[1], value: 2, count: 201},
    {key: "kappa", label: "tasks <i>κ</i> = <i>k</i>/<i>d</i>", kind: "log-range", min: KAPPA[0], max: KAPPA[1], value: 0.5, count: 145},
    {key: "alpha", label: "length of a prompt <i>α</i> = <i>l</i>/<i>d</i>", kind: "log-range", min: 0.25, max: 32, value: 1, count: 113},
    {key: "noise", label: "noise <i>ρ</i>", kind: "log-range", min: 0.01, max: 2, value: 0.1, count: 93},
  ],
  plots: [
    {
      key: "plane", label: "Map of the error on fresh tasks over the number of prompts and the number of tasks", height: 400,
      x: {label: "prompts τ = n/d²", scale: "log", domain: TAU}, y: {label: "tasks κ = k/d", scale: "log", domain: KAPPA},
    },
    {
      key: "curve", label: "Error on fresh and on seen tasks against the number of prompts, at the chosen number of tasks", height: 400,
      x: {label: "prompts τ = n/d²", scale: "log", domain: TAU}, y: {label: "error", scale: "log", domain: [0.1, TOP]},
    },
  ],
  values: [
    {key: "fresh", label: "error on fresh tasks", digits: 4},
    {key: "seen", label: "error on seen tasks", digits: 4},
    {key: "unlimited", label: "fresh tasks, unlimited prompts", digits: 4},
    {key: "cost", label: "cost of finitely many prompts <i>C</i>", digits: 4},
    {key: "pattern", label: "the best step", digits: 4},
    {key: "ridge", label: "ridge regression", digits: 4},
    {key: "zero", label: "predicting zero", digits: 4},
  ],
  command: ({alpha, kappa, noise}) => `.venv/bin/python -m attnlib rerun finite_data/01_finite_data -p alpha ${alpha} -p kappa ${kappa} -p noise ${noise} -o mine.ipynb`,
  update,
});
