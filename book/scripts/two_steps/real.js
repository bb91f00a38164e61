/**
 * Real training sets, drawn and trained in the browser: Gaussian noise, two steps, the exact clean error.
 *
 * `trainOn` mirrors attnbook.single_head.phase_cells.two_step_cells for one setting. The draws have the law of
 * attnlib.single_head.law.SignalNoiseLaw, not its random numbers: noise tokens are the rows of Bartlett's lower triangle, which is
 * exact in law at a cost that does not depend on d (chapter "Theory of the single head", rotations are free).
 */
import {logError} from "./gaussian_tail.js";

/** Uniform numbers in [0, 1) from a seed: the generator sfc32, warmed up. */
export function uniforms(seed) {
  let [a, b, c, counter] = [0x9e3779b9, 0x243f6a88, seed | 0, 1];
  const next = () => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };
  for (let i = 0; i < 15; i += 1) next();
  return next;
}

/** Standard normal numbers by Marsaglia's polar method. */
export function normals(uniform) {
  let spare = null;
  return () => {
    if (spare !== null) {
      const kept = spare;
      spare = null;
      return kept;
    }
    for (;;) {
      const [x, y] = [2 * uniform() - 1, 2 * uniform() - 1];
      const square = x * x + y * y;
      if (square > 0 && square < 1) {
        const factor = Math.sqrt((-2 * Math.log(square)) / square);
        spare = y * factor;
        return x * factor;
      }
    }
  };
}

/** A chi variable with `freedom` degrees of freedom: twice the root of a Gamma (Marsaglia and Tsang 2000), freedom >= 1. */
export function chi(freedom, uniform, normal) {
  if (freedom < 3) return Math.sqrt(Array.from({length: freedom}, normal).reduce((sum, one) => sum + one * one, 0));
  const shape = freedom / 2 - 1 / 3;
  const width = 1 / Math.sqrt(9 * shape);
  for (;;) {
    const x = normal();
    const cube = (1 + width * x) ** 3;
    if (cube > 0 && Math.log(1 - uniform()) < (x * x) / 2 + shape * (1 - cube + Math.log(cube)))
      return Math.sqrt(2 * shape * cube);
  }
}

/** One training set: {noise: n rows of m numbers, classes: n of 0 | 1, flipped: n booleans}, m = min(n, d - 2). */
export function drawSet({n, d, label_noise, seed}) {
  const uniform = uniforms(seed);
  const normal = normals(uniform);
  const m = Math.min(n, d - 2);
  const noise = Array.from({length: n}, (_, i) => {
    const row = new Float64Array(m);
    for (let j = 0; j < Math.min(i, m); j += 1) row[j] = normal();
    if (i < m) row[i] = chi(d - 2 - i, uniform, normal);
    return row;
  });
  const classes = Array.from({length: n}, () => (uniform() < 0.5 ? 0 : 1));
  const flipped = Array.from({length: n}, () => uniform() < label_noise);
  return {noise, classes, flipped};
}

const sigmoid = (z) => (z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z)));

/** noise^T c, and noise w. */
function gather(noise, coefficients) {
  const sum = new Float64Array(noise[0].length);
  noise.forEach((row, i) => {
    const weight = coefficients[i];
    for (let j = 0; j < row.length; j += 1) sum[j] += weight * row[j];
  });
  return sum;
}

function scores(noise, vector) {
  return noise.map((row) => {
    let sum = 0;
    for (let j = 0; j < row.length; j += 1) sum += row[j] * vector[j];
    return sum;
  });
}

/** Two steps from zero on one training set: margins after both steps, attention on the signal, log10 of the exact clean error. */
export function trainOn({noise, classes, flipped, signal_norm, step_size}) {
  const n = noise.length;
  const unit = step_size / (4 * n);
  const rho2 = signal_norm ** 2;
  const y = classes.map((k, i) => (k === 0 ? 1 : -1) * (flipped[i] ? -1 : 1));
  const ofClass = (coefficients) => {
    const sums = [0, 0];
    classes.forEach((k, i) => {
      sums[k] += coefficients[i];
    });
    return sums.map((sum) => rho2 * sum);
  };
  const first = y.map((label) => unit * label);
  const at_signal = ofClass(first);
  const at_noise = scores(noise, gather(noise, first));
  const margins1 = y.map((label, i) => (label * (at_signal[classes[i]] + at_noise[i])) / 2);
  const slopes = margins1.map((m) => sigmoid(-m));
  const v = y.map((label, i) => unit * (1 + 2 * slopes[i]) * label);
  const p = y.map((label, i) => unit * slopes[i] * label * (at_signal[classes[i]] - at_noise[i]));
  const [v_signal, p_signal] = [ofClass(v), ofClass(p)];
  const v_noise = gather(noise, v);
  const p_noise = gather(noise, p).map((one) => -one);
  const of_v = scores(noise, v_noise);
  const of_p = scores(noise, p_noise);
  const attention = classes.map((k, i) => sigmoid(p_signal[k] - of_p[i]));
  const margins2 = y.map((label, i) => label * (attention[i] * v_signal[classes[i]] + (1 - attention[i]) * of_v[i]));
  return {margins1, margins2, attention, log10_error: exactError(v_signal, p_signal, v_noise, p_noise)};
}

function exactError(v_signal, p_signal, v_noise, p_noise) {
  // Scaled first: entries of p may be so small that their squares vanish.
  const largest = p_noise.reduce((high, one) => Math.max(high, Math.abs(one)), 0);
  const scaled = p_noise.map((one) => (largest > 0 ? one / largest : 0));
  const length = Math.sqrt(scaled.reduce((sum, one) => sum + one * one, 0));
  const direction = scaled.map((one) => one / Math.max(length, 0.5));
  const along = v_noise.reduce((sum, one, i) => sum + one * direction[i], 0);
  const tau = Math.sqrt(v_noise.reduce((sum, one, i) => sum + (one - along * direction[i]) ** 2, 0));
  const [one, two] = [1, -1].map((sign, k) =>
    logError(p_signal[k], sign * v_signal[k], largest * length, sign * along, tau),
  );
  const high = Math.max(one, two);
  return (high === -Infinity ? high : high + Math.log((Math.exp(one - high) + Math.exp(two - high)) / 2)) / Math.LN10;
}

/** `count` sets of one law, drawn from seeds 1, 2, ... and trained: how many fit every label, and the errors. */
export function trainSets({n, d, signal_norm, label_noise, step, count, first = 0}) {
  return Array.from({length: count}, (_, i) => {
    const set = drawSet({n, d, label_noise, seed: first + i + 1});
    const trained = trainOn({...set, signal_norm, step_size: (step * n) / d});
    return {
      ...trained,
      flipped: set.flipped,
      classes: set.classes,
      fits: trained.margins2.every((margin) => margin > 0),
    };
  });
}
