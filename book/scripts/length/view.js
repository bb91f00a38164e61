/** The explorer of prompt lengths: every estimator's error, its floor, and who wins where. */
import {mount} from "../shared/shell.js";
import {followTries} from "../shared/tries.js";
import {number} from "../shared/format.js";
import {bayesLower, bayesSampled, bestStep, crossings, floors, risk, risks, spectrum} from "./model.js";

const LONGEST = 1000;
const GRID = [...new Set(Array.from({length: 121}, (_, i) => Math.round(LONGEST ** (i / 120))))];

/** What can be shown: key, label, look; `on` at the start. Colours as on page 04: trained heads blue, one sign orange, linear green. */
const LINES = [
  {key: "step", label: "plain step of size <i>η</i>", name: "the plain step of size <i>η</i>", colour: "theory", dash: true, on: true},
  {key: "stepBest", label: "plain step, best size for each <i>L</i>", name: "the plain step with the best size for each length", colour: "theory", dash: "8 3 2 3"},
  {key: "centred", label: "centred step of size <i>η</i>", name: "the centred step of size <i>η</i>", colour: "theory", dash: "dotted"},
  {key: "centredBest", label: "centred step, best size for each <i>L</i>", name: "the centred step with the best size for each length", colour: "theory", on: true},
  {key: "matrix", label: "step with the best matrix for each <i>L</i>", name: "the step with the best matrix for each length", colour: "measured"},
  {key: "softmax", label: "softmax pair, small scores, trained at <i>L</i><sub>0</sub>", name: "the softmax pair", colour: "clean", on: true},
  {key: "linearMean", label: "linear attention, mean, trained at <i>L</i><sub>0</sub>", name: "linear attention with the mean", colour: "signal", on: true},
  {key: "linearRaw", label: "linear attention, raw sum, trained at <i>L</i><sub>0</sub>", name: "linear attention with the raw sum", colour: "signal", dash: true, on: true},
  {key: "leastSquares", label: "least squares", name: "least squares", colour: "noise", dash: true},
  {key: "zero", label: "answer 0", name: "answering 0", colour: "bound", dash: "dotted", on: true},
];
const TRAINED = [
  {key: "pair", label: "two trained heads that cancel", colour: "clean", on: true},
  {key: "one", label: "one trained head", colour: "noisy", on: true},
  {key: "trapped", label: "two trained heads of one sign", colour: "noisy", hollow: true},
];

const toggle = ({key, label, on = false}) => ({key: `show_${key}`, label, kind: "toggle", value: on});
const controls = [
  {key: "length", label: "length of the prompt <i>L</i>", kind: "log-range", min: 1, max: LONGEST, value: 40, integer: true, count: 150, help: "The cursor. It can also be dragged in the picture."},
  {key: "trained", label: "length of training <i>L</i><sub>0</sub>", kind: "log-range", min: 2, max: LONGEST, value: 40, integer: true, count: 120, help: "Softmax and linear attention keep the step of this length."},
  {key: "d", label: "dimension <i>d</i>", kind: "range", min: 1, max: 20, value: 5, integer: true},
  {key: "sigma", label: "noise <i>σ</i>", kind: "log-range", min: 0.001, max: 3, value: 0.01, count: 120},
  {key: "eta", label: "effective step <i>η</i>", kind: "range", min: 0, max: 1.5, value: 1, step: 0.01, help: "Of the two steps whose size you choose; the authors' is 1."},
  {key: "rho", label: "correlation of neighbouring covariates", kind: "range", min: 0, max: 0.9, value: 0, step: 0.05},
  {key: "measure", label: "drawn is", kind: "choice", value: "risk", options: [{value: "risk", label: "the risk"}, {value: "ratio", label: "the risk over that of the best centred step"}]},
  {key: "log_x", label: "logarithmic <i>L</i> axis", kind: "toggle", value: true},
  {key: "log_y", label: "logarithmic risk axis", kind: "toggle", value: true},
  {key: "deep", label: "reach down to Bayes", kind: "toggle", value: false},
  ...LINES.map(toggle),
  toggle({key: "bayes", label: "Bayes, the best possible", on: true}),
  ...TRAINED.map(toggle),
];

