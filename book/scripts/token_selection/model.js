/**
 * Formulas of the token selection player, without a page around them; `functions` is what tests call by name.
 * @module
 */
import {powerOfTen} from "../shared/format.js";
import {HEAT_MAP_TIME, between, course, majority, meanTime, means, place, reaches, stretches, verdict, wholeRun} from "./course.js";
import {crossing, flippedShare, meanField} from "./mean_field.js";
import {unpack} from "./packing.js";
import * as theory from "./theory.js";

/** Mean-field path of a law, and the times it says: all in units of 1 / step size. */
export function fieldOf(law, horizon) {
  const path = meanField(law, {horizon});
  return {
    path,
    half: crossing(path.time, path.attention.map((row) => row[0]), 0.5),
    fitted: crossing(path.time, path.margins.map(([, noisy]) => noisy), 0),
  };
}

/** Mean fresh attention on the relevant token along a mean-field path: [[log10 time, attention], ...], denser before 10^3. */
export function freshPath(law, path, from, to) {
  const found = [];
  let k = 1;
  for (let at = from; at <= to + 1e-9; at += at < 3 ? 0.25 : 1) {
    while (k < path.time.length - 1 && path.time[k] < 10 ** at) k += 1;
    if (found[found.length - 1] !== k) found.push(k);
  }
  return found.map((row) => [Math.log10(path.time[row]), theory.freshAttention(law, path.score[row], path.score[row], path.variance[row])[0]]);
}

/**
 * First moment of a mean-field path at which a fresh sample gives half of its attention to the relevant token, as log10 time;
 * Infinity if none does: `theory.selection_path`. `fresh`: what `freshPath` found on it.
 */
export function fieldSelects(law, path, fresh) {
  const reached = fresh.findIndex(([, attention]) => attention >= 0.5);
  if (reached < 0) return Infinity;
  const row = (k) => path.time.findIndex((time) => time >= 10 ** fresh[k][0] * (1 - 1e-12));
  let [low, high] = [reached === 0 ? 0 : row(reached - 1), row(reached)];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (theory.freshAttention(law, path.score[middle], path.score[middle], path.variance[middle])[0] >= 0.5) high = middle;
    else low = middle;
  }
  return Math.log10(path.time[high]);
}

/** Labels of the signal-to-noise ratios of the data, rising. */
export const SNRS = ["0.0745", "0.0913", "0.112", "0.158", "0.224", "0.447", "3.16"];
export const LABEL_NOISES = [0.1, 0.2, 0.4];

/** Number of a pair in the data file; -1 if it is not there. */
export const indexOf = (data, label, labelNoise) => data.pairs.findIndex((pair) => snrLabel(pair) === label && pair.label_noise === labelNoise);
/** The signal-to-noise ratio as a control shows it. */
export const snrLabel = (pair) => Number(theory.snr(pair).toPrecision(3)).toString();

export {HEAT_MAP_TIME, between, course, majority, meanTime, means, place, reaches, stretches, theory, verdict, wholeRun};

const steps = (function_) => ({law, step_size: stepSize, weight_scale: weightScale = 1 / 3}) => function_(law, stepSize, weightScale);

export const functions = {
  snr: ({law}) => theory.snr(law),
  n_snr_squared: ({law}) => theory.nSnrSquared(law),
  n_d_snr_fourth: ({law}) => theory.nDSnrFourth(law),
  loss_floor: ({law}) => theory.lossFloor(law),
  normal_cdf: ({x}) => theory.normalCdf(x),
  uniform_attention_accuracy: ({law}) => theory.uniformAccuracy(law),
  not_overfitting_clock: steps(theory.notOverfittingClock),
  overfitting_clock: steps(theory.overfittingClock),
  log_benign_clock: steps(theory.logBenignClock),
  fresh_attention: ({law, own_score: own, other_score: other, score_variance: variance}) => theory.freshAttention(law, own, other, variance),
  fresh_threshold: ({law}) => theory.freshThreshold(law),
  delay_exponent: ({law}) => theory.delayExponent(law),
  late_discrimination: ({law}) => theory.lateDiscrimination(law),
  selection_time: steps(theory.selectionTime),
  flipped_share: ({law}) => flippedShare(law),
  mean_field: ({law, horizon}) => {
    const {path, half, fitted} = fieldOf(law, horizon);
    const last = path.time.length - 1;
    return {moments: last + 1, half, fitted, attention: path.attention[last], margins: path.margins[last], score: path.score[last], variance: path.variance[last]};
  },
  fresh_path: ({law, horizon, from, to}) => freshPath(law, meanField(law, {horizon}), from, to),
  means: ({data, index}) => means(data, index).mean,
  field_selects: ({law, horizon, from, to}) => {
    const path = meanField(law, {horizon});
    return fieldSelects(law, path, freshPath(law, path, from, to));
  },
  choices: ({data}) => SNRS.map((label) => LABEL_NOISES.map((labelNoise) => indexOf(data, label, labelNoise))),
  unpack: ({text, count, length, resolution}) => unpack(text, count, length, resolution),
  course: ({data, index}) => course(data, index),
  at_time: ({data, index, log_time: at}) => {
    const {mean, logTimes} = course(data, index);
    return Object.fromEntries(data.curves.map((name) => [name, between(mean[name], place(logTimes, at))]));
  },
  stretches: ({log_times: logTimes, phases, kinds}) => stretches(logTimes, phases, kinds),
  reaches: ({log_times: logTimes, values, level}) => reaches(logTimes, values, level),
  whole_run: ({found, names}) => wholeRun(found, names, (at) => powerOfTen(at)),
  mean_time: ({logs}) => meanTime(logs),
  verdict: (seen) => verdict(seen),
};
