/** The token selection player: attention of every token at the time under a scrubber, and the whole run below it. */
import {number, percent, powerOfTen, superscript} from "../shared/format.js";
import {mount} from "../shared/shell.js";
import {
  HEAT_MAP_TIME, LABEL_NOISES, SNRS, between, course, fieldOf, fieldSelects, freshPath, indexOf, majority, meanTime, means, place, reaches, stretches, theory, verdict, wholeRun,
} from "./model.js";
import {KINDS, along, columns, curve, family, familyNames, fieldLines, pieces, strip, whiskers} from "./picture.js";

const [FIRST, LAST] = [-3, 26]; // log10 of time
const EARLY = 3;
// Axes carry log10 of time: a marker's value stays a plain number for screen readers.
const time = {label: "time (sum of step sizes)", domain: [FIRST, LAST], format: (power) => `10${superscript(power)}`};
const TICKS = {whole: [0, 5, 10, 15, 20, 25], early: [-3, -2, -1, 0, 1, 2, 3]};
const endOf = (axis) => (axis === "early" ? EARLY : LAST);
const COMPARED = [
  {value: "fresh relevant", label: "fresh attention on the relevant token"},
  {value: "fresh accuracy", label: "accuracy on fresh data"},
  {value: "noisy fitted", label: "flipped labels fitted"},
];
const when = (logTime) => (typeof logTime === "string" ? logTime : logTime === Infinity ? "never" : Number.isNaN(logTime) ? "not by 10\u00b2\u2076" : powerOfTen(logTime, 2));
const share = (value) => (value > 0.9995 || value < 0.0005 ? number(value, 3) : value.toFixed(3));

const courses = new Map();
const courseOf = (data, index) => {
  if (!courses.has(index)) courses.set(index, course(data, index));
  return courses.get(index);
};

/**
 * What takes longer than a frame is computed in a task of its own after the picture is there, once, and then drawn.
 * @returns {(key, compute, arrived) => any} the result, or undefined until it has arrived
 */
function later() {
  const found = new Map();
  return (key, compute, arrived) => {
    if (!found.has(key)) {
      found.set(key, undefined);
      setTimeout(() => { found.set(key, compute()); arrived(); });
    }
    return found.get(key);
  };
}
const familyOf = later();
const fieldOfPair = later();

/** Mean curves of all ratios at a label noise, and the closed forms of their delays (which speak of models that memorise first: n SNR^2 at most 1). */
const familyCurves = (data, labelNoise) => SNRS.map((label) => {
  const course = means(data, indexOf(data, label, labelNoise));
  return {label, course, closed: theory.nSnrSquared(course.pair) < 1.01 ? theory.selectionTime(course.pair, 1)[0] / Math.LN10 : Infinity};
});

/** Mean field of a pair over the whole run: its times (log10) and its curves [[log10 time, value], ...]. */
function fieldLinesOf(pair) {
  const found = fieldOf(pair, 10 ** LAST);
  const fresh = freshPath(pair, found.path, FIRST, LAST);
  const path = found.path.time.map((at, k) => [Math.log10(at), found.path.attention[k]]).filter(([at]) => at >= FIRST);
  return {
    half: Math.log10(found.half),
    fitted: Math.log10(found.fitted),
    selects: fieldSelects(pair, found.path, fresh),
    clean: path.map(([at, row]) => [at, row[0]]),
    noisy: path.map(([at, row]) => [at, row[pair.tokens]]),
    fresh,
  };
}

function showTokens(plot, seen, field, where, at) {
  const layout = columns(seen.pair);
  const tick = new Map(layout.ticks);
  plot.axes({x: {domain: [-0.3, layout.width + 0.1], ticks: [...tick.keys()], format: (x) => tick.get(x)}});
  plot.areas(pieces(seen, where, layout));
  plot.lines(field ? fieldLines(Object.fromEntries(KINDS.map(([kind]) => [kind, along(field[kind], at)])), layout) : []);
  plot.points([{key: "means", points: whiskers(seen, where, layout), colour: "theory", radius: 2.6, label: "mean of five training sets, two standard errors"}]);
  plot.texts(layout.headings.map(([x, text]) => ({x, y: 1.035, text, anchor: "middle"})));
}

