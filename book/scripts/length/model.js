/**
 * Error against the length of the prompt: closed forms for every estimator, for covariates N(0, Sigma) with
 * Sigma_ij = rho^|i-j|, in the units of the notebook convention (entries of beta have variance 1, labels noise d sigma^2).
 * Mirrors attnbook.in_context.closed_form; `bayesSampled` reads the table of attnbook.explorers.length.
 *
 * A setting is {d, sigma, rho}. Sigma enters by its eigenvalues alone (`spectrum`), because every matrix here commutes with it.
 */

/** Label noise in units of the variance of beta's entries, attnlib: RegressionLaw.noise_variance. */
export const noiseVariance = ({d, sigma}) => d * sigma * sigma;

/** Eigenvalues of rho^|i-j| (d x d) by cyclic Jacobi rotations; attnlib: toeplitz_covariance. */
export function spectrum({d, rho = 0}) {
  if (rho === 0) return new Array(d).fill(1);
  const a = Array.from({length: d}, (_, i) => Array.from({length: d}, (_unused, j) => rho ** Math.abs(i - j)));
  for (let sweep = 0; sweep < 30; sweep += 1) {
    let off = 0;
    for (let p = 0; p < d; p += 1) {
      for (let q = p + 1; q < d; q += 1) {
        off = Math.max(off, Math.abs(a[p][q]));
        if (a[p][q] !== 0) rotate(a, p, q);
      }
    }
    if (off < 1e-15) break;
  }
  return a.map((row, i) => row[i]);
}

function rotate(a, p, q) {
  const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
  const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(1, theta));
  const c = 1 / Math.hypot(1, t);
  const s = t * c;
  for (let k = 0; k < a.length; k += 1) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
  for (let k = 0; k < a.length; k += 1) [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
}

const sum = (values, f) => values.reduce((total, value) => total + f(value), 0);

/**
 * What all steps at one length need: eigenvalues, f = 1 or (L - 1) / L, and Q per eigenvalue,
 * Q = lambda^2 + [lambda^2 + (tr + s2) lambda] / L (plain) or lambda^2 + (tr + s2) lambda / L (centred).
 */
function step(setting, length, centred) {
  const lambdas = setting.lambdas ?? spectrum(setting);
  const load = (sum(lambdas, (l) => l) + noiseVariance(setting)) / length;
  const q = centred ? (l) => l * l + load * l : (l) => l * l * (1 + 1 / length) + load * l;
  return {lambdas, q, f: centred ? (length - 1) / length : 1};
}

/** Risk of answering 0: the trace of Sigma. */
export const zeroRisk = (setting) => sum(setting.lambdas ?? spectrum(setting), (l) => l);

/**
 * One step of gradient descent from 0 of size eta; `centred` data (softmax pairs of small scores) or plain.
 * tr S - 2 f eta tr S^2 + f eta^2 tr(S Q); attnlib: gd_risk, debiased_gd_risk.
 */
export function stepRisk(setting, eta, length, centred = false) {
  const {lambdas, q, f} = step(setting, length, centred);
  return sum(lambdas, (l) => l - 2 * f * eta * l * l + f * eta * eta * l * q(l));
}

/** The best eta of `stepRisk`: tr S^2 / tr(S Q); attnlib: gd_optimal_step, debiased_gd_optimal_step. */
export function bestStep(setting, length, centred = false) {
  const {lambdas, q} = step(setting, length, centred);
  return sum(lambdas, (l) => l * l) / sum(lambdas, (l) => l * q(l));
}

/** Risk of a step with the matrix that is best at `trained`, times `scale`, at `length`; attnlib: preconditioned_gd_risk. */
export function matrixRisk(setting, trained, length, {centred = false, scale = 1} = {}) {
  const there = step(setting, trained, centred);
  const {lambdas, q, f} = step(setting, length, centred);
  return sum(lambdas, (l) => {
    const gamma = (scale * l) / there.q(l);
    return l - 2 * f * l * gamma * l + f * l * gamma * gamma * q(l);
  });
}

/** Linear attention at its optimum for `trained`: raw sum (its step grows like L) or mean; attnlib: linear_attention_risk. */
export const linearRisk = (setting, trained, length, normalised) =>
  matrixRisk(setting, trained, length, {scale: normalised ? 1 : length / trained});

/** Risk of heads with sum omega mu = eta and sum mu = 0 when L goes to infinity: tr S (1 - eta S)^2; attnlib: softmax_floor. */
export const softmaxFloor = (setting, eta) => sum(setting.lambdas ?? spectrum(setting), (l) => l * (1 - eta * l) ** 2);

/** Floor of a matrix step that is best at `trained`, when L goes to infinity. */
export function matrixFloor(setting, trained, centred = false) {
  const {lambdas, q} = step(setting, trained, centred);
  return sum(lambdas, (l) => l * (1 - (l * l) / q(l)) ** 2);
}

/** No predictor has less: s2 tr[S (L S + s2)^-1]; attnlib: bayes_risk_lower_bound. */
export function bayesLower(setting, length) {
  const s2 = noiseVariance(setting);
  return s2 * sum(setting.lambdas ?? spectrum(setting), (l) => l / (length * l + s2));
}

/** Risk of least squares, above Bayes: s2 d / (L - d - 1), infinite up to L = d + 1; attnlib: bayes_risk_leading_order. */
export const leastSquares = (setting, length) =>
  (length > setting.d + 1 ? (noiseVariance(setting) * setting.d) / (length - setting.d - 1) : Infinity);

