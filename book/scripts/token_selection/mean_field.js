/**
 * Token selection in high dimension: one clean and one flipped sample stand for all of them.
 * Mirrors attnlib/token_selection/mean_field.py, finite size included, start p_0 = 0:
 *
 *     z_t = e_t + a_t S,   S = r/2 sum_kinds w sum_t a_t e_t,   de_t/dt ~ lambda sigma(-Y f) s_t (y_t - sum_u s_u y_u)
 *
 * @module
 */

/** a_t, y_t of every token (see `TokenLaw.signal_share`). */
export function shares(law) {
  const own = Array.from({length: law.tokens}, (_, t) => (t === 0 ? 1 : t >= 2 && t < 2 + law.same_class_tokens ? law.weak_signal : 0));
  const other = own.map((_, t) => (t === 1 ? law.weak_signal : 0));
  return {own, other, total: own.map((x, t) => x + other[t]), value: own.map((x, t) => (x - other[t]) / Math.SQRT2)};
}

/** Share of flipped labels, what balanced labels make of it by rounding down: `flipped_share`. */
export const flippedShare = ({n, label_noise}) => (2 * Math.floor((label_noise * n) / 2 + 1e-9)) / n;

/**
 * The path up to time `horizon` (in units of 1 / step size), moment by moment.
 * @returns {{time: number[], attention: Float64Array[], margins: number[][], score: number[], variance: number[]}}
 *   attention: clean tokens, then flipped ones; score: v . mu; variance: of a fresh token's score
 */
export function meanField(law, {weight_scale = 1 / 3, horizon, largest_move = 0.05, at_most = 20000}) {
  const T = law.tokens;
  const {total: share, value} = shares(law);
  const ownNorm = law.noise_std ** 2 * law.d;
  const h = law.head_scale;
  const eta = flippedShare(law);
  const weight = [1 - eta, eta];
  const halfR = (law.n * law.signal_norm ** 2) / (ownNorm * 2);
  const speed = (ownNorm * h) / law.n;

  /** d own / dt at `own`, and what a moment shows. */
  function rate(own) {
    let [along, squares] = [0, 0];
    for (let kind = 0; kind < 2; kind += 1) {
      let [dot, square] = [0, 0];
      for (let t = 0; t < T; t += 1) {
        const e = own[kind * T + t];
        dot += e * share[t];
        square += e * e;
      }
      along += weight[kind] * dot;
      squares += weight[kind] * square;
    }
    const signal = halfR * along;
    const norm = (law.n * squares) / ownNorm + 2 * (signal / law.signal_norm) ** 2;
    const root = Math.sqrt(weight_scale + norm);
    const attention = new Float64Array(2 * T);
    const slope = new Float64Array(2 * T);
    const margins = [0, 0];
    for (let kind = 0; kind < 2; kind += 1) {
      const sign = kind === 0 ? 1 : -1;
      let top = 0;
      const score = (t) => root * (own[kind * T + t] + signal * share[t]);
      for (let t = 1; t < T; t += 1) if (score(t) > score(top)) top = t;
      const best = score(top);
      let sum = 0;
      for (let t = 0; t < T; t += 1) sum += attention[kind * T + t] = Math.exp(score(t) - best);
      // Values against the best token's: exact where attention is nearly all there.
      let gapMean = 0;
      for (let t = 0; t < T; t += 1) gapMean += (attention[kind * T + t] /= sum) * sign * (value[t] - value[top]);
      margins[kind] = h * (sign * value[top] + gapMean);
      const force = (speed * root) / (1 + Math.exp(margins[kind]));
      for (let t = 0; t < T; t += 1) slope[kind * T + t] = force * attention[kind * T + t] * (sign * (value[t] - value[top]) - gapMean);
    }
    return {slope, attention, margins, signal, norm, root};
  }

  const path = {time: [], attention: [], margins: [], score: [], variance: []};
  let own = new Float64Array(2 * T);
  let time = 0;
  const shifted = (slope, step) => own.map((e, i) => e + step * slope[i]);
  for (let count = 0; count < at_most; count += 1) {
    const now = rate(own);
    path.time.push(time);
    path.attention.push(now.attention);
    path.margins.push(now.margins);
    path.score.push(now.root * now.signal);
    path.variance.push(law.noise_std ** 2 * (now.root ** 2 + weight_scale) * now.norm);
    if (time >= horizon) return path;
    let common = 0;
    for (let i = 0; i < 2 * T; i += 1) common += weight[Math.floor(i / T)] * now.slope[i] * share[i % T];
    let moved = 0;
    for (let i = 0; i < 2 * T; i += 1) moved = Math.max(moved, now.root * Math.abs(now.slope[i] + halfR * common * share[i % T]));
    if (!(moved > 0)) throw new Error(`the forces for orthogonal noise vanish at time ${time}`);
    const step = Math.min(largest_move / moved, horizon - time);
    const second = rate(shifted(now.slope, step / 2)).slope;
    const third = rate(shifted(second, step / 2)).slope;
    const fourth = rate(shifted(third, step)).slope;
    own = own.map((e, i) => e + (step / 6) * (now.slope[i] + 2 * second[i] + 2 * third[i] + fourth[i]));
    time += step;
  }
  throw new Error(`the run for orthogonal noise is not over after ${at_most} steps`);
}

/** Time at which `values` first reaches `level` from below, linearly interpolated; NaN if never. `MeanField.crossing`. */
export function crossing(time, values, level) {
  const k = values.findIndex((value) => value >= level);
  if (k <= 0) return k === 0 ? time[0] : NaN;
  return time[k - 1] + ((level - values[k - 1]) / (values[k] - values[k - 1])) * (time[k] - time[k - 1]);
}
