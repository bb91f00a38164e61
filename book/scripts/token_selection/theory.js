/**
 * Closed forms of token selection. Mirrors attnlib/token_selection/{theory,fresh_selection}.py; a `law` has the fields of `TokenLaw`.
 * @module
 */
import {flippedShare, shares} from "./mean_field.js";

export const snr = (law) => law.signal_norm / (law.noise_std * Math.sqrt(law.d));
/** n SNR^2: `theory.n_snr_squared`. */
export const nSnrSquared = (law) => law.n * snr(law) ** 2;
/** n d SNR^4: `theory.n_d_snr_fourth`. */
export const nDSnrFourth = (law) => law.n * law.d * snr(law) ** 4;
/** log(1 + exp(-h / sqrt 2)): `theory.loss_floor`. */
export const lossFloor = (law) => Math.log1p(Math.exp(-law.head_scale / Math.SQRT2));

/** Phi(x) = erfc(-x / sqrt 2) / 2, tails included: a series near zero, a continued fraction elsewhere. */
export function normalCdf(x) {
  const z = Math.abs(x);
  if (z > 2) { // Laplace's continued fraction of the tail
    let fraction = z;
    for (let k = 300; k >= 1; k -= 1) fraction = z + k / fraction;
    const tail = Math.exp((-z * z) / 2) / (Math.sqrt(2 * Math.PI) * fraction);
    return x > 0 ? 1 - tail : tail;
  }
  let [term, sum] = [z, z]; // phi(z) (z + z^3/3 + z^5/15 + ...)
  for (let k = 3; term > 1e-17 * sum; k += 2) sum += term *= (z * z) / k;
  const half = (Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI)) * sum;
  return x > 0 ? 0.5 + half : 0.5 - half;
}

/** Accuracy with uniform attention: `theory.uniform_attention_accuracy`. */
export function uniformAccuracy(law) {
  const strength = law.signal_norm * (1 + (law.same_class_tokens - 1) * law.weak_signal);
  return normalCdf(strength / (law.noise_std * Math.sqrt(2 * law.tokens)));
}

/** Steps 1 / (alpha |nu| |mu|^3 d sigma_w^2): `theory.not_overfitting_clock`. */
export const notOverfittingClock = (law, stepSize, weightScale = 1 / 3) => 1 / (stepSize * law.head_scale * law.signal_norm ** 2 * weightScale);

/** Steps n / (alpha sigma^2 |nu| |mu| d^2 sigma_w^2): `theory.overfitting_clock`. */
export const overfittingClock = (law, stepSize, weightScale = 1 / 3) => law.n / (stepSize * law.noise_std ** 2 * law.head_scale * law.d * weightScale);

/** Natural logarithm of `theory.benign_clock`: of the clock above times exp(1 / (n SNR^2)). */
export const logBenignClock = (law, stepSize, weightScale = 1 / 3) => 1 / nSnrSquared(law) + Math.log(overfittingClock(law, stepSize, weightScale));

/** Trapezoid over a Gaussian variable: error below 1e-9 with a step of 0.4 for a spread up to 1.5, with 0.2 up to 4. */
function gaussianNodes(step) {
  const g = Array.from({length: 2 * Math.round(8 / step) + 1}, (_, i) => i * step - 8);
  return {g, weight: g.map((x) => (step * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI))};
}
const FEW = gaussianNodes(0.4);
const MANY = gaussianNodes(0.2);
const GUMBEL_STEP = 0.4;

/**
 * Mean attention of a fresh sample on every token, a one-dimensional integral: `fresh_selection.fresh_attention`.
 * E softmax(z)_t = int F_t'(w) prod_{u != t} F_u(w) dw,  F_t(w) = E_g exp(-exp(-(w - m_t - s g))).
 */
export function freshAttention(law, ownScore, otherScore, scoreVariance) {
  const {own, other} = shares(law);
  const means = own.map((x, t) => x * ownScore + other[t] * otherScore);
  const kinds = [...new Set(means)];
  const kind = means.map((m) => kinds.indexOf(m));
  const count = kinds.map((_, k) => kind.filter((other) => other === k).length);
  const spread = Math.sqrt(scoreVariance);
  const {g, weight} = spread <= 1.5 ? FEW : MANY;
  const push = g.map((x) => Math.exp(spread * x));
  const [first, last] = [Math.min(...kinds) - 4 - 8 * spread, Math.max(...kinds) + 28 + 8 * spread];
  const result = kinds.map(() => 0);
  const [cdf, density] = [kinds.map(() => 0), kinds.map(() => 0)];
  for (let w = first; w < last; w += GUMBEL_STEP) {
    let product = 1;
    for (let k = 0; k < kinds.length; k += 1) {
      const level = Math.exp(kinds[k] - w);
      let [below, rate] = [0, 0];
      for (let i = 0; i < push.length; i += 1) {
        const arrival = level * push[i];
        if (arrival > 60) break; // the rest is zero to 25 digits
        const part = weight[i] * Math.exp(-arrival);
        below += part;
        rate += arrival * part;
      }
      cdf[k] = below;
      density[k] = rate;
      product *= below ** count[k];
    }
    if (product > 1e-30) for (let k = 0; k < kinds.length; k += 1) result[k] += (density[k] / cdf[k]) * product * GUMBEL_STEP;
  }
  return kind.map((k) => result[k]);
}

