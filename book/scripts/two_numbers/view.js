/** The explorer of two numbers per head: a map of the risk, a start to drag, and the gradient flow from there. */
import {mount} from "../shared/shell.js";
import {followTries} from "../shared/tries.js";
import {number, rounded} from "../shared/format.js";
import {ramp} from "../shared/colours.js";
import {ONE, PAIR, bayes, bestMu, flow, grid, landscapeOf, opposite, optimum, references, summary} from "./model.js";
import {compared, inWords} from "./words.js";

const TIMES = Array.from({length: 65}, (_, i) => 0.01 * 10 ** (i / 8));
const [INK, PAPER] = ["#222222", "#ffffff"]; // on the map, which looks the same in the light and in the dark
const SHADES = ramp("blues", [2e-3, 30], {scale: "log"});
const twoFree = ({heads}) => heads === "two"; // only then has the second head numbers of its own
const HEADS = [{key: "head1", colour: "noisy", name: "head 1"}, {key: "head2", colour: "noise", name: "head 2"}];
const OTHER = "any";

const LAWS = [[5, 40], [5, 10], [5, 160], [20, 40]].map(([d, length], i) => ({
  value: `${d}-${length}`, label: `<i>d</i> = ${d}, <i>L</i> = ${length}${i ? "" : " (the authors’)"}`,
}));

const controls = [
  {key: "heads", label: "heads", kind: "choice", value: "one", options: [{value: "one", label: "one"}, {value: "pair", label: "an opposite pair"}, {value: "two", label: "two, each on its own"}]},
  {key: "landscape", label: "risk", kind: "choice", value: "exact", options: [{value: "exact", label: "exact"}, {value: "approximate", label: "approximate (closed form)"}]},
  {key: "law", label: "prompts", kind: "choice", value: "5-40", options: [...LAWS, {value: OTHER, label: "any <i>d</i> and <i>L</i> (approximate only)"}]},
  {key: "d", label: "dimension <i>d</i>", kind: "range", min: 1, max: 40, value: 5, integer: true},
  {key: "length", label: "length <i>L</i>", kind: "log-range", min: 2, max: 1000, value: 40, integer: true},
  {key: "sigma", label: "noise <i>σ</i>", kind: "log-range", min: 0.001, max: 3, value: 0.01},
  {key: "time", label: "time on the path", kind: "log-range", min: 0.01, max: 1e6, value: 1e6, count: 160, play: {seconds: 7}},
  {key: "omega1", label: "start: <i>ω</i><sub>1</sub>", kind: "range", min: -1.6, max: 1.6, value: -0.9, step: 0.01},
  {key: "mu1", label: "start: <i>μ</i><sub>1</sub>", kind: "range", min: -20, max: 20, value: 1.5, step: 0.05},
  {key: "omega2", label: "start: <i>ω</i><sub>2</sub>", kind: "range", min: -1.6, max: 1.6, value: 0.05, step: 0.01, needs: twoFree, help: "Of the second head; an opposite pair has its first head’s, with the other sign."},
  {key: "mu2", label: "start: <i>μ</i><sub>2</sub>", kind: "range", min: -20, max: 20, value: -0.3, step: 0.05, needs: twoFree},
  {key: "compare", label: "path on the other risk, too", kind: "toggle", value: true},
];