// What the formats below add to a number: standard errors, and the length of the table where it is not the cursor's.
const notes = {};
const withError = (key) => (value) => {
  if (typeof value !== "number") return String(value);
  const {error, at} = notes[key];
  return `${number(value, 4)} ± ${number(error, 2)}${at ? ` (at ${at})` : ""}`;
};
const values = [
  ...LINES.map(({key, label}) => ({key, label, digits: 4})),
  {key: "bayes", label: "Bayes, sampled ± s.e.", format: withError("bayes")},
  {key: "bayes_low", label: "Bayes, lower bound", digits: 4},
  ...TRAINED.map(({key, label}) => ({key, label: `${label} ± s.e.`, format: withError(key)})),
  {key: "floor_softmax", label: "floor of the softmax pair", digits: 4},
  {key: "floor_step", label: "floor of the step <i>η</i>", digits: 4},
  {key: "floor_linear", label: "floor of linear attention, mean", digits: 4},
  {key: "best_step", label: "best plain step at <i>L</i>", digits: 4},
  {key: "best_centred", label: "best centred step at <i>L</i>", digits: 4},
  {key: "fixed_step", label: "step of the softmax pair, fixed at <i>L</i><sub>0</sub>", digits: 4},
];

/** Index of the table's length that is nearest on the log axis. */
const nearest = (lengths, length) => lengths.reduce((best, one, i) =>
  (Math.abs(Math.log(one / length)) < Math.abs(Math.log(lengths[best] / length)) ? i : best), 0);

const isTrained = ({d, sigma, rho, trained}, data) =>
  d === data.trained.d && sigma === data.trained.sigma && rho === 0 && trained === data.trained.length;

/** Sampled Bayes risks at the table's lengths; null for correlated covariates. */
const sampledBayes = (state, data) => (state.rho > 0 ? null
  : data.lengths.map((length, i) => bayesSampled(data.bayes[state.d - 1][i], state, length, data.noise)));

function update(state, {plots, values: show, say, data, set}) {
  const setting = {d: state.d, sigma: state.sigma, rho: state.rho, trained: state.trained, eta: state.eta};
  setting.lambdas = spectrum(setting);
  const rows = GRID.map((length) => risks(setting, length));
  const scale = state.measure === "ratio" ? (length) => risk(setting, "centredBest", length) : () => 1;
  const scales = GRID.map(scale);
  const here = risks(setting, state.length);
  const bottom = floors(setting);
  const bayes = sampledBayes(state, data);
  const trained = isTrained(state, data) ? data.trained.groups : null;
  const found = {setting, here, bottom, bayes, trained};
  draw(plots.risk, state, {...found, rows, scale, scales, data, set});
  show(numbers(state, found, data));
  say(...inWords(state, found, data));
}

