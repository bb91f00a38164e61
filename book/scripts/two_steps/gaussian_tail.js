/**
 * log E_{t ~ N(0,1)} Phi(-(e^{logit - omega t} V + c t) / tau), right down to 1e-16000 and below.
 *
 * Mirrors attnlib.kernels.gaussian_tail.log_error. The integrand is log-concave with h'' <= -1, so it has one mode; the mode is
 * found by Newton's method in a bracket, the points where h has fallen by 42 lie within sqrt(84) of it, and between them
 * Gauss-Kronrod panels are halved until they agree. The maximum is factored out: nothing underflows.
 */

const SQRT_HALF = Math.SQRT1_2;
const LOG_NORMALISER = 0.5 * Math.log(2 * Math.PI);
const LOWEST_DROP = 42; // e^-42 is below the rounding of a float64
const NARROWEST = 1e-9; // tau relative to the standard deviation of its numerator, as in attnlib
const NEVER = -1e12;
const TINY = 2.2250738585072014e-308;

// W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969): about 1e-16 relative.
const NEAR = [
  1.85777706184603153e-1, 3.1611237438705656, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3,
];
const NEAR_BELOW = [1, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3];
const MIDDLE = [
  2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
  8.8195222124176909e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
];
const MIDDLE_BELOW = [
  1, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3, 3.29079923573345963e3,
  4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
];
const FAR = [
  1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
  1.60837851487422766e-2, 6.58749161529837803e-4,
];
const FAR_BELOW = [
  1, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3,
];

const polynomial = (coefficients, x) => coefficients.reduce((sum, c) => sum * x + c, 0);

/** e^{y^2} erfc(y) for y >= 0. */
export function erfcx(y) {
  if (y <= 0.46875) {
    const square = y * y;
    return Math.exp(square) * (1 - (y * polynomial(NEAR, square)) / polynomial(NEAR_BELOW, square));
  }
  if (y <= 4) return polynomial(MIDDLE, y) / polynomial(MIDDLE_BELOW, y);
  const inverse = 1 / (y * y);
  const correction = (inverse * polynomial(FAR, inverse)) / polynomial(FAR_BELOW, inverse);
  return (1 / Math.sqrt(Math.PI) - correction) / y;
}

/** log Phi(-x). */
export function logTail(x) {
  const y = Math.abs(x) * SQRT_HALF;
  if (x >= 0) return x === Infinity ? -Infinity : Math.log(erfcx(y) / 2) - y * y;
  return Math.log1p(-0.5 * Math.exp(-y * y) * erfcx(y));
}

/** phi(x) / Phi(-x). */
export function hazard(x) {
  const y = Math.abs(x) * SQRT_HALF;
  if (x >= 0) return Math.sqrt(2 / Math.PI) / erfcx(y);
  const density = Math.exp(-y * y);
  return density / Math.sqrt(2 * Math.PI) / (1 - 0.5 * density * erfcx(y));
}

/** h(t), without the constant of the normal density. */
const logDensity = (t, level, omega, slope) => logTail(Math.exp(level - omega * t) + slope * t) - (t * t) / 2;

/** [h'(t), h''(t)]; both may be infinite far out on the wall. */
function slopes(t, level, omega, slope) {
  const grown = Math.exp(level - omega * t);
  const x = grown + slope * t;
  const rate = slope - omega * grown;
  const pull = hazard(x);
  if (!Number.isFinite(x) || !Number.isFinite(pull)) return [omega > 0 ? Infinity : -Infinity, -Infinity];
  return [-t - rate * pull, -1 - omega * omega * grown * pull - rate * rate * pull * (pull - x)];
}

/** The root of h', which decreases by at least 1 per unit of t: doubling brackets it, Newton's method finishes. */
function modeOf(level, omega, slope) {
  const side = slopes(0, level, omega, slope)[0] > 0 ? 1 : -1;
  let near = 0;
  let far = 1;
  while (side * slopes(side * far, level, omega, slope)[0] > 0 && far < 1e300) [near, far] = [far, 2 * far];
  let t = (near + far) / 2;
  for (let i = 0; i < 120; i += 1) {
    const [first, second] = slopes(side * t, level, omega, slope);
    if (side * first > 0) near = t;
    else far = t;
    const newton = t - (side * first) / second;
    const next = newton > near && newton < far ? newton : (near + far) / 2;
    if (Math.abs(next - t) <= 1e-14 * t || near === far) return side * next;
    t = next;
  }
  return side * t;
}