// What the formats add: standard errors.
const errors = {};
const withError = (key) => (value) => (typeof value === "number" && errors[key] > 0 ? `${number(value, 5)} ± ${number(errors[key], 2)}` : typeof value === "number" ? number(value, 5) : value);
const values = [
  {key: "risk_start", label: "risk at the start ± s.e.", format: withError("risk_start")},
  {key: "risk_now", label: "risk now ± s.e.", format: withError("risk_now")},
  {key: "step_now", label: "effective step Σ<i>ωμ</i> now", digits: 4},
  {key: "offset_now", label: "sum of <i>μ</i> now", digits: 3},
  {key: "omega_now", label: "<i>ω</i><sub>1</sub> now", digits: 4},
  {key: "mu_now", label: "<i>μ</i><sub>1</sub> now", digits: 4},
  {key: "omega2_now", label: "<i>ω</i><sub>2</sub> now", digits: 4},
  {key: "mu2_now", label: "<i>μ</i><sub>2</sub> now", digits: 4},
  {key: "same_step", label: "centred step with these Σ<i>ωμ</i>, Σ<i>μ</i>", digits: 5},
  {key: "zero", label: "answer 0", digits: 4},
  {key: "one_risk", label: "best single head", digits: 5},
  {key: "one_place", label: "its (<i>ω</i>, <i>μ</i>)"},
  {key: "step1", label: "plain step <i>η</i> = 1", digits: 5},
  {key: "centred", label: "best centred step", digits: 5},
  {key: "pair_risk", label: "best pair", digits: 6},
  {key: "pair_place", label: "its (<i>ω</i>, <i>μ</i>)"},
  {key: "plain", label: "best plain step", digits: 5},
  {key: "bayes", label: "Bayes ± s.e.", format: withError("bayes")},
];

/** Keeps the last result as long as the words that made it stay the same. */
function remembered(make) {
  let [key, value] = [null, null];
  return (wanted, ...given) => {
    if (wanted !== key) [key, value] = [wanted, make(...given)];
    return value;
  };
}

const shownLandscape = remembered((setting) => {
  const landscape = landscapeOf(setting);
  return {landscape, one: optimum(landscape, ONE), pair: optimum(landscape, PAIR)};
});
const otherLandscape = remembered(landscapeOf);
const makePath = () => remembered((landscape, {omega, mu}) => flow(landscape, omega, mu, TIMES, {tolerance: 1e-5}));
const [shownPath, otherPath] = [makePath(), makePath()];

/** Heads at the start: a pair is shown by its head of positive omega. */
function startOf(state) {
  if (state.heads === "one") return {omega: [state.omega1], mu: [state.mu1]};
  if (state.heads === "pair") return opposite(...(state.omega1 < 0 ? [-state.omega1, -state.mu1] : [state.omega1, state.mu1]));
  return {omega: [state.omega1, state.omega2], mu: [state.mu1, state.mu2]};
}

/** Heads at a time: the last kept state before it, followed to it. */
function at(landscape, path, start, time) {
  let k = path.times.length;
  while (k > 0 && path.times[k - 1] > time) k -= 1;
  const from = k ? {omega: path.omega[k - 1], mu: path.mu[k - 1], time: path.times[k - 1]} : {...start, time: 0};
  const rest = time - from.time;
  if (!(rest > 1e-9 * time) || (k === path.times.length && path.left)) return from;
  const end = flow(landscape, from.omega, from.mu, [rest], {tolerance: 1e-8});
  return end.times.length ? {omega: end.omega[0], mu: end.mu[0], time} : from;
}

/** Choosing prompts sets d and L; moving d or L chooses the prompts that have them. Returns the table, if there is one. */
function lawOf(state, changed, set, data) {
  const moved = changed.has("d") || changed.has("length");
  const before = `${state.law} ${state.d} ${state.length}`;
  if (changed.has("law") && !moved && state.law !== OTHER) {
    const [d, length] = state.law.split("-").map(Number);
    Object.assign(state, {d, length});
  } else if (moved) {
    const known = data.laws.some((law) => law.d === state.d && law.length === state.length);
    state.law = known ? `${state.d}-${state.length}` : OTHER;
  }
  if (before !== `${state.law} ${state.d} ${state.length}`) set({law: state.law, d: state.d, length: state.length});
  return data.laws.find((law) => state.law === `${law.d}-${law.length}`);
}

