/**
 * The exact risk of two-number heads from a table of moments (attnbook.explorers.two_numbers): with
 * v_j = sum_h mu_h T_j(omega_h / W) and T_j Chebyshev polynomials,
 *
 *     risk = d - 2 b.v + v'[G + (d - 1 + s2) P] v,        attnbook.in_context.reduced.reduced_risk.
 *
 * Odd and even j do not mix, so what cancels in an opposite pair cancels exactly. Gradient and Hessian are those of this polynomial.
 */

/** Whole numbers of the table -> two square matrices {odd, even}, times `unit`; `divided`: odd ones over their degrees. */
function blocks(rows, unit, divided = false) {
  const size = rows.length / 2;
  const make = (parity) => {
    const matrix = new Float64Array(size * size);
    for (let i = 0; i < size; i += 1) {
      rows[2 * i + parity].forEach((value, k) => {
        const entry = value * (divided && parity ? unit / ((2 * i + 1) * (2 * k + 1)) : unit);
        matrix[i * size + k] = entry;
        matrix[k * size + i] = entry;
      });
    }
    return matrix;
  };
  return {even: make(0), odd: make(1)};
}

const mixed = (g, p, weight) => g.map((value, i) => value + weight * p[i]);

function times(matrix, vector) {
  const size = vector.length;
  const out = new Float64Array(size);
  for (let i = 0; i < size; i += 1) {
    let total = 0;
    for (let k = 0, place = i * size; k < size; k += 1, place += 1) total += matrix[place] * vector[k];
    out[i] = total;
  }
  return out;
}

function dot(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i += 1) total += a[i] * b[i];
  return total;
}

/** T_j(x), T_j'(x) and T_j''(x), even and odd j apart. */
function chebyshev(x, size) {
  const make = () => ({even: new Float64Array(size), odd: new Float64Array(size)});
  const [value, slope, bend] = [make(), make(), make()];
  let t0 = 1, t1 = x, s0 = 0, s1 = 1, b0 = 0, b1 = 0;
  const onward = () => {
    const b2 = 4 * s1 + 2 * x * b1 - b0;
    const s2 = 2 * t1 + 2 * x * s1 - s0;
    const t2 = 2 * x * t1 - t0;
    t0 = t1; t1 = t2; s0 = s1; s1 = s2; b0 = b1; b1 = b2;
  };
  for (let at = 0; at < size; at += 1) {
    value.even[at] = t0; slope.even[at] = s0; bend.even[at] = b0;
    onward();
    value.odd[at] = t0; slope.odd[at] = s0; bend.odd[at] = b0;
    onward();
  }
  return {value, slope, bend};
}

/** Sum over heads of weight_h times basis_h. */
function combine(parts, weights) {
  const size = parts[0].even.length;
  const out = {even: new Float64Array(size), odd: new Float64Array(size)};
  parts.forEach((part, h) => {
    const weight = weights[h];
    for (let j = 0; j < size; j += 1) {
      out.even[j] += weight * part.even[j];
      out.odd[j] += weight * part.odd[j];
    }
  });
  return out;
}

export class Exact {
  /**
   * @param {object} table one of the data's laws
   * @param {number} sigma noise of the labels, any >= 0
   */
  constructor(table, sigma) {
    const {d, length, reach, unit} = table;
    Object.assign(this, {d, length, reach, sigma, zero: d, size: table.nodes / 2, table});
    this.weight = d - 1 + d * sigma * sigma;
    const [g, p] = [blocks(table.along, unit), blocks(table.across, unit)];
    this.matrix = {even: mixed(g.even, p.even, this.weight), odd: mixed(g.odd, p.odd, this.weight)};
    this.gain = Float64Array.from(table.gain, (value) => value * unit);
  }

  /** Whether the table holds all these scales. */
  holds(omega) {
    return omega.every((w) => Math.abs(w) <= this.reach);
  }

  basis(omega) {
    return chebyshev(omega / this.reach, this.size);
  }

  /** C v and v' C v - 2 b.v parts shared by all methods. */
  apply(v) {
    return {even: times(this.matrix.even, v.even), odd: times(this.matrix.odd, v.odd)};
  }