// Nodes and weights of the 15-point Kronrod rule on [-1, 1] (positive half) and of the 7-point Gauss rule inside it.
const NODES = [
  0.991455371120812639206854697526329, 0.949107912342758524526189684047851, 0.864864423359769072789712788640926,
  0.741531185599394439863864773280788, 0.586087235467691130294144691693437, 0.405845151377397166906606412076961,
  0.207784955007898467600689403773245, 0,
];
const KRONROD = [
  0.02293532201052922496373200805897, 0.063092092629978553290700663189204, 0.104790010322250183839876322541518,
  0.140653259715525918745189590510238, 0.16900472663926790282658342659855, 0.190350578064785409913256402421014,
  0.204432940075298892414161999234649, 0.209482141084727828012999174891714,
];
const GAUSS = [
  0, 0.129484966168869693270611432679082, 0, 0.27970539148927666790146777142378, 0, 0.381830050505118944950369775488975,
  0, 0.417959183673469387755102040816327,
];

/**
 * log E Phi(-(e^{level - omega t} + slope t)), t ~ N(0,1).
 * `tolerance`: what the Gauss and the Kronrod value of a panel may differ by, relative to the whole; the Kronrod value is far closer.
 */
export function logMass(level, omega, slope, tolerance = 1e-9) {
  const mode = modeOf(level, omega, slope);
  const peak = logDensity(mode, level, omega, slope);
  if (peak === -Infinity) return -Infinity;
  const stack = [];
  for (const side of [-1, 1]) {
    let [near, far] = [0, Math.sqrt(2 * LOWEST_DROP)];
    for (let i = 0; i < 60 && far - near > 0.05 * far; i += 1) {
      const middle = (near + far) / 2;
      if (logDensity(mode + side * middle, level, omega, slope) > peak - LOWEST_DROP) near = middle;
      else far = middle;
    }
    // Two panels on each side to begin with: the inner quarter holds the peak.
    stack.push([side * far, side * far * 0.25, 0], [side * far * 0.25, 0, 0]);
  }
  let total = 0;
  let size = 0;
  while (stack.length) {
    const [start, end, depth] = stack.pop();
    const centre = (start + end) / 2;
    const half = Math.abs(end - start) / 2;
    let [fine, coarse] = [0, 0];
    for (let i = 0; i < 8; i += 1) {
      for (const sign of i === 7 ? [1] : [-1, 1]) {
        const drop = logDensity(mode + centre + sign * half * NODES[i], level, omega, slope) - peak;
        const value = Math.exp(Math.min(drop, 0));
        fine += KRONROD[i] * value;
        coarse += GAUSS[i] * value;
      }
    }
    size = Math.max(size, total + fine * half);
    if (Math.abs(fine - coarse) * half > tolerance * size && depth < 40) {
      stack.push([start, centre, depth + 1], [centre, end, depth + 1]);
    } else {
      total += fine * half;
    }
  }
  // Where h is so large that its rounding exceeds the drops the panels are empty: the peak alone is the answer to rounding.
  return peak - LOG_NORMALISER + (total > 0 ? Math.log(total) : LOG_NORMALISER);
}

/** log of the error on one class; special cases as in attnlib.kernels.gaussian_tail.log_error. */
export function logError(logit, value, omega, along, tau, tolerance = 1e-9) {
  const correct = value >= 0;
  const scale = Math.hypot(along, tau);
  if (scale === 0) return value === 0 ? Math.log(0.5) : correct ? -Infinity : 0;
  const narrow = tau < NARROWEST * scale;
  const width = Math.max(tau, NARROWEST * scale, TINY);
  const level = Math.log(Math.abs(value)) + logit - Math.log(width);
  const clamped = Math.max(-1e300, Math.min(1e300, level));
  let mass = logMass(clamped, omega, (correct ? along : -along) / width, tolerance);
  if (narrow && mass < NEVER) mass = -Infinity;
  return correct ? mass : Math.log1p(-Math.exp(Math.min(mass, 0)));
}
