/**
 * The long run in six variables: gradient flow of one class when the noise tokens are orthogonal and of equal norm.
 *
 * Mirrors attnbook.single_head.flow. State (V, t_c, t_n, P, q_c, q_n), suffix c, n: clean, flipped; s = sigma(P - q);
 * x = rho^2 |C_k| / d, nu = eta / (1 - eta), r the ratio of the two step sizes, time tau = beta t d / n:
 *
 *     V' = x (g_c s_c - nu g_n s_n),  t_c' = g_c (1 - s_c),  t_n' = g_n (1 - s_n),
 *     P' = r x (A_c - nu A_n),        q_c' = -r A_c,         q_n' = r A_n,
 *     A_c = g_c s_c (1 - s_c) (V - t_c),  A_n = g_n s_n (1 - s_n) (V + t_n).
 *
 * Integrated in z = log(1 + tau): the trajectory lives on a logarithmic clock.
 */
import {bisect, integrate} from "../shared/ode.js";

export const LAST_TIME = 1e5; // the time at which attnlib reads a trajectory's fate
export const HIGHEST = 40; // no boundary is looked for above this x

const sigmoid = (z) => (z >= 0 ? 1 / (1 + Math.exp(-z)) : Math.exp(z) / (1 + Math.exp(z)));
const lastOf = (list) => list[list.length - 1];
const odds = (label_noise) => label_noise / (1 - label_noise);

/** Mirrors flow_rates: derivatives of the six variables in the time tau. */
export function flowRates([V, t_c, t_n, P, q_c, q_n], x, nu, rate) {
  const s_c = sigmoid(P - q_c);
  const s_n = sigmoid(P - q_n);
  const g_c = sigmoid(-(s_c * V + (1 - s_c) * t_c));
  const g_n = sigmoid(s_n * V - (1 - s_n) * t_n);
  const pull_c = rate * g_c * s_c * sigmoid(q_c - P) * (V - t_c);
  const pull_n = rate * g_n * s_n * sigmoid(q_n - P) * (V + t_n);
  return [
    x * (g_c * s_c - nu * g_n * s_n),
    g_c * (1 - s_c),
    g_n * (1 - s_n),
    x * (pull_c - nu * pull_n),
    -pull_c,
    pull_n,
  ];
}

/** At most 0 exactly in the trap: the largest of its four defining inequalities. */
export function trapRoom([V, t_c, t_n, P, q_c, q_n], x, nu) {
  return Math.max(V - t_c, sigmoid(P - q_c) - 1 / (1 + x), sigmoid(P - q_n) - 1 / (1 + nu * x), -(V + t_n));
}

const marginOfClean = ([V, t_c, , P, q_c]) => sigmoid(P - q_c) * V + sigmoid(q_c - P) * t_c;
const marginOfFlipped = ([V, , t_n, P, , q_n]) => -sigmoid(P - q_n) * V + sigmoid(q_n - P) * t_n;

const START = [0, 0, 0, 0, 0, 0];

function solve(x, nu, rate, time, options) {
  const rightHandSide = (z, state) => {
    const clock = Math.exp(z);
    return flowRates(state, x, nu, rate).map((value) => clock * value);
  };
  return integrate(rightHandSide, START, 0, Math.log1p(time), options);
}

/** What a reader sees of one state. */
export const reading = (state) => ({
  attention_clean: sigmoid(state[3] - state[4]),
  attention_noisy: sigmoid(state[3] - state[5]),
  margin_clean: marginOfClean(state),
  margin_noisy: marginOfFlipped(state),
  lead: state[0] - state[1],
  logit: state[3] - state[4],
});

/**
 * The flow from zero. Mirrors flow_path, and says when the trap closed.
 * @returns {{at: (tau: number) => number[], times: number[], states: number[][], interpolation_time: number, trap_time: number,
 *   in_trap: boolean}} times and states: the accepted steps; interpolation_time: 0 if flipped samples are always fitted, Infinity if never
 */
export function flow({x, label_noise, attention_rate = 1, time = LAST_TIME}, tolerance = {rtol: 1e-9, atol: 1e-11}) {
  const nu = odds(label_noise);
  const solution = solve(x, nu, attention_rate, time, tolerance);
  const at = (tau) => solution.at(Math.log1p(tau));
  const times = solution.t.map(Math.expm1);
  const flipped = (z) => marginOfFlipped(solution.at(z));
  let interpolation = 0;
  for (let i = 1; i < solution.t.length; i += 1) {
    if (marginOfFlipped(solution.y[i - 1]) < 0 && marginOfFlipped(solution.y[i]) >= 0) {
      interpolation = Math.expm1(bisect(flipped, solution.t[i - 1], solution.t[i]));
    }
  }
  if (!(marginOfFlipped(lastOf(solution.y)) > 0)) interpolation = Infinity;
  // Zero itself lies in the trap when x <= 1.
  const room = (z) => trapRoom(solution.at(z), x, nu);
  const first = solution.y.findIndex((state) => trapRoom(state, x, nu) <= 0);
  const trap =
    first < 0 ? Infinity : first === 0 ? 0 : Math.expm1(bisect(room, solution.t[first - 1], solution.t[first]));
  return {at, times, states: solution.y, interpolation_time: interpolation, trap_time: trap};
}

/** Mirrors flow_path: states at the given times. */
export function flowPath({times, ...setting}) {
  const path = flow({...setting, time: lastOf(times)});
  return {states: times.map(path.at), interpolation_time: path.interpolation_time, trap_time: path.trap_time};
}

/** Mirrors selects_signal. A trajectory that enters the trap is decided; otherwise the sign of the clean logit at `time` decides. */
export function selectsSignal(
  {x, label_noise, attention_rate = 1, time = LAST_TIME},
  tolerance = {rtol: 1e-8, atol: 1e-10},
) {
  const nu = odds(label_noise);
  if (x < 1 || (x === 1 && nu > 0)) return false; // zero itself lies in the trap: proved, nothing to integrate
  const solution = solve(x, nu, attention_rate, time, {...tolerance, event: (_, state) => trapRoom(state, x, nu)});
  const last = lastOf(solution.y);
  return solution.ended === "end" && last[3] > last[4];
}

/** x_1: the first move of the clean logit vanishes. Mirrors first_order_threshold. */
export function firstOrderThreshold({label_noise}) {
  const nu = odds(label_noise);
  return nu < 1 ? (nu + Math.hypot(nu, 1 - nu)) / (1 - nu) ** 2 : Infinity;
}

/** x*(eta), the boundary between the two ends of the flow, by bisection; Infinity above 40. Mirrors signal_threshold. */
export function signalThreshold({label_noise, attention_rate = 1, time = LAST_TIME, tolerance = 2e-4}) {
  if (label_noise === 0) return 1;
  const selects = (x) =>
    selectsSignal({x, label_noise, attention_rate, time}, {rtol: Math.min(1e-8, tolerance * 1e-3), atol: 1e-11});
  let low = 1;
  let high = Math.min(label_noise < 0.5 ? 2 * firstOrderThreshold({label_noise}) : HIGHEST, HIGHEST);
  if (!selects(high)) {
    if (high === HIGHEST || !selects(HIGHEST)) return Infinity;
    [low, high] = [high, HIGHEST];
  }
  while (high > low * (1 + tolerance)) {
    const middle = Math.sqrt(low * high);
    if (selects(middle)) high = middle;
    else low = middle;
  }
  return Math.sqrt(low * high);
}
