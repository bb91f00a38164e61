/** What the point computes, in words. */
import {number} from "../shared/format.js";
import {centredStep, summary} from "./model.js";

/** The centred step (plus offset) with the same effective step and sum of mu, and its risk; its twin in the approximate risk. */
export function compared({landscape, exact, now}) {
  const {step, offset} = summary(now.omega, now.mu);
  if (exact) return {step, offset, risk: centredStep(landscape, step, offset)};
  const {d, share} = landscape;
  return {step, offset, risk: d * (1 - 2 * step + step * step * (1 + d * share) + share * offset * offset)};
}

/** Which estimator the heads are now, within what, and what that means; [sentence, badge]. */
export function inWords(found) {
  const {state, landscape, exact, table, inside, path, now, one, pair} = found;
  if (!inside) {
    return [`The table of the exact risk ends at |<i>ω</i>| = ${number(landscape.reach, 3)}; the start lies outside. Move it in, or choose the approximate risk.`, {badge: "outside", word: "outside"}];
  }
  const words = [];
  if (!table) words.push("The exact risk is tabulated for the four kinds of prompts in the list; this is the approximate one.");
  const risk = landscape.risk(now.omega, now.mu);
  const {step, offset, risk: like} = compared(found);
  const {imbalance} = summary(now.omega, now.mu);
  const ended = state.time > 3e5 && !path.left;
  const when = ended ? "At the end of the flow" : `At time ${number(now.time, 2)}`;
  const close = Math.abs(like / risk - 1);
  let verdict;
  if (now.mu.every((m, h) => Math.abs(m) < 0.02 && Math.abs(m * now.omega[h]) < 0.01)) {
    words.push(`${when} the heads write next to nothing: they answer 0, at a risk of ${number(risk, 4)}.`);
    verdict = {badge: "outside", word: "silent"};
  } else if (close < 0.02) {
    const mean = Math.abs(offset) > 0.05 ? ` plus ${number(offset, 2)} times the mean label` : "";
    words.push(`${when} the heads are one gradient step on centred data, of size ${number(step, 3)}${mean}: its closed form gives their risk, ${number(risk, 4)}, to ${number(100 * close, 2)} %.`);
    verdict = {badge: "holds", word: "a gradient step"};
  } else {
    words.push(`${when} the heads have risk ${number(risk, 4)} and are no gradient step: with their Σ<i>ωμ</i> = ${number(step, 3)} and Σ<i>μ</i> = ${number(offset, 3)} a centred step would have ${number(like, 4)}.`);
    verdict = {badge: "fails", word: "a sharp average"};
  }
  if (state.heads === "two" && imbalance > 0.9 && now.omega[0] * now.omega[1] > 0 && now.mu[0] * now.mu[1] > 0) {
    words.push(`Both heads have one sign and act as one: ${number(risk / pair.risk, 3)} times the risk of the best pair.`);
    if (ended) verdict = {badge: "fails", word: "trapped"};
  } else if (now.mu.length === 2 && imbalance < 0.5 && Math.abs(risk / pair.risk - 1) < 0.02) {
    const excess = 100 * (risk / pair.risk - 1);
    words.push(`They cancel the mean label ${excess > 0.01 ? `and are within ${number(excess, 2)} % of` : "and are as good as"} the best pair; one head at its best has ${number(one.risk / pair.risk, 3)} times its risk.`);
  } else if (state.heads === "one") {
    const excess = risk / one.risk - 1;
    words.push(excess < 1e-6 ? `This is the best that one head can do: ${number(one.risk / pair.risk, 3)} times the risk of the best pair.` : `The best single head has ${number(100 * (1 - one.risk / risk), 2)} % less.`);
  }
  if (path.left) words.push(`The path leaves the table, which ends at |<i>ω</i>| = ${number(landscape.reach, 3)}.`);
  if (!exact && state.heads === "pair" && ended) words.push("On the approximate risk a pair creeps down the valley for ever; its level is too low by the factor (<i>d</i>+<i>s</i><sub>2</sub>)/(<i>d</i>+1+<i>s</i><sub>2</sub>).");
  return [words.join(" "), verdict];
}
