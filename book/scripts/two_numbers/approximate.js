/**
 * The approximate loss of the authors' code as a risk in the page's units, for any d, L and noise:
 *
 *     risk / d = 1 - 2 m1 + m1^2 + c sum_hk mu_h mu_k exp(d omega_h omega_k),   m1 = sum_h omega_h mu_h,   c = (1 + sigma^2) / L;
 *
 * attnbook.in_context.approximate: approximate_risk, approximate_gradient and its derivatives (times d).
 */
export class Approximate {
  constructor({d, length, sigma}) {
    Object.assign(this, {d, length, sigma, zero: d, reach: Infinity, share: (1 + sigma * sigma) / length});
  }

  holds() {
    return true;
  }

  risk(omega, mu) {
    const m1 = omega.reduce((total, w, h) => total + w * mu[h], 0);
    let noise = 0;
    omega.forEach((w, h) => omega.forEach((x, k) => { noise += mu[h] * mu[k] * Math.exp(this.d * w * x); }));
    return this.d * (1 - 2 * m1 + m1 * m1 + this.share * noise);
  }

  /** Gradient, and the Hessian (omegas first) if `bend`. */
  derivatives(omega, mu, bend = false) {
    const {d, share} = this;
    const heads = omega.length;
    const kernel = omega.map((w) => omega.map((x) => share * Math.exp(d * w * x)));
    const excess = omega.reduce((total, w, h) => total + w * mu[h], 0) - 1;
    const over = (h, weight) => kernel[h].reduce((total, value, k) => total + value * weight(k), 0);
    const pull = omega.map((_, h) => excess + d * over(h, (k) => mu[k] * omega[k]));
    const inOmega = pull.map((x, h) => 2 * d * mu[h] * x);
    const inMu = omega.map((w, h) => 2 * d * (excess * w + over(h, (k) => mu[k])));
    if (!bend) return {omega: inOmega, mu: inMu};
    const hessian = Array.from({length: 2 * heads}, () => new Array(2 * heads).fill(0));
    for (let h = 0; h < heads; h += 1) {
      for (let k = 0; k < heads; k += 1) {
        const product = omega[h] * omega[k];
        hessian[heads + h][heads + k] = 2 * d * (product + kernel[h][k]);
        hessian[h][k] = 2 * d * mu[h] * mu[k] * (1 + d * kernel[h][k] * (1 + d * product));
        // d/d omega_k of (A mu - omega)_h: row h depends on omega_k, and on its own omega_h.
        hessian[heads + h][k] = 2 * d * omega[h] * mu[k] * (1 + d * kernel[h][k]);
      }
      hessian[h][h] += 2 * d * d * d * mu[h] * over(h, (k) => mu[k] * omega[k] ** 2);
      hessian[heads + h][h] += 2 * d * pull[h];
    }
    for (let h = 0; h < heads; h += 1) for (let k = 0; k < heads; k += 1) hessian[k][heads + h] = hessian[heads + h][k];
    return {omega: inOmega, mu: inMu, hessian};
  }

  /** As in exact.js. */
  parabola(omega, pattern, others = {omega: [], mu: []}) {
    const {d, share} = this;
    const own = pattern.map((sign) => sign * omega);
    const first = (omegas, mus) => omegas.reduce((total, w, h) => total + w * mus[h], 0);
    const cross = (a, x, b, y) => a.reduce((total, w, h) => total + x[h] * b.reduce((inner, z, k) => inner + y[k] * Math.exp(d * w * z), 0), 0);
    const [m, m0] = [first(own, pattern), first(others.omega, others.mu)];
    return {
      level: this.risk(others.omega, others.mu),
      linear: 2 * d * (m * (m0 - 1) + share * cross(own, pattern, others.omega, others.mu)),
      square: d * (m * m + share * cross(own, pattern, own, pattern)),
    };
  }

  error() {
    return 0;
  }
}
