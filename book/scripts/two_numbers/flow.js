/**
 * Gradient flow on a landscape: d(omega, mu)/dt = -grad risk / (2 d), the clock of attnbook.in_context.approximate.gradient_flow.
 * In the valley of a pair the slopes across and along differ by many powers of ten, so the method is implicit: RODAS, six stages
 * of order 4 with an embedded order 3 (Hairer & Wanner, Solving Ordinary Differential Equations II, section IV.7).
 */

const GAMMA = 0.25;
const A = [
  [],
  [1.544],
  [0.9466785280815826, 0.2557011698983284],
  [3.314825187068521, 2.896124015972201, 0.9986419139977817],
  [1.221224509226641, 6.019134481288629, 12.53708332932087, -0.687886036105895],
];
const C = [
  [],
  [-5.6688],
  [-2.430093356833875, -0.2063599157091915],
  [-0.1073529058151375, -9.594562251023355, -20.47028614809616],
  [7.496443313967647, -10.24680431464352, -33.99990352819905, 11.7089089320616],
  [8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136, -6.058818238834054],
];

/**
 * Follow the flow and stop at every moment of `times` (increasing, > 0).
 * @param {{risk, derivatives, holds, d}} landscape
 * @param {number[]} omega
 * @param {number[]} mu
 * @param {number[]} times
 * @returns {{omega: number[][], mu: number[][], times: number[], left: boolean, steps: number}}
 *   states at those of the times that were reached; `left`: the flow left the table's range
 */
export function flow(landscape, omega, mu, times, {tolerance = 1e-8, maxSteps = 20000} = {}) {
  const heads = omega.length;
  const scale = -1 / (2 * landscape.d);
  const velocity = (y) => {
    const found = landscape.derivatives(y.slice(0, heads), y.slice(heads));
    return [...found.omega, ...found.mu].map((x) => scale * x);
  };
  const inside = (y) => y.every(Number.isFinite) && landscape.holds(y.slice(0, heads));
  const out = {omega: [], mu: [], times: [], left: false, steps: 0};
  let y = [...omega, ...mu];
  let t = 0;
  let h = Math.min(times[0], 0.01);
  for (const end of times) {
    while (t < end && out.steps < maxSteps) {
      out.steps += 1;
      const length = Math.min(h, end - t);
      const {next, error} = attempt(landscape, y, heads, scale, velocity, length, tolerance, inside);
      if (!(error <= 1)) {
        h = length * (Number.isFinite(error) ? Math.max(0.2, 0.9 * error ** -0.25) : 0.2);
        if (h < 1e-9 * Math.max(t, 1e-6)) { out.left = true; return out; }
        continue;
      }
      y = next;
      t = length === end - t ? end : t + length;
      const grown = length * Math.min(5, error === 0 ? 5 : Math.max(0.2, 0.9 * error ** -0.25));
      h = length < h ? Math.max(h, grown) : grown;
    }
    if (t < end) return out;
    out.omega.push(y.slice(0, heads));
    out.mu.push(y.slice(heads));
    out.times.push(end);
  }
  return out;
}

/** One step of length h: the new state and its error over the tolerance; NaN where a stage leaves the table. */
function attempt(landscape, y, heads, scale, velocity, h, tolerance, inside) {
  const {hessian} = landscape.derivatives(y.slice(0, heads), y.slice(heads), true);
  const solve = factor(hessian.map((row, i) => row.map((x, k) => (i === k ? 1 / (h * GAMMA) : 0) - scale * x)));
  const u = [];
  let at = y;
  for (let s = 0; s < 6; s += 1) {
    if (s === 5) at = at.map((x, i) => x + u[4][i]);
    else if (s > 0) at = y.map((x, i) => x + A[s].reduce((total, a, j) => total + a * u[j][i], 0));
    if (!inside(at)) return {error: NaN};
    const slope = velocity(at);
    u.push(solve(slope.map((x, i) => x + C[s].reduce((total, c, j) => total + (c / h) * u[j][i], 0))));
  }
  const next = at.map((x, i) => x + u[5][i]);
  if (!inside(next)) return {error: NaN};
  const error = Math.sqrt(next.reduce((total, x, i) =>
    total + (u[5][i] / (1e-3 * tolerance + tolerance * Math.max(Math.abs(x), Math.abs(y[i])))) ** 2, 0) / y.length);
  return {next, error};
}

/** Gaussian elimination with pivots; returns the solver of a right-hand side. */
function factor(matrix) {
  const n = matrix.length;
  const order = matrix.map((_, i) => i);
  for (let k = 0; k < n; k += 1) {
    let pivot = k;
    for (let i = k + 1; i < n; i += 1) if (Math.abs(matrix[i][k]) > Math.abs(matrix[pivot][k])) pivot = i;
    [matrix[k], matrix[pivot], order[k], order[pivot]] = [matrix[pivot], matrix[k], order[pivot], order[k]];
    for (let i = k + 1; i < n; i += 1) {
      const share = (matrix[i][k] /= matrix[k][k]);
      for (let j = k + 1; j < n; j += 1) matrix[i][j] -= share * matrix[k][j];
    }
  }
  return (right) => {
    const x = order.map((place) => right[place]);
    for (let i = 0; i < n; i += 1) for (let j = 0; j < i; j += 1) x[i] -= matrix[i][j] * x[j];
    for (let i = n - 1; i >= 0; i -= 1) {
      for (let j = i + 1; j < n; j += 1) x[i] -= matrix[i][j] * x[j];
      x[i] /= matrix[i][i];
    }
    return x;
  };
}
