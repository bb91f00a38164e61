/**
 * Two steps of gradient descent from zero in the limit of orthogonal noise: everything the explorer shows, without a page around it.
 *
 * Mirrors attnbook.single_head.mean_field and attnbook.single_head.phase_theory. Units: a = beta d / 4n (pull of a sample's own noise),
 * b_k = beta rho^2 (|C_k| - |N_k|) / 4n (pull of the shared signal), kappa = n SNR^2 (1 - 2 eta) / 2.
 * Arrays of length 2 have the class as their axis. Counts may be fractions: expected counts are.
 */
import {logError} from "./gaussian_tail.js";

export const BENIGN_BELOW = -1; // log10 of the clean error; attnbook.single_head.phase: PhaseDiagram.phases
export const DELTA = 0.01; // failure probability in the theorem's condition, as on the page Two steps

const sigmoid = (z) => (z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z)));
const both = (f) => [f(0), f(1)];

/**
 * Expected counts |C_k|, |N_k| when a share of the flipped labels falls in class 1.
 * share = 1/2 is the expectation of the data law.
 */
export function expectedCounts({n, label_noise, first_class_share = 0.5}) {
  const noisy = [first_class_share * label_noise * n, (1 - first_class_share) * label_noise * n];
  return {clean: noisy.map((flipped) => n / 2 - flipped), noisy};
}

/** Mirrors mean_field: scores, slopes, attention and margins after one and two steps; all arrays (2,), a a number. */
export function meanField({n, d, signal_norm, step_size, clean, noisy}) {
  const rho2 = signal_norm ** 2;
  const unit = step_size / (4 * n);
  const a = unit * d;
  const b = both((k) => unit * rho2 * (clean[k] - noisy[k]));
  const margin1_clean = b.map((pull) => (pull + a) / 2);
  const margin1_noisy = b.map((pull) => (a - pull) / 2);
  const slope_clean = margin1_clean.map((m) => sigmoid(-m));
  const slope_noisy = margin1_noisy.map((m) => sigmoid(-m));
  const preference_clean = b.map((pull) => pull - a);
  const preference_noisy = b.map((pull) => -(pull + a));
  const push_clean = both((k) => slope_clean[k] * preference_clean[k]);
  const push_noisy = both((k) => slope_noisy[k] * preference_noisy[k]);
  const p_signal = both((k) => unit * rho2 * (clean[k] * push_clean[k] + noisy[k] * push_noisy[k]));
  const p_noise_clean = push_clean.map((push) => -a * push);
  const p_noise_noisy = push_noisy.map((push) => -a * push);
  const attention_clean = both((k) => sigmoid(p_signal[k] - p_noise_clean[k]));
  const attention_noisy = both((k) => sigmoid(p_signal[k] - p_noise_noisy[k]));
  const boost_clean = slope_clean.map((g) => 1 + 2 * g);
  const boost_noisy = slope_noisy.map((g) => 1 + 2 * g);
  const v_signal = both((k) => unit * rho2 * (clean[k] * boost_clean[k] - noisy[k] * boost_noisy[k]));
  const v_noise_clean = boost_clean.map((boost) => a * boost);
  const v_noise_noisy = boost_noisy.map((boost) => a * boost);
  const margin2_clean = both((k) => attention_clean[k] * v_signal[k] + (1 - attention_clean[k]) * v_noise_clean[k]);
  const margin2_noisy = both((k) => -attention_noisy[k] * v_signal[k] + (1 - attention_noisy[k]) * v_noise_noisy[k]);
  return {
    a,
    b,
    margin1_clean,
    margin1_noisy,
    slope_clean,
    slope_noisy,
    preference_clean,
    preference_noisy,
    p_signal,
    p_noise_clean,
    p_noise_noisy,
    attention_clean,
    attention_noisy,
    v_signal,
    v_noise_clean,
    v_noise_noisy,
    margin2_clean,
    margin2_noisy,
  };
}

/**
 * Coefficients of v_1, v_2, p_2 in units of beta / 4n: theta_i of y_i xi_i, lambda_k of mu_k, and those of p_2.
 * Chapter "Theory of the single head", closed forms; attnlib.single_head.closed_form with mean-field slopes.
 */