function update(state, {plots, values: show, say, data, set, changed}) {
  const table = lawOf(state, changed, set, data);
  if (!table && state.landscape === "exact") set({landscape: (state.landscape = "approximate")});
  const {d, length, sigma} = state;
  const exact = state.landscape === "exact";
  const name = (isExact) => `${isExact ? "exact" : "approximate"} ${d} ${length} ${sigma}`;
  const {landscape, one, pair} = shownLandscape(name(exact), {table: exact ? table : null, d, length, sigma});
  const start = startOf(state);
  const words = JSON.stringify(start);
  const inside = landscape.holds(start.omega);
  const path = inside ? shownPath(`${name(exact)} ${words}`, landscape, start) : {omega: [], mu: [], times: [], left: true};
  const now = inside ? at(landscape, path, start, state.time) : {...start, time: 0};
  let other = null;
  if (state.compare && table && inside) {
    const found = otherLandscape(name(!exact), {table: exact ? null : table, d, length, sigma});
    other = otherPath(`${name(!exact)} ${words}`, found, start);
  }
  const level = references({d, length, sigma});
  const least = state.heads === "one" ? one : pair;
  const found = {state, landscape, exact, table, one, pair, least, start, path, now, other, level, inside, data};
  drawMap(plots.map, found, set);
  drawPath(plots.path, found);
  show(numbers(found));
  say(...inWords(found));
}

/** The window of the map: the basin of one head, the valley of a pair, both signs for two; wider where the path goes. */
function windowOf({state, path, start, pair, landscape}) {
  const unit = Math.sqrt(5 / Math.max(5, state.d));
  const [wide, high] = {one: [1.3 * unit, 3.4 / unit], pair: [0.5 * unit, 8 / unit], two: [unit, 7 / unit]}[state.heads];
  const largest = (lists, first) => Math.max(first, ...lists.map((list) => Math.max(...list.map(Math.abs))));
  const omega = Math.min(landscape.reach, 1.08 * largest([...path.omega, start.omega], wide / 1.08), 2);
  const tall = state.heads === "pair" ? Math.max(high, 1.25 * Math.min(pair.mu, 14 / unit)) : high;
  const mu = Math.min(20, 1.08 * largest([...path.mu, start.mu], tall / 1.08));
  if (state.heads !== "pair") return {x: [-omega, omega], y: [-mu, mu]};
  return {x: [0.002 * omega, omega], y: [Math.min(0, ...path.mu.map(([m]) => 1.1 * m), 1.1 * start.mu[0]), mu]};
}

const steps = ([low, high], count) => Array.from({length: count}, (_, i) => low + ((high - low) * i) / (count - 1));
const middles = (edges) => edges.slice(1).map((edge, i) => (edge + edges[i]) / 2);

/** Every line twice: a pale rim first, so that it can be seen on every shade. */
const rimmed = (items) => [...items.map((item) => ({...item, key: `${item.key}-rim`, colour: PAPER, dash: null, width: 4.5, label: undefined, opacity: 0.8})), ...items];

