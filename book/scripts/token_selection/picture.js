/**
 * What the plots of the player show: plain lists of marks, made from a course and its theory.
 * @module
 */
import {between, place, stretches} from "./model.js";

export const TOKENS = [["relevant", "signal", "relevant token"], ["confusing", "noisy", "confusing token"], ["weak", "clean", "weak token"], ["noise", "bound", "noise tokens"]];
export const KINDS = [["clean", "clean", "clean samples"], ["noisy", "noisy", "flipped samples"], ["fresh", "signal", "fresh samples"]];
export const PHASE_COLOURS = ["#f0efe6", "#D55E00", "#f2c879", "#8fcdf0"]; // book/attnbook/token_selection/heat_map/figure.py
const SLIT = 0.004; // between the pieces of a column
const MEAN_WIDTH = 2.1;

/** Where the columns stand: [{kind, from, to, sample (number) or null}], and the ticks and headings below and above them. */
export function columns(pair) {
  const found = [];
  let x = 0;
  pair.samples.forEach((_, i) => {
    if (i === pair.clean_shown) x += 0.5;
    found.push({kind: i < pair.clean_shown ? "clean" : "noisy", from: x + 0.06, to: x + 0.94, sample: i});
    x += 1;
  });
  const middle = (kind) => {
    const own = found.filter((one) => one.kind === kind);
    return (own[0].from + own[own.length - 1].to) / 2;
  };
  const ticks = [[middle("clean"), "clean"], [middle("noisy"), "flipped"]];
  const single = x / 2;
  x += 1;
  const start = x;
  for (const [kind, , name] of KINDS) {
    found.push({kind, from: x + 0.12, to: x + MEAN_WIDTH - 0.12, sample: null});
    ticks.push([x + MEAN_WIDTH / 2, name.split(" ")[0]]);
    x += MEAN_WIDTH;
  }
  return {columns: found, ticks, width: x, headings: [[single, "single samples"], [(start + x) / 2, "means"]]};
}

/** Coloured pieces of all columns at one time. */
export function pieces({samples, mean}, where, layout) {
  return layout.columns.flatMap((column, c) => {
    const weights = column.sample === null
      ? TOKENS.map(([role]) => between(mean[`${column.kind} ${role}`], where))
      : samples[column.sample].map((values) => between(values, where));
    let low = 0;
    return weights.map((weight, t) => {
      const [, colour, label] = TOKENS[Math.min(t, TOKENS.length - 1)];
      const [bottom, top] = [low, low + weight];
      low = top;
      const inside = weight > 2 * SLIT ? top - SLIT : top;
      return {key: `${c}-${t}`, points: [[column.from, bottom, inside], [column.to, bottom, inside]], colour, label, opacity: 0.88};
    });
  });
}

/** Mean attention on the relevant token with two standard errors, one point per mean column. */
export const whiskers = ({mean, error}, where, layout) => layout.columns.filter(({sample}) => sample === null).map(({kind, from, to}) =>
  [(from + to) / 2, between(mean[`${kind} relevant`], where), 2 * between(error[`${kind} relevant`], where)]);

/** The mean field's share of the relevant token, a short line across each mean column. */
export const fieldLines = (values, layout) => layout.columns.filter(({sample}) => sample === null).map(({kind, from, to}) =>
  ({key: `field-${kind}`, points: [[from, values[kind]], [to, values[kind]]], colour: "theory", width: 2.2, label: "orthogonal noise"}));

const held = (value) => Math.min(1, Math.max(0, value));

/** A curve over time as a line, and a band of two standard errors around it. */
export function curve({logTimes, mean, error}, name, {colour, label, width = 2}) {
  const line = {key: name, points: logTimes.map((at, k) => [at, mean[name][k]]), colour, label, width};
  const points = logTimes.map((at, k) => [at, held(mean[name][k] - 2 * error[name][k]), held(mean[name][k] + 2 * error[name][k])]);
  return {line, band: {key: `${name} band`, points, colour, opacity: 0.2}};
}

/** A strip of the phases of most training sets, above the curves. */
export const strip = ({logTimes, phases}, names, [low, high]) => stretches(logTimes, phases, names.length).map(([phase, from, to], i) =>
  ({key: `phase ${i}`, points: [[from, low, high], [to, low, high]], colour: PHASE_COLOURS[phase], label: names[phase], opacity: 1}));

/** The same curve for all signal-to-noise ratios; the chosen one stands out, the others carry their name at a staggered height. */
export function family(courses, name, chosen) {
  const lines = courses.map(({label, course}) => ({
    key: label,
    points: course.logTimes.map((at, k) => [at, course.mean[name][k]]),
    colour: label === chosen ? "signal" : "bound",
    width: label === chosen ? 3 : 1.3,
  }));
  lines.sort((a, b) => a.width - b.width); // the chosen one on top
  return lines;
}

/** Names of the curves of `family`, in ink: where each passes a height of its own before `end` (log10 time), else there, if there is room; the chosen one first. */
export function familyNames(courses, name, chosen, end) {
  const taken = [];
  const ordered = courses.map((one, i) => ({...one, level: i % 3})).sort((a, b) => (b.label === chosen) - (a.label === chosen));
  return ordered.flatMap(({label, level, course: {logTimes, mean}}) => {
    const values = mean[name];
    const height = 0.35 + 0.16 * level;
    const k = values.findIndex((value, j) => j > 0 && value >= height && values[j - 1] < height);
    const at = k > 0 ? logTimes[k - 1] + ((height - values[k - 1]) / (values[k] - values[k - 1])) * (logTimes[k] - logTimes[k - 1]) : Infinity;
    if (at < end - 0.5) return [{x: at, y: height, text: label, anchor: "start", dx: 7, dy: 11}];
    const y = between(values, place(logTimes, end));
    if (taken.some((other) => Math.abs(other - y) < 0.07)) return [];
    taken.push(y);
    return [{x: end, y, text: label, anchor: "end", dx: -4, dy: -6}];
  });
}

/** Value of a list of [log10 time, value] at a time, linear between; the ends hold. */
export function along(points, at) {
  const logs = points.map(([log]) => log);
  return between(points.map(([, value]) => value), place(logs, at));
}
