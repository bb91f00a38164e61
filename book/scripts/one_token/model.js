/** Risks of four heads on single-location regression, and their weights. Mirrors attnbook.one_token. */

const STEP = 0.2; // of the grid of Gumbel variables

/** Sums of f(x - y) against the density of a Gaussian y of standard deviation root, on the grid u. */
function smoothed(f, root, first, count, step) {
  const low = Math.floor(((-root / 2 - 9) * root) / step);
  const high = Math.ceil(((root + 9) * root) / step);
  const kernel = [];
  for (let j = low; j <= high; j += 1) {
    const z = (j * step) / root;
    kernel.push(((step / root) * Math.exp((-z * z) / 2)) / Math.sqrt(2 * Math.PI));
  }
  const values = Float64Array.from({length: count + kernel.length - 1}, (_, i) => f(first + step * (i - high)));
  const out = new Float64Array(count);
  for (let m = 0; m < count; m += 1) {
    let sum = 0;
    for (let j = 0; j < kernel.length; j += 1) sum += kernel[j] * values[m + kernel.length - 1 - j];
    out[m] = sum;
  }
  return out;
}

/** Step, density p(u - nu) and log F(u) of sqrt(nu) z + Gumbel on a grid; attnlib: _grids. For nu >= 0.25. */
export function grids(strength) {
  const root = Math.sqrt(strength);
  const step = Math.min(STEP, 0.4 * root);
  const first = -9 * root - 6;
  const count = Math.ceil((strength + 18 * root + 40) / step);
  const shifted = (x) => Math.exp(-(x - strength) - Math.exp(Math.min(strength - x, 700)));
  const above = smoothed((x) => -Math.expm1(-Math.exp(Math.min(-x, 700))), root, first, count, step);
  const below = smoothed((x) => Math.exp(-Math.exp(Math.min(-x, 700))), root, first, count, step);
  const logBelow = above.map((tail, i) => (tail < 0.5 ? Math.log1p(-tail) : Math.log(below[i])));
  return {step, density: smoothed(shifted, root, first, count, step), logBelow};
}

/** The Bayes risk from such a grid; attnlib: bayes_risk. */
export function bayesRisk({step, density, logBelow}, tokens) {
  let sum = 0;
  for (let i = 0; i < density.length; i += 1) sum -= density[i] * Math.expm1((tokens - 1) * logBelow[i]);
  return step * sum;
}

/** The best risk of own-score weights; attnlib: own_score_risk. */
export function ownScoreRisk(tokens, strength) {
  const root = Math.sqrt(strength);
  const step = Math.min(0.3, 0.3 / root);
  let sum = 0;
  for (let z = -root / 2 - 12; z < 12; z += step) {
    const odds = Math.log(tokens - 1) - strength / 2 - root * z;
    sum += Math.exp((-z * z) / 2) / (1 + Math.exp(-odds));
  }
  return (step * sum) / Math.sqrt(2 * Math.PI);
}

/** The best risk of linear weights; attnlib: linear_risk. */
export const linearRisk = (tokens, strength, centred) =>
  centred ? (tokens - 1) / (tokens + strength) : 1 / (1 + 1 / (tokens - 1) + strength / tokens);

/** Weights of all tokens; attnlib: softmax_weights, sigmoid_weights, linear_weights. */
export function weights(kind, scores, strength) {
  const root = Math.sqrt(strength);
  const tokens = scores.length;
  if (kind === "softmax") {
    const largest = Math.max(...scores);
    const powers = scores.map((score) => Math.exp(root * (score - largest)));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  }
  const bias = strength / 2 + Math.log(tokens - 1);
  if (kind === "sigmoid") return scores.map((score) => 1 / (1 + Math.exp(bias - root * score)));
  const risk = linearRisk(tokens, strength, false);
  return scores.map((score) => risk / (tokens - 1) + ((root * risk) / tokens) * score);
}

/** Standard normal numbers for a picture, the same for the same draw. */
export function normals(count, draw) {
  let state = (draw * 2654435761) >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return Array.from({length: count}, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}

export const functions = {
  bayes_risk: ({tokens, strength}) => bayesRisk(grids(strength), tokens),
  own_score_risk: ({tokens, strength}) => ownScoreRisk(tokens, strength),
  linear_risk: ({tokens, strength, centred}) => linearRisk(tokens, strength, centred),
  weights: ({kind, scores, strength}) => weights(kind, scores, strength),
  normals: ({count, draw}) => normals(count, draw),
};