/** Dotted lines at times of theory that the axis shows; neighbours share one label. */
function rules(times, end) {
  const shown = times.filter(([at]) => at >= FIRST && at <= end).sort(([a], [b]) => a - b);
  const close = shown.length === 2 && shown[1][0] - shown[0][0] < 0.3 * (end - FIRST);
  return shown.map(([at, label], i) => ({x: at, dash: "dotted", colour: "theory", label: close ? (i === 1 ? `${shown[0][1]}, ${label}` : "") : label}));
}

function showHistory(plot, seen, field, names, clocks) {
  const curves = names.map(([kind, colour, label]) => curve(seen, `${kind} relevant`, {colour, label}));
  plot.areas(curves.map(({band}) => band));
  plot.lines([
    ...curves.map(({line}) => line),
    ...(field ? KINDS : []).map(([kind]) => ({key: `field ${kind}`, points: field[kind], colour: "theory", width: 1, dash: true, label: "orthogonal noise"})),
  ]);
  plot.rules(clocks);
}

function showOutcomes(plot, seen, names, clocks) {
  const curves = [["clean fitted", "clean", "training: clean labels"], ["noisy fitted", "noisy", "training: flipped labels"], ["fresh accuracy", "signal", "fresh data"]]
    .map(([name, colour, label]) => curve(seen, name, {colour, label}));
  plot.areas([...curves.map(({band}) => band), ...strip(seen, names, [-0.1, -0.04])]);
  plot.lines(curves.map(({line}) => line));
  plot.rules(clocks);
}

function showFamily(plot, all, {snr: chosen, compared, axis}) {
  const low = compared === "fresh accuracy" ? 0.5 : 0; // guessing
  plot.axes({y: {label: COMPARED.find(({value}) => value === compared).label, domain: [low, 1 + 0.05 * (1 - low)], ticks: [0, 0.25, 0.5, 0.75, 1].filter((tick) => tick >= low)}});
  plot.lines(family(all, compared, chosen));
  plot.texts(familyNames(all, compared, chosen, endOf(axis)));
  const told = compared === "fresh relevant" ? all.map(({closed}) => closed).filter((at) => at <= LAST) : [];
  plot.points([{key: "closed form", points: told.map((at) => [at, 0.5]), colour: "theory", hollow: true, label: told.length ? "closed form of the delay" : ""}]);
}

let arrived = false; // something that was computed later