  /** Risk of H heads; NaN outside of the table. */
  risk(omega, mu) {
    if (!this.holds(omega)) return NaN;
    const v = combine(omega.map((w) => this.basis(w).value), mu);
    const c = this.apply(v);
    return this.zero - 2 * dot(this.gain, v.odd) + dot(v.even, c.even) + dot(v.odd, c.odd);
  }

  /** [d risk / d omega, d risk / d mu], and the Hessian (omegas first) if `bend`. */
  derivatives(omega, mu, bend = false) {
    const heads = omega.length;
    const bases = omega.map((w) => this.basis(w));
    const c = this.apply(combine(bases.map((one) => one.value), mu));
    for (let j = 0; j < this.size; j += 1) c.odd[j] -= this.gain[j];
    const along = (part) => 2 * (dot(c.even, part.even) + dot(c.odd, part.odd));
    const scale = 1 / this.reach;
    const slopes = bases.map((one) => along(one.slope) * scale);
    const inOmega = slopes.map((x, h) => mu[h] * x);
    const inMu = bases.map((one) => along(one.value));
    if (!bend) return {omega: inOmega, mu: inMu};
    const hessian = Array.from({length: 2 * heads}, () => new Array(2 * heads).fill(0));
    for (let k = 0; k < heads; k += 1) {
      const [value, slope] = [this.apply(bases[k].value), this.apply(bases[k].slope)];
      const meet = (part, other) => 2 * (dot(part.even, other.even) + dot(part.odd, other.odd));
      for (let h = 0; h < heads; h += 1) {
        hessian[heads + h][heads + k] = meet(bases[h].value, value);
        hessian[h][k] = mu[h] * mu[k] * meet(bases[h].slope, slope) * scale * scale;
        hessian[heads + h][k] = mu[k] * meet(bases[h].value, slope) * scale;
      }
      hessian[k][k] += mu[k] * along(bases[k].bend) * scale * scale;
      hessian[heads + k][k] += slopes[k];
    }
    for (let h = 0; h < heads; h += 1) for (let k = 0; k < heads; k += 1) hessian[k][heads + h] = hessian[heads + h][k];
    return {omega: inOmega, mu: inMu, hessian};
  }

  /**
   * The risk of heads pattern x (omega, mu) beside fixed others, as a parabola in mu: {level, linear, square}, risk =
   * level + linear mu + square mu^2. One head: pattern [1]; an opposite pair: [1, -1].
   */
  parabola(omega, pattern, others = {omega: [], mu: []}) {
    if (!this.holds([omega])) return {level: NaN, linear: NaN, square: NaN};
    const t = combine(pattern.map((sign) => this.basis(sign * omega).value), pattern);
    const own = this.apply(t);
    const square = dot(t.even, own.even) + dot(t.odd, own.odd);
    let [level, linear] = [this.zero, -2 * dot(this.gain, t.odd)];
    if (others.omega.length) {
      const v = combine(others.omega.map((w) => this.basis(w).value), others.mu);
      level = this.risk(others.omega, others.mu);
      linear += 2 * (dot(v.even, own.even) + dot(v.odd, own.odd));
    }
    return {level, linear, square};
  }

  /** Standard error of the risk: root of the sum of squares of the stored components. */
  error(omega, mu) {
    if (!this.holds(omega)) return NaN;
    const {unit, parts} = this.table.errors;
    this.errorParts ??= parts.map((part) => {
      const [g, p] = [blocks(part.along, unit, true), blocks(part.across, unit, true)];
      return {
        matrix: {even: mixed(g.even, p.even, this.weight), odd: mixed(g.odd, p.odd, this.weight)},
        gain: Float64Array.from(part.gain, (value, j) => (value * unit) / (2 * j + 1)),
      };
    });
    const v = combine(omega.map((w) => this.basis(w).value), mu);
    return Math.hypot(...this.errorParts.map(({matrix, gain}) =>
      dot(v.even, times(matrix.even, v.even)) + dot(v.odd, times(matrix.odd, v.odd)) - 2 * dot(gain, v.odd)));
  }
}