function drawMap(plot, found, set) {
  const {state, landscape, exact, start, path, now, other, least, inside, data} = found;
  const {x, y} = windowOf(found);
  const [edgesX, edgesY] = [steps(x, 73), steps(y, 61)];
  const [omegas, mus] = [middles(edgesX), middles(edgesY)];
  const pattern = state.heads === "pair" ? PAIR : ONE;
  const others = state.heads === "two" ? {omega: [now.omega[1]], mu: [now.mu[1]]} : undefined;
  const cells = grid(landscape, omegas, mus, pattern, others);
  plot.axes({x: {domain: x}, y: {domain: y}});
  plot.heat({
    x: edgesX, y: edgesY, colour: SHADES, bar: {label: "excess", ticks: [0.01, 0.1, 1, 10]},
    values: cells.map((row) => row.map((risk) => Math.max(1e-4, risk / least.risk - 1))),
  });
  plot.contours([{key: "levels", x: omegas, y: mus, values: cells.map((row) => row.map((risk) => Math.min(50, risk / least.risk))), levels: [1.02, 1.1, 1.3, 1.7, 2.5, 4, 7], colour: PAPER, width: 0.8}]);
  const valley = steps(x, 121).filter((w) => Math.abs(w) > 1e-3).map((w) => [w, bestMu(landscape, w, pattern, others).mu]);
  // Ink on the map is dark in both themes; its entry in the legend, on the page's paper, is the theme's ink.
  const entry = (key, label, look) => ({key: `${key}-entry`, points: [], colour: "theory", label, ...look});
  const lines = [{key: "valley", points: cut(valley, y), colour: INK, dash: true, width: 1.4}];
  const shown = state.heads === "two" ? HEADS : HEADS.slice(0, 1);
  const track = (one, h) => [[start.omega[h], start.mu[h]], ...one.omega.map((omega, i) => [omega[h], one.mu[i][h]])];
  if (other) shown.forEach(({key, colour}, h) => lines.push({key: `${key}-other`, points: track(other, h), colour, dash: "2 4", width: 1.6, label: `flow on the ${exact ? "approximate" : "exact"} risk`}));
  plot.lines([entry("valley", "best <i>μ</i> for each <i>ω</i>", {dash: true}), ...rimmed([...lines, ...shown.map(({key, colour, name}, h) => ({key: `${key}-path`, points: track(path, h), colour, width: 2.4, label: state.heads === "two" ? `flow of ${name}` : "gradient flow"}))])]);
  const both = state.heads === "one" ? [[least.omega, least.mu], [-least.omega, -least.mu]] : [[least.omega, least.mu]];
  const trained = ends(found, data);
  plot.points([
    ...trained,
    ...(trained.length ? [entry("trained", "ends of trainings", {radius: 2.6})] : []),
    ...(state.heads === "two" ? [] : [{key: "best", points: both, colour: INK, radius: 6, hollow: true}, entry("best", exact || state.heads === "one" ? "minimum" : "towards <i>ω</i> = 0", {hollow: true})]),
    ...shown.map(({key, colour}, h) => ({key: `${key}-now`, points: inside ? [[now.omega[h], now.mu[h]]] : [], colour, radius: 5})),
  ]);
  shown.forEach(({key, colour, name}, h) => plot.marker({
    key, x: start.omega[h], y: start.mu[h], colour, draggable: true, label: state.heads === "two" ? name : "start",
    name: state.heads === "two" ? `start of ${name}` : "start", step: [(x[1] - x[0]) / 100, (y[1] - y[0]) / 100],
    onmove: ([omega, mu]) => set({[`omega${h + 1}`]: rounded(omega, 4), [`mu${h + 1}`]: rounded(mu, 4)}),
  }));
  if (shown.length === 1) plot.remove("head2");
  plot.onpoint(([omega, mu]) => set({omega1: rounded(omega, 4), mu1: rounded(mu, 4)}));
  plot.describe(state.heads === "two" ? "The map is what head 1 sees while head 2 stays where it is now." : "");
}

/** A line without its parts far outside of the window. */
const cut = (points, [low, high]) => points.map(([px, py]) => [px, py > low - (high - low) && py < high + (high - low) ? py : null]);

/** Where the stored trainings of the authors' setting stop, in the same plane. */
function ends({state, table}, data) {
  if (!table || table.d !== 5 || table.length !== 40 || state.sigma !== 0.01) return [];
  const {omega, mu} = data.ends[state.heads === "one" ? 1 : 2];
  const points = [];
  omega.forEach((scales, run) => {
    const cancels = summary(scales, mu[run]).imbalance < 0.5;
    if (state.heads !== "pair") scales.forEach((w, h) => points.push([w, mu[run][h]]));
    else if (cancels) points.push([0, 1].reduce(([w, m], h) => [w + Math.abs(scales[h]) / 2, m + Math.abs(mu[run][h]) / 2], [0, 0]));
  });
  return [{key: "trained", points, colour: INK, radius: 2.6}];
}

