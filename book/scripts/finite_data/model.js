/** Limits of the error of linear attention on prompts of few tasks. Mirrors attnbook.finite_data.limits. */

/** Stieltjes transform of Marchenko and Pastur's law; attnlib: stieltjes. */
export function stieltjes(q, kappa) {
  const share = 1 / kappa;
  const b = q + 1 - share;
  const root = Math.sqrt(b * b + 4 * q * share);
  return b >= 0 ? 2 / (b + root) : (root - b) / (2 * q * share);
}

const ratio = ({alpha, noise}) => (1 + noise) / alpha;

/** Unlimited prompts, {fresh, seen}; attnlib: many_prompts_error. */
export function manyPrompts({alpha, kappa, noise}) {
  const q = ratio({alpha, noise});
  const m = stieltjes(q, kappa);
  const slope = (m * m) / (1 - (m / (1 + m / kappa)) ** 2 / kappa);
  return {fresh: noise + q - 2 * q * q * m + (1 + q) * q * q * slope, seen: noise + q - q * q * m};
}

/** What finitely many prompts cost, {fresh, seen}; attnlib: prompt_cost. */
export function promptCost(setting) {
  const {seen} = manyPrompts(setting);
  const q = ratio(setting);
  return {fresh: (1 + q) * stieltjes(q, setting.kappa) * seen, seen};
}

/** Minimum-norm least squares, {fresh, seen}, infinite at tau = 1; attnlib: limit_error. */
export function limitError({tau, ...setting}) {
  const {kappa, noise} = setting;
  if (tau === 1) return {fresh: Infinity, seen: Infinity};
  const q = ratio(setting);
  if (tau > 1) {
    const [end, cost] = [manyPrompts(setting), promptCost(setting)];
    return {fresh: end.fresh + cost.fresh / (tau - 1), seen: end.seen + cost.seen / (tau - 1)};
  }
  const left = 1 - tau;
  const mu = q * stieltjes(q, kappa / tau);
  const bracket = 1 - tau * (1 - mu) ** 2 - (mu * (q - noise)) / q;
  const fresh = ((tau * (1 + q)) / left) * bracket - 2 * tau * (1 - mu) + 1 + noise;
  const ridge = (left * q) / (tau * mu);
  const share = 1 / kappa;
  const c = 1 / (1 - share / (share + ridge / left) ** 2);
  const rest = noise + q - 2 * q * left * (q / ridge + 1);
  return {fresh, seen: tau * ((q + ridge) ** 2 / ridge + rest / (left - c * left ** 2))};
}

/** The best of all Gamma on fresh tasks; attnlib: pattern_error. */
export const patternError = ({alpha, noise}) => 1 + noise - 1 / (1 + ratio({alpha, noise}));

/** Ridge regression on the prompt; attnlib: ridge_error. */
export function ridgeError({alpha, noise}) {
  const part = noise / alpha;
  return noise + part * stieltjes(part, alpha);
}

/** Part of what the best linear attention gains on predicting zero that an error gains: 1 at its error, 0 at that of zero, or negative. */
export const gain = (error, {alpha, noise}) => (1 + noise - error) / (1 + noise - patternError({alpha, noise}));

/** The word for a point of the plane: at least half of that gain on fresh tasks, or else on seen ones, or neither. */
export function word(setting) {
  const {fresh, seen} = limitError(setting);
  if (gain(fresh, setting) >= 0.5) return "regresses";
  return gain(seen, setting) >= 0.5 ? "memorises" : "does neither";
}

export const functions = {
  stieltjes: ({q, kappa}) => stieltjes(q, kappa),
  many_prompts: (setting) => manyPrompts(setting),
  prompt_cost: (setting) => promptCost(setting),
  limit_error: (setting) => limitError(setting),
  pattern_error: (setting) => patternError(setting),
  ridge_error: (setting) => ridgeError(setting),
  word: (setting) => word(setting),
};
