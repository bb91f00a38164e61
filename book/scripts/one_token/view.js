/** The explorer of one token matters: one formula, and a point on it. */
import {number} from "../shared/format.js";
import {mount} from "../shared/shell.js";
import {meanAttention} from "./model.js";

const [LOW, HIGH] = [0.1, 10];
const GRID = Array.from({length: 100}, (_, i) => LOW + ((HIGH - LOW) * i) / 99);

function update({largest_gap: gap}, {plots, values, say, set}) {
  const here = meanAttention(gap);
  plots.mean.lines([{key: "formula", label: "formula", colour: "theory", width: 2, points: GRID.map((a) => [a, meanAttention(a)])}]);
  plots.mean.marker({
    key: "here", x: gap, y: here, draggable: "x", colour: "measured", name: "largest gap",
    label: `<i>a</i> = ${number(gap)}`, valuetext: number(gap), onmove: ([x]) => set({largest_gap: x}),
  });
  plots.mean.describe(`The mean attention rises from one half towards one; at the largest gap ${number(gap)} it is ${number(here)}.`);
  values({mean_attention: here});
  say(`With a gap of at most ${number(gap)} the first token gets ${number(here)} of the attention on average.`);
}

mount("one_token", {
  controls: [{key: "largest_gap", label: "largest gap <i>a</i>", kind: "range", min: LOW, max: HIGH, value: 4, step: 0.1}],
  plots: [{
    key: "mean", title: "Mean attention on the first token", label: "mean attention on the first token against the largest gap", height: 300, wide: true,
    x: {label: "largest gap a", domain: [0, HIGH]}, y: {label: "mean attention", domain: [0.45, 1]},
  }],
  values: [{key: "mean_attention", label: "mean attention on the first token", digits: 4}],
  command: ({largest_gap}) => `python -m attnlib rerun one_token/01_one_token -p largest_gap ${largest_gap} -o out.ipynb`,
  update,
});