export function coefficients({clean, noisy, field}) {
  const sign = [1, -1];
  return {
    theta2_clean: field.slope_clean.map((g) => 1 + 2 * g),
    theta2_noisy: field.slope_noisy.map((g) => 1 + 2 * g),
    lambda1: both((k) => sign[k] * (clean[k] - noisy[k])),
    lambda2: both(
      (k) => sign[k] * (clean[k] * (1 + 2 * field.slope_clean[k]) - noisy[k] * (1 + 2 * field.slope_noisy[k])),
    ),
    p_signal: both(
      (k) =>
        clean[k] * field.slope_clean[k] * field.preference_clean[k] +
        noisy[k] * field.slope_noisy[k] * field.preference_noisy[k],
    ),
    p_noise_clean: both((k) => -field.slope_clean[k] * field.preference_clean[k]),
    p_noise_noisy: both((k) => -field.slope_noisy[k] * field.preference_noisy[k]),
  };
}

/** sums over the samples: |Pi v_2|^2, |Pi p_2|^2 and Pi v_2 . Pi p_2 for orthogonal noise of squared norm d. */
function moments({n, d, step_size, clean, noisy}, field) {
  const scale = d * (step_size / (4 * n)) ** 2;
  let [vv, pp, vp] = [0, 0, 0];
  for (let k = 0; k < 2; k += 1) {
    const boost_c = 1 + 2 * field.slope_clean[k];
    const boost_n = 1 + 2 * field.slope_noisy[k];
    const push_c = field.slope_clean[k] * field.preference_clean[k];
    const push_n = field.slope_noisy[k] * field.preference_noisy[k];
    vv += clean[k] * boost_c ** 2 + noisy[k] * boost_n ** 2;
    pp += clean[k] * push_c ** 2 + noisy[k] * push_n ** 2;
    vp += (k ? -1 : 1) * (clean[k] * boost_c * push_c - noisy[k] * boost_n * push_n);
  }
  return {vv: scale * vv, pp: scale * pp, vp: -scale * vp};
}

const logMean = (first, second) => {
  const high = Math.max(first, second);
  return high === -Infinity ? high : high + Math.log((Math.exp(first - high) + Math.exp(second - high)) / 2);
};

/** Mirrors mean_field_log10_error: {total, classes: [class 1, class 2]} of the exact clean error after two steps. */
export function log10Error(setting, tolerance = 1e-9) {
  const field = setting.field ?? meanField(setting);
  const {vv, pp, vp} = moments(setting, field);
  const omega = Math.max(Math.sqrt(pp), 2.2250738585072014e-308);
  const along = vp / omega;
  const tau = Math.sqrt(Math.max(vv - along ** 2, 0));
  const first = logError(field.p_signal[0], field.v_signal[0], omega, along, tau, tolerance);
  // Classes that do not differ are integrated once: along is then exactly 0.
  const same = along === 0 && field.p_signal[0] === field.p_signal[1] && field.v_signal[0] === field.v_signal[1];
  const second = same ? first : logError(field.p_signal[1], field.v_signal[1], omega, -along, tau, tolerance);
  return {total: logMean(first, second) / Math.LN10, classes: [first / Math.LN10, second / Math.LN10]};
}

/** log10 of the clean error after one step, Phi(-b_k / |Pi v_1|) with |Pi v_1| = (beta / 4n) sqrt(n d). */
export function log10ErrorStep1({n, d, step_size, field}) {
  const width = (step_size / (4 * n)) * Math.sqrt(n * d);
  const [first, second] = field.b.map((pull) => logError(0, pull, 0, 0, width));
  return {total: logMean(first, second) / Math.LN10, classes: [first / Math.LN10, second / Math.LN10]};
}

/** Mirrors mean_field_readings for any counts: the smallest margin of flipped samples (of clean ones without flips) and log S. */
export function readings(setting) {
  const {n, d, step_size, clean, noisy} = setting;
  const field = setting.field ?? meanField(setting);
  let [boost, margin, strength] = [0, Infinity, Infinity];
  const flips = noisy[0] + noisy[1] > 0;
  for (let k = 0; k < 2; k += 1) {
    boost += clean[k] * (1 + 2 * field.slope_clean[k]) ** 2 + noisy[k] * (1 + 2 * field.slope_noisy[k]) ** 2;
    if (!flips || noisy[k] > 0) margin = Math.min(margin, (flips ? field.margin2_noisy : field.margin2_clean)[k]);
  }
  const width = (step_size / (4 * n)) * Math.sqrt(d * boost);
  for (let k = 0; k < 2; k += 1) {
    const value = field.v_signal[k];
    strength = Math.min(strength, value > 0 ? field.p_signal[k] + Math.log(value / width) : -Infinity);
  }
  return {margin, strength};
}

