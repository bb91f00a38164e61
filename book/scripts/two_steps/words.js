/** The verdict in words, with its reason in numbers. Pure: tested without a page. */
import {number, powerOfTen} from "../shared/format.js";
import {BENIGN_BELOW, fittingStep, theoremDimension} from "./mean_field.js";

export const ROUGH = 0.05; // n / d above which mean field is called rough

const least = (a, b) => Math.min(a, b);
const percent = (share) => `${number(100 * share, 2)} %`;

/** "1 in 2.1×10¹⁶ fresh points is wrong", or a percentage where errors are frequent. */
export function errorInWords(log10_error) {
  if (log10_error > -2) return `${percent(10 ** log10_error)} of fresh points are wrong`;
  return `1 in ${powerOfTen(-log10_error)} fresh points is wrong`;
}

function whyBenign({kappa, noisy, field, margin}) {
  if (noisy[0] + noisy[1] === 0) return "There are no flipped labels to fit.";
  if (least(...field.margin1_noisy) > 0) {
    return `One step is enough (<i>κ</i> = ${number(kappa)}): a sample's own noise pulls with <i>a</i> = ${number(field.a)}, the shared signal only with <i>b</i> = ${number(Math.max(...field.b))}.`;
  }
  return `Attention does it (<i>κ</i> = ${number(kappa)}): with ${percent(field.attention_noisy[0])} of their attention on the signal, flipped samples rise from margin ${number(least(...field.margin1_noisy))} to ${number(margin)}; clean ones put ${percent(field.attention_clean[0])} there.`;
}

function whyHarmful({field, error1, strength}) {
  if (error1.total > BENIGN_BELOW)
    return `The signal is too weak: one step alone leaves ${percent(10 ** error1.total)} wrong.`;
  return `The step is too large for this signal: flipped samples own the second gradient and push attention off the signal for everybody (<i>p</i><sub>2</sub>·<i>μ</i> = ${number(least(...field.p_signal))}, <i>S</i> = ${powerOfTen(strength / Math.LN10)}).`;
}

function whyNotFitted(state, found) {
  const enough = fittingStep(state);
  const remedy = Number.isFinite(enough)
    ? `To pull their attention off the signal takes <i>βd/n</i> ≥ ${number(enough)}; here it is ${number(state.step)}.`
    : "No step up to 1000 <i>n/d</i> fits them in two steps at this signal.";
  return [
    `The margin of flipped samples is ${number(found.smallest)}: some ${number(state.label_noise * state.n, 2)} of ${state.n} labels are not fitted`,
    remedy,
  ];
}

/**
 * @param {object} state n, d, signal_norm, label_noise, step, first_class_share
 * @param {object} found what model.point returned
 * @returns {{word: string, badge: "holds"|"fails"|"outside", sentence: string}}
 */
export function verdict(state, found) {
  const error = errorInWords(found.error2.total);
  const warning = warnings(state);
  if (found.phase === 2) {
    return {
      word: "benign",
      badge: "holds",
      sentence: `Every label is fitted, and ${error}. ${whyBenign(found)}${warning}`,
    };
  }
  if (found.phase === 1) {
    return {
      word: "harmful",
      badge: "fails",
      sentence: `Every label is fitted, but ${error}. ${whyHarmful(found)}${warning}`,
    };
  }
  const [stays, remedy] = whyNotFitted(state, found);
  return {word: "not fitted", badge: "outside", sentence: `${stays}; ${error}. ${remedy}${warning}`};
}

/** Where the paper's theorem is silent, and where mean field is rough. */
export function warnings({n, d}) {
  const need = theoremDimension({n});
  const theorem =
    d >= need
      ? ""
      : ` The paper's theorem is silent: with <i>C</i> = 1 it needs <i>d</i> ≥ <i>n</i>² log(<i>n/δ</i>) = ${number(need)}.`;
  const rough = n / d > ROUGH ? ` The prediction for orthogonal noise is rough here: <i>n/d</i> = ${number(n / d, 2)}.` : "";
  return theorem + rough;
}

/** What became of real training sets at the point, in words. */
export function trainedInWords(sets, refusal, label_noise) {
  if (refusal) return ` ${refusal}`;
  if (!sets.length) return "";
  const fits = sets.filter((set) => set.fits).length;
  const below = label_noise > 0 ? `, ${benignOf(sets, label_noise)} err less often than their labels` : "";
  return ` Ten random sets, trained just now: ${fits} fit every label${below}, median error ${powerOfTen(medianOf(sets))}.`;
}

/** How many training sets have a clean error below eta: the count behind attnbook.single_head.typical_error: benign_share. */
export function benignOf(sets, label_noise) {
  return sets.filter((set) => set.log10_error < Math.log10(label_noise)).length;
}

/** Median log10 error of training sets. */
export function medianOf(sets) {
  const sorted = sets.map((set) => set.log10_error).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
