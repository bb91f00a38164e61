/** The verdict in words: who wins under gradient flow, who under maximum margin, and why. Pure: tested without a page. */
import {number} from "../shared/format.js";

const percent = (share) => `${number(100 * share, 2)} %`;

const star = (threshold) =>
  Number.isFinite(threshold) ? `<i>x</i>* = ${number(threshold)}` : "<i>x</i>*, which lies above 40";

/**
 * @param {{x: number, label_noise: number, threshold: number, first: number, path: object, end: object}} found
 *   threshold: x*; first: x_1; path: what flow() returned; end: reading of the last state
 * @returns {{word: string, badge: "holds"|"fails"|"outside", sentence: string}}
 */
export function verdict({x, label_noise, threshold, first, path, end}) {
  const attention = `at the end clean samples put ${percent(end.attention_clean)} of their attention on the signal`;
  const labels = fitting(path.interpolation_time, label_noise);
  if (x < 1 || (x === 1 && label_noise > 0)) {
    return {
      word: "both choose noise",
      badge: "outside",
      sentence: `<i>x</i> = ${number(x)} is not above 1: a maximum-margin classifier gives up the signal, and gradient flow is in the trap from the start; ${attention}. ${labels}`,
    };
  }
  if (x === 1) {
    return {
      word: "a tie",
      badge: "outside",
      sentence: `<i>x</i> = 1 without flipped labels: signal and noise grow alike and attention stays at one half for ever. ${labels}`,
    };
  }
  if (x > threshold) {
    const detour =
      x < first
        ? ` It starts the wrong way, since <i>x</i> is below <i>x</i><sub>1</sub> = ${number(first)}, and comes back.`
        : "";
    return {
      word: "both choose the signal",
      badge: "holds",
      sentence: `<i>x</i> = ${number(x)} is above 1, where a maximum-margin classifier chooses the signal, and above ${star(threshold)}, where gradient flow does: ${attention}.${detour} ${labels}`,
    };
  }
  const entered = Number.isFinite(path.trap_time)
    ? `The trap closes at <i>τ</i> = ${number(path.trap_time)}`
    : "The trap has not closed by the last time shown";
  const feint =
    x > first
      ? ` It starts towards the signal, since <i>x</i> is above <i>x</i><sub>1</sub> = ${number(first)}, and is lost later.`
      : "";
  return {
    word: "trapped",
    badge: "fails",
    sentence: `1 < <i>x</i> = ${number(x)} < ${star(threshold)}: a maximum-margin classifier would choose the signal, gradient flow ends on the noise, and not for want of time. ${entered}; ${attention}.${feint} ${labels}`,
  };
}

function fitting(time, label_noise) {
  if (label_noise === 0) return "";
  if (time === 0) return "The flipped labels are fitted from the start.";
  return Number.isFinite(time)
    ? `The flipped labels are fitted from <i>τ</i> = ${number(time)} on.`
    : "The flipped labels are never fitted.";
}