function draw(plot, state, {setting, here, bottom, rows, scale, scales, bayes, trained, data, set}) {
  const shown = LINES.filter(({key}) => state[`show_${key}`]);
  const lines = shown.map(({key, label, colour, dash}) => ({
    key, label, colour, dash, width: 2,
    points: GRID.map((length, i) => [length, Number.isFinite(rows[i][key]) ? rows[i][key] / scales[i] : null]),
  }));
  const areas = [];
  const points = [];
  if (state.show_bayes) {
    areas.push({
      key: "bounds", colour: "noise", label: "Bayes lies in this band",
      points: GRID.map((length, i) => [length, rows[i].bayes / scales[i], Math.min(rows[i].zero, rows[i].leastSquares) / scales[i]]),
    });
    if (bayes) points.push({key: "bayes", colour: "noise", label: "Bayes, sampled", radius: 3, points: bayes.map(({risk, error}, i) => [data.lengths[i], risk / scale(data.lengths[i]), (2 * error) / scale(data.lengths[i])])});
  }
  for (const {key, label, colour, hollow} of TRAINED) {
    if (!trained || !state[`show_${key}`]) continue;
    const group = trained[key];
    points.push({key, colour, hollow, label: `${label} (± 2 s.e.)`, points: group.risk.map((risk, i) => [data.lengths[i], risk / scale(data.lengths[i]), (2 * group.error[i]) / scale(data.lengths[i])])});
  }
  plot.axes({x: {scale: state.log_x ? "log" : "linear", domain: [1, LONGEST]}, y: vertical(state, lines, points)});
  plot.areas(areas);
  plot.lines(lines);
  plot.points(points);
  plot.rules([{x: state.trained, label: "<i>L</i><sub>0</sub>", colour: "bound", dash: "2 3"}, ...bottoms(state, bottom).map(({y, colour}) => ({y, colour, dash: "dotted"}))]);
  plot.texts(bottoms(state, bottom).filter(({label}) => label).map(({y, label}) => ({x: 1, y, text: label, dx: 6, dy: -4})));
  const lowest = winner(state, here);
  plot.marker({
    key: "cursor", x: state.length, y: lowest ? lowest.risk / scale(state.length) : 1, draggable: "x", colour: "theory",
    name: "length of the prompt", label: `<i>L</i> = ${state.length}`, valuetext: `${state.length} examples`,
    onmove: ([x]) => set({length: Math.max(1, Math.round(x))}),
  });
  plot.onpoint(([x]) => set({length: Math.max(1, Math.round(x))}));
  plot.describe(`${shown.length} curves over lengths 1 to ${LONGEST}; cursor at ${state.length}.`);
}

/** Floors of what is shown; of two that nearly coincide only the first has a label. */
function bottoms(state, bottom) {
  if (state.measure !== "risk") return [];
  const found = [];
  for (const [key, colour, label] of [["softmax", "clean", "floor of the softmax pair"], ["step", "theory", "floor of the step <i>η</i>"], ["linearMean", "signal", "floor of linear attention, mean"]]) {
    if (!state[`show_${key}`] || !(bottom[key] > 0)) continue;
    const free = found.every(({y}) => Math.abs(Math.log(y / bottom[key])) > 0.45);
    found.push({y: bottom[key], colour, label: free ? label : null});
  }
  return found;
}

/** The vertical axis: all that is shown, without the blow-up of the raw sum and, unless asked for, without Bayes. */
function vertical(state, lines, points) {
  const label = state.measure === "ratio" ? "risk / best centred step" : "risk";
  const all = (items) => items.flatMap((item) => item.points.map(([, y]) => y)).filter((y) => Number.isFinite(y) && y > 0);
  const shy = new Set(state.deep ? [] : ["bayes", "leastSquares"]);
  const low = all([...lines, ...points].filter(({key}) => !shy.has(key)));
  const high = all([...lines, ...points].filter(({key}) => key !== "linearRaw" && key !== "leastSquares"));
  const top = Math.max(state.measure === "ratio" ? 2 : 0, ...high);
  const bottom = Math.min(...low, top / 10);
  if (!state.log_y) return {scale: "linear", label, domain: [0, 1.08 * Math.min(top, state.measure === "ratio" ? 4 : Infinity)]};
  return {scale: "log", label, domain: [bottom / 1.6, top * (state.measure === "ratio" ? 1.3 : 2)]};
}

/** The estimator with the least risk at the cursor, of those shown. */
function winner(state, here) {
  const shown = LINES.filter(({key}) => state[`show_${key}`] && Number.isFinite(here[key]));
  if (!shown.length) return null;
  const best = shown.reduce((a, b) => (here[b.key] < here[a.key] ? b : a));
  return {...best, risk: here[best.key]};
}