/** Signal score at which noise-free fresh attention on the relevant token is 1/2: `fresh_threshold`. */
export function freshThreshold(law) {
  const weak = 1 + law.same_class_tokens;
  const short = (score) => score < Math.log(law.tokens - 1 - weak + weak * Math.exp(law.weak_signal * score));
  let [low, high] = [0, 1];
  while (short(high)) [low, high] = [high, 2 * high];
  for (let i = 0; i < 50; i += 1) {
    const middle = (low + high) / 2;
    if (short(middle)) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** A_1 = sum a_t, S / X once every training sample has selected, mean share of the selected token: `theory._late_shares`. */
function lateShares(law) {
  const weak = 1 + law.same_class_tokens;
  const first = 1 + weak * law.weak_signal;
  const second = 1 + weak * law.weak_signal ** 2;
  const eta = flippedShare(law);
  const selected = 1 - eta + eta * law.weak_signal;
  const half = nSnrSquared(law) / 2;
  const perGap = (half * (selected - first / law.tokens)) / (1 + half * (second - first ** 2 / law.tokens));
  return {first, perGap, selected};
}

/** b of log tau_sel ~ b / (n SNR^2): `theory.delay_exponent`. */
export function delayExponent(law) {
  const {first, selected} = lateShares(law);
  const advantage = selected - first / law.tokens;
  return advantage > 0 ? (2 * freshThreshold(law)) / advantage : Infinity;
}

const selects = (kind, t) => t === kind; // clean samples token 0, flipped ones token 1

/** By how much late gaps exceed that of an irrelevant token of a clean sample, clean and flipped: `theory._late_leads`. */
function lateLeads(law) {
  const {first, perGap} = lateShares(law);
  const {own, other, total} = shares(law);
  const [h, rest] = [law.head_scale, (1 - first * perGap) / law.tokens];
  const irrelevant = Math.SQRT1_2 / (1 + Math.exp(h / Math.SQRT2)) / rest;
  return [1, -1].map((sign, kind) => {
    const values = own.map((x, t) => (sign * (x - other[t])) / Math.SQRT2);
    const best = values[kind];
    return values.map((value, t) => (selects(kind, t) ? 0 : Math.log((best - value) / (1 + Math.exp(h * best)) / ((rest + total[t] * perGap) * irrelevant))));
  });
}

/** Signal score, and lambda |p|^2 on the span of the data, at late gaps `gap` + leads: `theory._late_scores`. */
function lateScores(law, gap, leads) {
  const {first, perGap, selected} = lateShares(law);
  const {total} = shares(law);
  const eta = flippedShare(law);
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const gaps = leads.map((lead, kind) => lead.map((x, t) => (selects(kind, t) ? 0 : gap + x)));
  const mean = (clean, flipped) => (1 - eta) * clean + eta * flipped;
  const shared = gaps.map((row) => sum(row.map((x, t) => x * (first / law.tokens - total[t]))));
  const score = (perGap / (selected - first / law.tokens)) * mean(...shared);
  const squares = gaps.map((row) => {
    const base = (sum(row) + first * score) / law.tokens;
    return sum(row.map((x, t) => (base - x - total[t] * score) ** 2));
  });
  return [score, (law.n * mean(...squares)) / (law.noise_std ** 2 * law.d) + 2 * (score / law.signal_norm) ** 2];
}

/** D of a fresh sample long after everything is memorised: `theory.late_discrimination`. */
export function lateDiscrimination(law) {
  const none = [0, 1].map(() => shares(law).total.map(() => 0));
  const [score, inSpan] = lateScores(law, 1, none);
  return score / (law.noise_std * Math.sqrt(inSpan));
}

const LARGEST_VARIANCE = 9;

/** Natural log of the selection time in steps, and the memorised gap then; Infinity where it never comes: `theory.selection_time`. */
export function selectionTime(law, stepSize, weightScale = 1 / 3) {
  const {first, perGap} = lateShares(law);
  if (!(perGap > 0)) return [Infinity, Infinity];
  const leads = lateLeads(law);
  const at = (gap) => {
    const [score, inSpan] = lateScores(law, gap, leads);
    const prompt = (Math.sqrt(weightScale ** 2 + 4 * inSpan) - weightScale) / 2;
    return {score, prompt, variance: law.noise_std ** 2 * (inSpan + weightScale * prompt)};
  };
  const missing = (gap) => {
    const {score, variance} = at(gap);
    return 0.5 - freshAttention(law, score, score, variance)[0];
  };
  let low = (freshThreshold(law) - lateScores(law, 0, leads)[0]) / perGap;
  let [high, atLow] = [low, 0];
  let atHigh = missing(high);
  while (atHigh > 0) { // the first crossing: mean attention may fall again later
    [low, atLow] = [high, atHigh];
    high += 0.1 / perGap;
    if (at(high).variance > LARGEST_VARIANCE) return [Infinity, Infinity];
    atHigh = missing(high);
  }
  for (let i = 0; i < 60 && high - low > 1e-12 * high; i += 1) { // regula falsi (Illinois)
    const middle = atLow === atHigh ? (low + high) / 2 : low + ((high - low) * atLow) / (atLow - atHigh);
    const left = missing(middle);
    if (Math.abs(left) < 1e-14) [low, high] = [middle, middle];
    else if (left > 0) [low, atLow, atHigh] = [middle, left, atHigh / 2];
    else [high, atHigh, atLow] = [middle, left, atLow / 2];
  }
  const h = law.head_scale;
  const doubt = 1 / (1 + Math.exp(h / Math.SQRT2));
  const speed = (stepSize * (weightScale + 2 * at(high).prompt) * law.noise_std ** 2 * law.d * h) / law.n;
  return [high - Math.log(((law.tokens * doubt) / (Math.SQRT2 * (1 - first * perGap))) * speed), high];
}
