/**
 * Ordinary differential equations y' = f(t, y): the Dormand-Prince pair 5(4) with adaptive steps and dense output
 * (Hairer, Norsett & Wanner, Solving Ordinary Differential Equations I, section II.5-6: the method of scipy's RK45).
 */

const C = [0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1];
const A = [
  [],
  [1 / 5],
  [3 / 40, 9 / 40],
  [44 / 45, -56 / 15, 32 / 9],
  [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
  [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
  [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84], // the fifth-order step
];
// Fifth-order step minus the embedded fourth-order one.
const E = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40];
// Coefficients of the fourth-order continuous extension (Hairer's DOPRI5).
const D = [
  -12715105075 / 11282082432,
  0,
  87487479700 / 32700410799,
  -10690763975 / 1880347072,
  701980252875 / 199316789632,
  -1453857185 / 822651844,
  69997945 / 29380423,
];

/**
 * Integrate from (t0, y0) to t1, forwards or backwards.
 *
 * @param {(t: number, y: number[]) => number[]} f right-hand side
 * @param {number[]} y0 start
 * @param {number} t0
 * @param {number} t1
 * @param {object} [options]
 * @param {number} [options.rtol] relative tolerance of a step (1e-9)
 * @param {number} [options.atol] absolute tolerance of a step (1e-12)
 * @param {number} [options.maxSteps] accepted and refused steps together (20000)
 * @param {number} [options.firstStep] length of the first step; chosen when absent
 * @param {(t: number, y: number[]) => number} [options.event] integration ends where this changes its sign
 * @returns {{t: number[], y: number[][], at: (t: number) => number[], steps: number, ended: "end"|"event"|"steps"}}
 *   the accepted steps, and the solution at any time between them; `ended` says why it stopped
 * @throws {Error} where f is not finite at the start
 */
export function integrate(f, y0, t0, t1, {rtol = 1e-9, atol = 1e-12, maxSteps = 20000, firstStep, event} = {}) {
  const dimension = y0.length;
  const direction = Math.sign(t1 - t0) || 1;
  let t = t0;
  let y = Array.from(y0);
  let slope = f(t, y);
  if (!slope.every(Number.isFinite)) throw new Error("the equation has no finite slope at its start");
  const norm = (v, a, b) =>
    Math.sqrt(
      v.reduce((sum, one, i) => sum + (one / (atol + rtol * Math.max(Math.abs(a[i]), Math.abs(b[i])))) ** 2, 0) /
        dimension,
    );
  let step = Math.min(Math.abs(firstStep ?? firstLength(f, t, y, slope, direction, norm)), Math.abs(t1 - t0));
  const times = [t];
  const states = [y];
  const pieces = []; // dense output between two accepted steps
  let ended = t0 === t1 ? "end" : "steps";
  let before = event?.(t, y);
  let steps = 0;
  let refused = false;
  while (ended === "steps" && steps < maxSteps) {
    steps += 1;
    const h = direction * Math.min(step, Math.abs(t1 - t));
    const {k, next} = stages(f, t, y, slope, h);
    const error = norm(
      k[0].map((_, i) => h * k.reduce((sum, one, s) => sum + E[s] * one[i], 0)),
      y,
      next,
    );
    if (!(error <= 1)) {
      // also where something is not finite
      step = Math.abs(h) * (Number.isFinite(error) ? Math.max(0.2, 0.9 * error ** -0.2) : 0.1);
      refused = true;
      if (t + direction * step === t) break;
      continue;
    }
    pieces.push(densePiece(t, h, y, next, k));
    const last = Math.abs(t1 - (t + h)) <= 1e-14 * Math.max(Math.abs(t1), Math.abs(h));
    t = last ? t1 : t + h;
    y = next;
    slope = k[6];
    const after = event?.(t, y);
    if (event && Math.sign(after) !== Math.sign(before) && before !== 0) {
      const piece = pieces[pieces.length - 1];
      t = bisect((s) => event(s, evaluatePiece(piece, s)), piece.t, t);
      y = evaluatePiece(piece, t);
      ended = "event";
    } else if (last) ended = "end";
    before = after;
    times.push(t);
    states.push(y);
    step = Math.abs(h) * Math.min(refused ? 1 : 5, error === 0 ? 5 : Math.max(0.2, 0.9 * error ** -0.2));
    refused = false;
  }
  const at = (s) => {
    if (!pieces.length) return Array.from(y0);
    let low = 0;
    let high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (direction * (pieces[middle].t - s) <= 0) low = middle;
      else high = middle - 1;
    }
    return evaluatePiece(pieces[low], s);
  };
  return {t: times, y: states, at, steps, ended};
}

function stages(f, t, y, slope, h) {
  const k = [slope];
  let next = y;
  for (let s = 1; s < 7; s += 1) {
    const weights = A[s];
    next = y.map((one, i) => {
      let sum = 0;
      for (let j = 0; j < s; j += 1) sum += weights[j] * k[j][i];
      return one + h * sum;
    });
    k.push(f(t + C[s] * h, next));
  }
  return {k, next};
}

function densePiece(t, h, y, next, k) {
  const difference = next.map((one, i) => one - y[i]);
  const bend = difference.map((one, i) => h * k[0][i] - one);
  return {
    t,
    h,
    y,
    difference,
    bend,
    third: difference.map((one, i) => one - h * k[6][i] - bend[i]),
    fourth: y.map((_, i) => h * k.reduce((sum, one, s) => sum + D[s] * one[i], 0)),
  };
}

function evaluatePiece({t, h, y, difference, bend, third, fourth}, s) {
  const x = (s - t) / h;
  const rest = 1 - x;
  return y.map((one, i) => one + x * (difference[i] + rest * (bend[i] + x * (third[i] + rest * fourth[i]))));
}

/** A careful first step (Hairer, II.4): small where the solution bends at once. */
function firstLength(f, t, y, slope, direction, norm) {
  const size = norm(y, y, y);
  const speed = norm(slope, y, y);
  const guess = size < 1e-5 || speed < 1e-5 ? 1e-6 : (0.01 * size) / speed;
  const moved = f(
    t + direction * guess,
    y.map((one, i) => one + direction * guess * slope[i]),
  );
  const bend =
    norm(
      moved.map((one, i) => one - slope[i]),
      y,
      y,
    ) / guess;
  const largest = Math.max(speed, bend);
  const second = !(largest > 1e-15) ? Math.max(1e-6, guess * 1e-3) : (0.01 / largest) ** 0.2;
  return Number.isFinite(second) ? Math.min(100 * guess, second) : guess;
}

/**
 * Zero of `g` between a and b, where g has opposite signs, to the last digit.
 * @param {(x: number) => number} g
 */
export function bisect(g, a, b) {
  const left = Math.sign(g(a));
  let [low, high] = [a, b];
  for (let i = 0; i < 200; i += 1) {
    const middle = low + (high - low) / 2;
    if (middle === low || middle === high) break;
    if (Math.sign(g(middle)) === left) low = middle;
    else high = middle;
  }
  return high;
}