function drawPath(plot, {state, landscape, start, path, now, other, exact, table, one, pair, level, inside}) {
  const risks = path.times.map((time, i) => [time, landscape.risk(path.omega[i], path.mu[i])]);
  const lines = [{key: "risk", points: risks, colour: "noisy", width: 2.4, label: `risk on the path`}];
  if (other && table) {
    const found = otherLandscape(`${exact ? "approximate" : "exact"} ${state.d} ${state.length} ${state.sigma}`);
    lines.push({key: "other", points: other.times.map((time, i) => [time, found.risk(other.omega[i], other.mu[i])]), colour: "noisy", dash: "2 4", label: `on the ${exact ? "approximate" : "exact"} risk`});
  }
  const all = lines.flatMap(({points}) => points.map(([, risk]) => risk)).filter((risk) => risk > 0);
  const low = Math.min(pair.risk, level.stepBest, ...all);
  plot.axes({y: {domain: [low / 1.35, Math.max(1.6 * level.zero, 1.2 * landscape.risk(start.omega, start.mu) || 0)]}});
  plot.lines(lines);
  plot.rules([
    {y: level.zero, label: "answer 0"},
    {y: one.risk, label: "best single head"},
    {y: exact ? level.centredBest : pair.risk, label: exact ? "best centred step, best pair" : "pair, <i>ω</i> → 0"},
    {x: Math.max(0.01, now.time), dash: "2 3", colour: "theory"},
  ]);
  plot.points(inside && now.time > 0 ? [{key: "now", points: [[now.time, landscape.risk(now.omega, now.mu)]], colour: "noisy", radius: 5}] : []);
}

const place = ({omega, mu}) => `(${number(omega, 3)}, ${number(mu, 3)})`;

function numbers(found) {
  const {state, landscape, exact, table, one, pair, start, now, level, inside, data} = found;
  const {step, offset} = summary(now.omega, now.mu);
  errors.risk_start = inside ? landscape.error(start.omega, start.mu) : 0;
  errors.risk_now = inside ? landscape.error(now.omega, now.mu) : 0;
  const best = table ? bayes(table, state.sigma, data.noise) : null;
  errors.bayes = best?.error ?? 0;
  return {
    risk_start: inside ? landscape.risk(start.omega, start.mu) : "outside of the table",
    risk_now: inside ? landscape.risk(now.omega, now.mu) : "outside of the table",
    step_now: step, offset_now: offset, omega_now: now.omega[0], mu_now: now.mu[0],
    omega2_now: now.omega.length > 1 ? now.omega[1] : "–", mu2_now: now.mu.length > 1 ? now.mu[1] : "–",
    same_step: compared(found).risk, zero: level.zero, one_risk: one.risk, one_place: place(one), step1: level.step1, centred: level.centredBest,
    pair_risk: pair.risk, pair_place: exact ? place(pair) : "ω → 0", plain: level.stepBest,
    bayes: best ? best.risk : `between ${number(level.bayesLower, 3)} and ${number(Math.min(level.zero, level.leastSquares), 3)}`,
  };
}

const PAGE = "in_context/05_two_numbers_per_head";

mount("two_numbers", {
  controls,
  data: true,
  plots: [
    {key: "map", label: "Map of the risk over the two numbers of a head, with the start of the gradient flow and its path", height: 430, x: {label: "<i>ω</i>: how sharply the head compares"}, y: {label: "<i>μ</i>: how loudly it writes"}},
    {key: "path", label: "Risk along the path against time", height: 430, x: {label: "time of the flow", scale: "log", domain: [0.01, 1e6]}, y: {label: "risk", scale: "log", domain: [0.5, 10]}},
  ],
  values,
  command: ({d, length, sigma}) => `.venv/bin/python -m attnlib rerun ${PAGE} -p d ${d} -p length ${length} -p noise_std ${sigma} -o mine.ipynb`,
  setup: ({set}) => followTries(controls, set, "two_numbers"),
  update,
});
