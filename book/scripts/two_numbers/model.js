/**
 * Two numbers per head: risks, their gradient flow, minima and what heads are compared with. Isotropic covariates, units of the
 * notebook convention. A landscape is `Exact` (a table of attnlib's moments) or `Approximate` (closed form).
 */
import {Approximate} from "./approximate.js";
import {Exact} from "./exact.js";
import {flow} from "./flow.js";

export {Approximate, Exact, flow};

export const ONE = [1];
export const PAIR = [1, -1];

/** The landscape of {table, d, length, sigma}: exact if there is a table. */
export const landscapeOf = ({table, d, length, sigma}) => (table ? new Exact(table, sigma) : new Approximate({d, length, sigma}));

/** The best mu of heads pattern x omega beside fixed others, and the risk there; attnlib: best_mu. */
export function bestMu(landscape, omega, pattern, others) {
  const {level, linear, square} = landscape.parabola(omega, pattern, others);
  return {omega, mu: -linear / (2 * square), risk: level - (linear * linear) / (4 * square)};
}

/**
 * The minimum over omega in (0, limit) of the risk at the best mu: a grid in log omega, then golden section.
 * Mirrors attnbook.in_context.optimum (one_head_optimum, pair_optimum), on the tabulated draws.
 */
export function optimum(landscape, pattern) {
  const limit = Math.min(landscape.reach, 3 * Math.sqrt(5 / landscape.d));
  const at = (log) => bestMu(landscape, Math.exp(log), pattern);
  const [low, high] = [Math.log(0.004 * limit), Math.log(limit)];
  const count = 60;
  let best = 0;
  let lowest = Infinity;
  for (let i = 0; i <= count; i += 1) {
    const {risk} = at(low + ((high - low) * i) / count);
    if (risk < lowest) [lowest, best] = [risk, i];
  }
  const golden = (Math.sqrt(5) - 1) / 2;
  let a = low + ((high - low) * Math.max(0, best - 1)) / count;
  let b = low + ((high - low) * Math.min(count, best + 1)) / count;
  for (let i = 0; i < 45; i += 1) {
    const [x, y] = [b - golden * (b - a), a + golden * (b - a)];
    if (at(x).risk < at(y).risk) b = y;
    else a = x;
  }
  return at((a + b) / 2);
}

/** Closed forms that heads are compared with; attnlib: zero_risk, gd_risk, gd_optimal_*, debiased_gd_optimal_*, bayes_*. */
export function references({d, length, sigma}) {
  const s2 = d * sigma * sigma;
  const plain = length / (length + d + 1 + s2);
  const centred = length / (length + d + s2);
  return {
    zero: d,
    step1: (d * (d + 1 + s2)) / length,
    stepBest: d * (1 - plain),
    stepBestSize: plain,
    centredBest: (d * (d + 1 + s2)) / (length + d + s2),
    centredBestSize: centred,
    bayesLower: (s2 * d) / (length + s2),
    leastSquares: length > d + 1 ? (s2 * d) / (length - d - 1) : Infinity,
    oneHeadApproximate: 1 / Math.sqrt(d),
  };
}

/** Risk of the centred step of size eta plus `offset` times the mean label; attnlib: debiased_gd_risk. */
export function centredStep({d, length, sigma}, eta, offset = 0) {
  const s2 = d * sigma * sigma;
  const f = (length - 1) / length;
  return d * (1 - 2 * eta * f + (eta * eta * f * (length + d + s2)) / length) + (offset * offset * (d + s2)) / length;
}

/** Effective step sum omega mu, offset sum mu, and imbalance |sum mu| / sum |mu|; attnlib: Circuits.effective_step, imbalance. */
export function summary(omega, mu) {
  const total = mu.reduce((all, m) => all + m, 0);
  const size = mu.reduce((all, m) => all + Math.abs(m), 0);
  return {step: omega.reduce((all, w, h) => all + w * mu[h], 0), offset: total, imbalance: size ? Math.abs(total) / size : 0};
}

/** Heads of an opposite pair. */
export const opposite = (omega, mu) => ({omega: [omega, -omega], mu: [mu, -mu]});

/**
 * Risk over a grid, rows of mu, columns of omega, of heads pattern x (omega, mu) beside fixed others.
 * @returns {number[][]}
 */
export function grid(landscape, omegas, mus, pattern, others) {
  const columns = omegas.map((omega) => landscape.parabola(omega, pattern, others));
  return mus.map((mu) => columns.map(({level, linear, square}) => level + mu * (linear + mu * square)));
}

/** The Bayes risk of a table's law at `sigma`, and its standard error; attnbook.explorers.bayes_table. */
export function bayes(table, sigma, noise) {
  const {d, length, bayes: cell} = table;
  const [low, high] = noise.map(Math.log);
  const x = Math.min(1, Math.max(-1, (2 * Math.log(sigma) - low - high) / (high - low)));
  let log = 0;
  let [t0, t1] = [1, x];
  for (const coefficient of cell.ratio) {
    log += coefficient * 1e-8 * t0;
    [t0, t1] = [t1, 2 * x * t1 - t0];
  }
  const variance = sigma * sigma;
  const a = length / d - 1 + variance;
  const root = Math.sqrt(a * a + 4 * variance);
  const risk = ((d * (a > 0 ? (4 * variance) / (root + a) : root - a)) / 2) * Math.exp(log);
  const place = (Math.acos(x) / Math.PI) * cell.error.length - 0.5;
  const left = Math.min(cell.error.length - 2, Math.max(0, Math.floor(place)));
  const share = Math.min(1, Math.max(0, place - left));
  return {risk, error: risk * cell.error[left] ** (1 - share) * cell.error[left + 1] ** share};
}

const each = ({omega, mu, ...setting}, f) => {
  const landscape = landscapeOf(setting);
  return omega.map((w, i) => f(landscape, w, mu[i]));
};

export const functions = {
  risk: (asked) => each(asked, (landscape, w, m) => landscape.risk(w, m)),
  error: (asked) => each(asked, (landscape, w, m) => landscape.error(w, m)),
  derivatives: (asked) => each(asked, (landscape, w, m) => landscape.derivatives(w, m, true)),
  flow: ({omega, mu, times, tolerance, ...setting}) => flow(landscapeOf(setting), omega, mu, times, {tolerance}),
  bestMu: ({omega, pattern, others, ...setting}) => bestMu(landscapeOf(setting), omega, pattern, others),
  grid: ({omegas, mus, pattern, others, ...setting}) => grid(landscapeOf(setting), omegas, mus, pattern, others),
  optimum: ({pattern, ...setting}) => optimum(landscapeOf(setting), pattern),
  references,
  centredStep: ({eta, offset, ...setting}) => centredStep(setting, eta, offset),
  summary: ({omega, mu}) => summary(omega, mu),
  bayes: ({table, sigma, noise}) => bayes(table, sigma, noise),
};