/** Limit of the Bayes risk for d, L to infinity at fixed d / L, independent covariates; attnlib: bayes_risk_proportional. */
export function bayesLimit({d, sigma}, length) {
  const variance = sigma * sigma;
  const a = length / d - 1 + variance;
  const root = Math.sqrt(a * a + 4 * variance);
  return (d * (a > 0 ? (4 * variance) / (root + a) : root - a)) / 2;
}

/**
 * The sampled Bayes risk of a table's cell {ratio, error} and its standard error: limit times exp of a Chebyshev series
 * in log sigma over `noise` = [low, high]; attnbook.explorers.bayes_table.
 */
export function bayesSampled(cell, {d, sigma}, length, noise) {
  const [low, high] = noise.map(Math.log);
  const x = Math.min(1, Math.max(-1, (2 * Math.log(sigma) - low - high) / (high - low)));
  let [next, after] = [0, 0];
  for (let k = cell.ratio.length - 1; k > 0; k -= 1) [next, after] = [2 * x * next - after + cell.ratio[k], next];
  const risk = bayesLimit({d, sigma}, length) * Math.exp(1e-8 * (x * next - after + cell.ratio[0]));
  return {risk, error: risk * between(cell.error, x)};
}

/** Between the Chebyshev nodes cos(pi (k + 1/2) / n), which fall with k: linear in the logarithm. */
function between(values, x) {
  const place = (Math.acos(x) / Math.PI) * values.length - 0.5;
  const low = Math.min(values.length - 2, Math.max(0, Math.floor(place)));
  const share = Math.min(1, Math.max(0, place - low));
  return values[low] ** (1 - share) * values[low + 1] ** share;
}

/** Risk of each closed-form estimator at one length; `trained` is the length L0 at which steps are fixed, `eta` the chosen step. */
const ESTIMATORS = {
  zero: (setting) => zeroRisk(setting),
  step: (setting, length) => stepRisk(setting, setting.eta, length),
  stepBest: (setting, length) => stepRisk(setting, bestStep(setting, length), length),
  centred: (setting, length) => stepRisk(setting, setting.eta, length, true),
  centredBest: (setting, length) => stepRisk(setting, bestStep(setting, length, true), length, true),
  softmax: (setting, length) => stepRisk(setting, bestStep(setting, setting.trained, true), length, true),
  matrix: (setting, length) => matrixRisk(setting, length, length),
  linearMean: (setting, length) => linearRisk(setting, setting.trained, length, true),
  linearRaw: (setting, length) => linearRisk(setting, setting.trained, length, false),
  leastSquares: (setting, length) => leastSquares(setting, length),
  bayes: (setting, length) => bayesLower(setting, length),
};

/** Risk of one estimator; @param {{d, sigma, rho, trained, eta, lambdas?}} setting */
export const risk = (setting, name, length) => ESTIMATORS[name](setting, length);

/** Risks of all of them. */
export const risks = (setting, length) => Object.fromEntries(Object.keys(ESTIMATORS).map((name) => [name, risk(setting, name, length)]));

/** What each estimator tends to when prompts get long; null where that is 0. */
export function floors(setting) {
  const {trained, eta} = setting;
  return {
    zero: zeroRisk(setting),
    step: softmaxFloor(setting, eta),
    stepBest: softmaxFloor(setting, sum(setting.lambdas ?? spectrum(setting), (l) => l * l) / sum(setting.lambdas ?? spectrum(setting), (l) => l ** 3)),
    centred: softmaxFloor(setting, eta),
    centredBest: softmaxFloor(setting, sum(setting.lambdas ?? spectrum(setting), (l) => l * l) / sum(setting.lambdas ?? spectrum(setting), (l) => l ** 3)),
    softmax: softmaxFloor(setting, bestStep(setting, trained, true)),
    matrix: 0,
    linearMean: matrixFloor(setting, trained),
    linearRaw: Infinity,
    leastSquares: 0,
    bayes: 0,
  };
}

/**
 * Lengths (whole numbers up to `longest`) where the order of two estimators changes: the first length of the new order.
 * @returns {{length: number, first: string, second: string}[]} from there on `first` has less risk than `second`
 */
export function crossings(setting, pairs, longest) {
  const found = [];
  for (const [a, b] of pairs) {
    let before = 0;
    for (let length = 1; length <= longest; length += 1) {
      const other = risk(setting, b, length);
      const gap = risk(setting, a, length) - other;
      const sign = Math.abs(gap) <= 1e-12 * Math.abs(other) || Number.isNaN(gap) ? 0 : Math.sign(gap);
      if (sign && before && sign !== before) found.push({length, first: sign < 0 ? a : b, second: sign < 0 ? b : a});
      if (sign) before = sign;
    }
  }
  return found;
}

export const functions = {
  spectrum: (setting) => spectrum(setting).slice().sort((a, b) => a - b),
  risks: ({length, ...setting}) => risks(setting, length),
  floors: (setting) => floors(setting),
  bestStep: ({length, centred, ...setting}) => bestStep(setting, length, centred),
  matrixRisk: ({trained, length, centred, scale, ...setting}) => matrixRisk(setting, trained, length, {centred, scale}),
  softmaxFloor: ({eta, ...setting}) => softmaxFloor(setting, eta),
  bayesLimit: ({length, ...setting}) => bayesLimit(setting, length),
  bayesSampled: ({cell, length, noise, ...setting}) => bayesSampled(cell, setting, length, noise),
  crossings: ({pairs, longest, ...setting}) => crossings({...setting, lambdas: spectrum(setting)}, pairs, longest),
};