/** The least margin after two steps over all kinds of samples that exist. Every label is fitted when it is positive. */
export function smallestMargin({clean, noisy, field}) {
  const present = [];
  for (let k = 0; k < 2; k += 1) {
    if (clean[k] > 0) present.push(field.margin2_clean[k]);
    if (noisy[k] > 0) present.push(field.margin2_noisy[k]);
  }
  return Math.min(...present);
}

/** Phase as in attnbook.single_head.phase: 0 does not fit, 1 harmful, 2 benign. */
export const phaseOf = (margin, log10_error) => (margin > 0 ? (log10_error < BENIGN_BELOW ? 2 : 1) : 0);

/** n SNR^2 = 2 / (1 - 2 eta), as an SNR. Mirrors preference_threshold. */
export const preferenceThreshold = ({n, label_noise}) => Math.sqrt(2 / (n * (1 - 2 * label_noise)));

/** SNR^2 sqrt(nd) (1 - 2 eta) / 2 = 1, as an SNR. Mirrors lower_snr_limit. */
export const lowerSnrLimit = ({n, d, label_noise}) => Math.sqrt(2 / ((1 - 2 * label_noise) * Math.sqrt(n * d)));

/** The theorem's condition with C = 1: n^2 log(n / delta). Mirrors the regime of claim T1. */
export const theoremDimension = ({n}) => n ** 2 * Math.log(n / DELTA);

/** One point of the diagram: setting, mean field, errors, readings, phase. step is beta d / n. */
export function point({n, d, signal_norm, label_noise, step, first_class_share = 0.5}) {
  const setting = {
    n,
    d,
    signal_norm,
    step_size: (step * n) / d,
    ...expectedCounts({n, label_noise, first_class_share}),
  };
  setting.field = meanField(setting);
  const smallest = smallestMargin(setting);
  const error = log10Error(setting);
  return {
    ...setting,
    coefficients: coefficients(setting),
    error1: log10ErrorStep1(setting),
    error2: error,
    smallest,
    ...readings(setting),
    snr: signal_norm / Math.sqrt(d),
    n_snr2: (n * signal_norm ** 2) / d,
    kappa: (((n * signal_norm ** 2) / d) * (1 - 2 * label_noise)) / 2,
    phase: phaseOf(smallest, error.total),
  };
}

/**
 * Rows of the diagram, [from, to) of the steps, so that a long computation can be cut into slices: {error, margin, strength}, each a
 * list of rows. error: log10 of the clean error where every label is fitted, NaN elsewhere. Centres of columns and rows: snr, steps.
 */
export function diagramRows({
  n,
  d,
  label_noise,
  first_class_share = 0.5,
  snr,
  steps,
  rows = [0, steps.length],
  tolerance = 1e-2,
}) {
  const counts = expectedCounts({n, label_noise, first_class_share});
  const found = {error: [], margin: [], strength: []};
  for (let row = rows[0]; row < rows[1]; row += 1) {
    const cells = snr.map((ratio) => {
      const setting = {n, d, signal_norm: ratio * Math.sqrt(d), step_size: (steps[row] * n) / d, ...counts};
      setting.field = meanField(setting);
      const error = smallestMargin(setting) > 0 ? log10Error(setting, tolerance).total : NaN;
      return {error, ...readings(setting)};
    });
    for (const name of Object.keys(found)) found[name].push(cells.map((cell) => cell[name]));
  }
  return found;
}

/** The least step beta d / n, up to `high`, from which the flipped samples are fitted at this signal; Infinity where there is none. */
export function fittingStep({n, d, signal_norm, label_noise, first_class_share = 0.5, step, high = 1000}) {
  const counts = expectedCounts({n, label_noise, first_class_share});
  const fits = (one) => {
    const setting = {n, d, signal_norm, step_size: (one * n) / d, ...counts};
    return smallestMargin({...setting, field: meanField(setting)}) > 0;
  };
  let low = step;
  while (!fits(low * 1.05)) {
    low *= 1.05;
    if (low > high) return Infinity;
  }
  let up = low * 1.05;
  for (let i = 0; i < 40; i += 1) {
    const middle = (low + up) / 2;
    if (fits(middle)) up = middle;
    else low = middle;
  }
  return up;
}