function numbers(state, {setting, here, bottom, bayes, trained}, data) {
  const at = nearest(data.lengths, state.length);
  const other = data.lengths[at] === state.length ? 0 : data.lengths[at];
  const out = Object.fromEntries(LINES.map(({key}) => [key, here[key]]));
  notes.bayes = bayes ? {error: bayes[at].error, at: other} : {};
  out.bayes = bayes ? bayes[at].risk : "for uncorrelated covariates";
  out.bayes_low = here.bayes;
  for (const {key} of TRAINED) {
    notes[key] = trained ? {error: trained[key].error[at], at: other} : {};
    out[key] = trained ? trained[key].risk[at] : "for the authors' setting";
  }
  return {
    ...out, floor_softmax: bottom.softmax, floor_step: bottom.step, floor_linear: bottom.linearMean,
    best_step: bestStep(setting, state.length), best_centred: bestStep(setting, state.length, true),
    fixed_step: bestStep(setting, state.trained, true),
  };
}

const list = (lengths) => (lengths.length > 1 ? `${lengths.slice(0, -1).join(", ")} and ${lengths[lengths.length - 1]}` : `${lengths[0]}`);

/** The verdict: who wins here, where the order changes, which floor is in sight. */
function inWords(state, {setting, here, bottom, bayes, trained}, data) {
  const words = [];
  const best = winner(state, here);
  const ahead = here.softmax < here.step;
  if (best) words.push(`At <i>L</i> = ${state.length} the lowest curve is ${best.name}, ${number(best.risk, 3)}.`);
  const gap = Math.abs(here.softmax / here.step - 1);
  const order = crossings(setting, [["step", "softmax"]], LONGEST).map(({length}) => length);
  const change = order.length ? `; they change places at <i>L</i> = ${list(order)}` : "; they never change places";
  words.push(gap < 5e-4 ? `The softmax pair and the plain step of size <i>η</i> are level here${change}.`
    : `The softmax pair has ${number(100 * gap, 2)} % ${ahead ? "less" : "more"} risk than the plain step <i>η</i> = ${number(state.eta, 3)}${change}.`);
  const fixed = bestStep(setting, state.trained, true);
  words.push(`It keeps the step ${number(fixed, 3)} of its training, so its risk stops at ${number(bottom.softmax, 3)}, ${number(100 * (bottom.softmax / here.softmax), 2)} % of what it has here.`);
  if (state.show_linearRaw && here.linearRaw > here.zero && state.length > state.trained) words.push("The raw sum, whose step grows with <i>L</i>, is worse than answering 0.");
  const at = nearest(data.lengths, state.length);
  const least = bayes && data.lengths[at] === state.length ? bayes[at].risk : bayesLower(setting, state.length);
  if (state.deep && state.show_bayes && best) words.push(`Bayes, the best possible, has ${number(least, 3)}: the lowest curve has ${number(best.risk / least, 3)} times that.`);
  if (!trained && TRAINED.some(({key}) => state[`show_${key}`])) words.push("Trained heads are drawn for the authors’ setting only.");
  return [words.join(" "), {badge: gap < 5e-4 ? "outside" : ahead ? "holds" : "fails", word: gap < 5e-4 ? "level" : ahead ? "softmax ahead" : "plain step ahead"}];
}

const PAGE = "in_context/04_what_the_heads_compute";

mount("length", {
  controls,
  data: true,
  plots: [{
    key: "risk", label: "Risk against the length of the prompt, one curve per estimator", height: 430, wide: true,
    x: {label: "examples in the prompt <i>L</i>", scale: "log", domain: [1, LONGEST]}, y: {label: "risk", scale: "log", domain: [0.01, 10]},
  }],
  values,
  command: ({d, trained, sigma}) => `.venv/bin/python -m attnlib rerun ${PAGE} -p d ${d} -p length ${Math.max(10, trained)} -p noise_std ${sigma} -o mine.ipynb`,
  setup: ({set}) => followTries(controls, set, "length"),
  update,
});