mount("token_selection", {
  data: true,
  controls: [
    {key: "time", label: "time, as a power of ten", kind: "range", min: FIRST, max: LAST, step: 0.05, value: 3, play: {seconds: 16}},
    {key: "label_noise", label: "label noise <i>η</i>", kind: "choice", options: LABEL_NOISES, value: 0.2},
    {key: "snr", label: "signal-to-noise ratio SNR", kind: "choice", options: SNRS, value: "0.112"},
    {key: "step_size", label: "step size <i>α</i>", kind: "log-range", min: 1e-5, max: 1, value: 0.005, count: 100, help: "changes only how many steps a time is"},
    {key: "axis", label: "time axis", kind: "choice", options: [{value: "whole", label: "whole run"}, {value: "early", label: "first six decades"}], value: "whole"},
    {key: "compared", label: "compare all SNR by", kind: "choice", options: COMPARED, value: "fresh relevant"},
  ],
  plots: [
    {key: "tokens", title: "Attention now", label: "attention on every token at the chosen time: single samples and means", height: 300, wide: true,
      x: {}, y: {label: "attention", domain: [0, 1.09], ticks: [0, 0.25, 0.5, 0.75, 1]}},
    {key: "attention", title: "Attention on the relevant token", label: "mean attention on the relevant token over time", height: 280,
      x: time, y: {label: "attention", domain: [0, 1.16], ticks: [0, 0.25, 0.5, 0.75, 1]}},
    {key: "accuracy", title: "Labels fitted, and fresh data", label: "accuracy over time, and the phase", height: 280,
      x: time, y: {label: "accuracy", domain: [-0.12, 1.16], ticks: [0, 0.25, 0.5, 0.75, 1]}},
    {key: "family", title: "All signal-to-noise ratios", label: "one curve for every signal-to-noise ratio at this label noise, over time", height: 270, wide: true,
      x: time, y: {domain: [0, 1.03], ticks: [0, 0.25, 0.5, 0.75, 1]}},
  ],
  values: [
    {key: "signal_norm", label: "signal norm |<i>μ</i>|"}, {key: "d", label: "dimension <i>d</i>", digits: 5},
    {key: "n_snr_squared", label: "<i>n</i> SNR²"}, {key: "n_d_snr_fourth", label: "<i>n d</i> SNR⁴"},
    {key: "steps", label: "steps so far"},
    {key: "clean", label: "clean samples: attention on the relevant token", format: share},
    {key: "noisy", label: "flipped samples: the same", format: share},
    {key: "confusing", label: "flipped samples: on the confusing token", format: share},
    {key: "fresh", label: "fresh samples: on the relevant token", format: share},
    {key: "clean_fitted", label: "clean labels fitted", format: (v) => percent(v)}, {key: "noisy_fitted", label: "flipped labels fitted", format: (v) => percent(v)},
    {key: "accuracy", label: "accuracy on fresh data", format: (v) => percent(v, 4)}, {key: "uniform", label: "the same with uniform attention", format: (v) => percent(v, 4)},
    {key: "loss", label: "loss on fresh data"}, {key: "floor", label: "its floor"},
    {key: "heat_map", label: "the heat map’s rule, near time 5"},
    {key: "half_measured", label: "time of clean attention ½", format: when}, {key: "half_theory", label: "the same for orthogonal noise", format: when},
    {key: "fit_measured", label: "time of half the flipped labels fitted", format: when}, {key: "fit_theory", label: "the same for orthogonal noise", format: when},
    {key: "select_measured", label: "time of fresh attention ½", format: when}, {key: "select_theory", label: "the same for orthogonal noise", format: when},
    {key: "select_closed", label: "the same by the closed form", format: when},
    {key: "power_clock", label: "the theorem’s clock, part 1, no constant", format: when}, {key: "delay_clock", label: "the theorem’s clock, part 2, no constant", format: when},
  ],
  /** Pages 02 and 03 take these parameters; 02 holds d below 12 000. */
  command: ({snr, label_noise: labelNoise, step_size: stepSize}) => {
    const pair = window.attentionCheckedData.token_selection.pairs[indexOf(window.attentionCheckedData.token_selection, snr, labelNoise)];
    const own = pair.d <= 12000
      ? `token_selection/02_dynamics -p n ${pair.n} -p d ${pair.d} -p signal_norm ${pair.signal_norm} -p label_noise ${labelNoise} -p step_size ${stepSize}`
      : `token_selection/08_the_delay -p n ${pair.n} -p signal_norm ${pair.signal_norm} -p label_noise ${labelNoise}`;
    return `.venv/bin/python -m attnlib rerun ${own} -o mine.ipynb`;
  },
  update(state, {plots, values, say, data, set, changed}) {
    const index = indexOf(data, state.snr, state.label_noise);
    const seen = courseOf(data, index);
    const {pair} = seen;
    const again = () => { arrived = true; set({}); };
    const field = fieldOfPair(index, () => fieldLinesOf(pair), again);
    const all = familyOf(state.label_noise, () => familyCurves(data, state.label_noise), again);
    const where = place(seen.logTimes, state.time);
    const now = (name) => between(seen.mean[name], where);
    const selected = meanTime(pair.selected_at);
    const pairChanged = changed.has("snr") || changed.has("label_noise") || arrived;
    arrived = false;

    if (changed.has("axis")) for (const key of ["attention", "accuracy", "family"]) plots[key].axes({x: {domain: [FIRST, endOf(state.axis)], ticks: TICKS[state.axis]}});
    showTokens(plots.tokens, seen, field, where, state.time);
    if (pairChanged || changed.has("axis")) {
      const end = endOf(state.axis);
      showHistory(plots.attention, seen, field, KINDS, rules([[field?.half, "clean ½"], [field?.selects, "fresh ½"]], end));
      showOutcomes(plots.accuracy, seen, data.phases, rules([[field?.fitted, "memorised"]], end));
    }
    if (pairChanged || changed.has("compared") || changed.has("axis")) showFamily(plots.family, all ?? [], state);
    const cursor = (plot, y, name) => plot.marker({key: "now", x: state.time, y, name: `time, ${name}`, label: "", colour: "theory", draggable: "x",
      valuetext: `time ${powerOfTen(state.time)}, ${name} ${share(y)}`, onmove: ([to]) => set({time: to})});
    cursor(plots.attention, now("fresh relevant"), "fresh attention");
    cursor(plots.accuracy, now("fresh accuracy"), "accuracy on fresh data");
    cursor(plots.family, now(state.compared), COMPARED.find(({value}) => value === state.compared).label);
    for (const key of ["attention", "accuracy", "family"]) plots[key].onpoint(([to]) => set({time: to}));

    const uniform = theory.uniformAccuracy(pair);
    const judged = majority(seen.phases, Math.round(place(seen.logTimes, HEAT_MAP_TIME).reduce((a, b) => a + b)), data.phases.length)[0];
    values({
      signal_norm: pair.signal_norm, d: pair.d, n_snr_squared: theory.nSnrSquared(pair), n_d_snr_fourth: theory.nDSnrFourth(pair), steps: 10 ** state.time / state.step_size,
      clean: now("clean relevant"), noisy: now("noisy relevant"), confusing: now("noisy confusing"), fresh: now("fresh relevant"),
      clean_fitted: now("clean fitted"), noisy_fitted: now("noisy fitted"), accuracy: now("fresh accuracy"), uniform, loss: now("fresh loss"), floor: theory.lossFloor(pair),
      half_measured: reaches(seen.logTimes, seen.mean["clean relevant"], 0.5), half_theory: field?.half ?? "…",
      fit_measured: reaches(seen.logTimes, seen.mean["noisy fitted"], 0.5), fit_theory: field?.fitted ?? "…",
      select_measured: selected.count === pair.selected_at.length ? selected.mean : NaN, select_theory: !field ? "…" : field.selects > LAST ? NaN : field.selects,
      select_closed: theory.nSnrSquared(pair) < 1.01 ? all?.find(({label}) => label === state.snr).closed ?? "…" : "not its regime",
      heat_map: data.phases[judged], power_clock: Math.log10(theory.notOverfittingClock(pair, 1)), delay_clock: theory.logBenignClock(pair, 1) / Math.LN10,
    });
    const nearest = where[1] < 0.5 ? where[0] : where[0] + 1;
    const [phase, agreeing] = majority(seen.phases, nearest, data.phases.length);
    const {badge, word, sentence} = verdict({
      phase: data.phases[phase], clean: now("clean relevant"), noisyFitted: now("noisy fitted"), cleanFitted: now("clean fitted"), fresh: now("fresh relevant"),
      accuracy: now("fresh accuracy"), uniform, tokens: pair.tokens,
    });
    const run = wholeRun(stretches(seen.logTimes, seen.phases, data.phases.length), data.phases, (at) => powerOfTen(at));
    const doubt = agreeing < pair.selected_at.length ? ` (${agreeing} of ${pair.selected_at.length} training sets)` : "";
    say(`${sentence}${doubt} ${run}`, {badge, word});
    plots.tokens.describe(`At time ${powerOfTen(state.time)}, ${sentence}`);
    plots.family.describe(run);
  },
});
