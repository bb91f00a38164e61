/** Panel 7: eight tokens, and a clock in powers of ten. */
import {superscript} from "../shared/format.js";
import {arrow, dot, line, path, rect, round, words} from "./scene.js";

const ROUND = 25; // powers of ten in a full turn
const [CX, CY, R] = [352, 174, 92];

const direction = (power) => {
  const turn = (2 * Math.PI * power) / ROUND;
  return [Math.sin(turn), -Math.cos(turn)];
};

function row(key, y, title, attention, fill) {
  const marks = [dot(`face${key}`, 20, y - 72, 6, {fill}), words(`name${key}`, 33, y - 67, title, {weight: 600})];
  const colours = ["signal", "noisy", "signal", "noise", "noise", "noise", "noise", "noise"];
  attention.forEach((share, t) => {
    const height = Math.max(1, 56 * share);
    marks.push(rect(`bar${t}${key}`, 20 + 24 * t, y - height, 18, height, {fill: colours[t], opacity: t === 2 ? 0.5 : undefined}));
  });
  marks.push(line(`floor${key}`, 16, y, 210, y, {stroke: "bound", width: 1.2}));
  return marks;
}

/** "10^4.2" as a reader writes it: 16,000 as 1.6 x 10^4. */
export function inPowers(power) {
  const whole = Math.floor(power);
  const first = Math.round(10 * 10 ** (power - whole)) / 10;
  return first >= 10 ? `1\u00d710${superscript(whole + 1)}` : `${first}\u00d710${superscript(whole)}`;
}

/** `face`: which of the stored values of n SNR^2. */
export function clock({clock: {faces}}, {face = 3} = {}) {
  const now = faces[face];
  const marks = [
    ...row("A", 100, "a clean sample", now.clean, "clean"), ...row("B", 216, "a flipped sample", now.flipped, "noisy"), ...row("F", 332, "a fresh sample", now.fresh, "measured"),
  ];
  marks.push(path("rim", `M${CX} ${CY - R}A${R} ${R} 0 1 1 ${CX - 0.01} ${CY - R}`, {stroke: "bound", width: 2}));
  for (let power = 0; power < ROUND; power += 1) {
    const [ux, uy] = direction(power);
    const long = power % 5 === 0;
    marks.push(line(`hour${power}`, CX + (R - (long ? 10 : 5)) * ux, CY + (R - (long ? 10 : 5)) * uy, CX + R * ux, CY + R * uy, {stroke: "bound", width: long ? 2 : 1}));
    if (long) marks.push(words(`hourName${power}`, CX + (R + 20) * ux, CY + (R + 17) * uy + 5, power ? `10${superscript(power)}` : "1", {anchor: "middle", fill: "quiet"}));
  }
  const [fx, fy] = direction(now.log10_fitted);
  const [sx, sy] = direction(now.log10_selected);
  marks.push(arrow("fitted", CX, CY, CX + 52 * fx, CY + 52 * fy, {stroke: "noisy", width: 6, head: 2.2}));
  marks.push(arrow("selected", CX, CY, CX + 80 * sx, CY + 80 * sy, {stroke: "measured", width: 4, head: 3}), dot("pin", CX, CY, 6));
  marks.push(dot("keyF", 240, 318, 6, {fill: "noisy"}), words("keyFitted", 252, 323, `by heart: ${inPowers(now.log10_fitted)} steps`));
  marks.push(dot("keyS", 240, 342, 6, {fill: "measured"}), words("keySelected", 252, 347, `understood: ${inPowers(now.log10_selected)}`));
  marks.push(words("steps", CX, 28, `n SNR\u00b2 = ${round(now.n_snr2)}`, {anchor: "middle", size: 17, weight: 600}));
  return {
    marks,
    words: `n SNR\u00b2 = ${round(now.n_snr2)}: every label is fitted after ${inPowers(now.log10_fitted)} steps, a fresh sample gives half of its attention to the right token after ${inPowers(now.log10_selected)}.`,
    says:
      `Three rows of eight bars when all labels are fitted: the clean sample gives ${round(now.clean[0])} to the right token, the flipped one ${round(now.flipped[0])}, a fresh one ${round(now.fresh[0])}. ` +
      `A clock in powers of ten: one hand at ${inPowers(now.log10_fitted)} steps, when all labels are fitted, the other at ${inPowers(now.log10_selected)}, when fresh samples are read rightly.`,
  };
}
