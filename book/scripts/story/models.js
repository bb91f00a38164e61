/** The picture of "One picture of six models": a row for each, from its tokens to its output. A still one; the story does not show it. */
import {arrow, dot, line, path, rect, words} from "./scene.js";

const PITCH = 84;
const [TOP, MIDDLE] = [52, 34]; // of a row: its title, and from there to the middle of what is drawn
const COLUMNS = [["tokens", 52], ["scores", 162], ["weights", 258], ["values", 354], ["output", 446]];

/** What stands in the first column, around the height y. */
const TOKENS = {
  pair: (key, y) => [
    arrow(`${key}s`, 20, y + 14, 20, y - 10, {stroke: "signal", width: 3}),
    arrow(`${key}n`, 20, y + 14, 94, y - 12, {stroke: "noise", width: 3}),
  ],
  eight: (key, y, first = 0) =>
    [...Array(8).keys()].map((i) => dot(`${key}${i}`, 14 + 11 * i, y, 4.5, {fill: i === first ? "signal" : "noise", stroke: i === first ? "signal" : "noise", width: 0})),
  prompt: (key, y) => [
    ...[...Array(5).keys()].flatMap((i) => [
      rect(`${key}x${i}`, 12 + 14 * i, y - 13, 10, 12, {fill: "bound"}),
      rect(`${key}y${i}`, 12 + 14 * i, y + 1, 10, 12, {fill: "measured"}),
    ]),
    rect(`${key}q`, 85, y - 12, 10, 11, {fill: "none", stroke: "ink"}),
  ],
};

/** What stands in the third column: parts of one bar where weights compete, separate bars of both signs where they are products. */
const WEIGHTS = {
  parts: (key, y, fills) => {
    const width = 80 / fills.length;
    return fills.map((fill, i) => rect(`${key}${i}`, 218.75 + width * i, y - 9, width - 1.5, 18, {fill}));
  },
  products: (key, y) => [
    line(`${key}zero`, 216, y, 300, y, {stroke: "bound", width: 1.2}),
    ...[11, -7, 14, -12, 5].map((height, i) => rect(`${key}${i}`, 222 + 16 * i, height > 0 ? y - height : y, 10, Math.abs(height), {fill: "bound"})),
  ],
};
const noises = (count) => ["signal", ...Array(count - 1).fill("noise")];

export const MODELS = [
  {title: "Part I, single head: two tokens, fixed data", tokens: "pair", weights: "parts", fills: noises(2), values: "learned", output: "sign"},
  {title: "Part II, token selection: many tokens, fixed data", tokens: "eight", weights: "parts", fills: noises(8), values: "given", output: "sign"},
  {title: "Part III, regression: pairs, a question, fresh data", tokens: "prompt", weights: "parts", fills: Array(5).fill("bound"), values: "learned", output: "number"},
  {title: "Part V, finite data: few prompts, few tasks", tokens: "prompt", weights: "products", values: "learned", output: "number"},
  {title: "Part VI, staircase: keys apart from queries", tokens: "prompt", weights: "products", values: "learned", output: "number"},
  {title: "Part VII, one token: many tokens, one of them marked", tokens: "eight", first: 4, weights: "parts", fills: noises(8), values: "learned", output: "number"},
];

function frame(key, x, y, width, word) {
  const learned = word === "learned";
  const ink = learned ? "ink" : "quiet";
  return [
    path(`${key}f`, `M${x} ${y - 15}h${width}v30h${-width}Z`, {stroke: ink, width: 2, dash: learned ? undefined : "5 4"}),
    words(`${key}w`, x + width / 2, y + 5, word, {anchor: "middle", fill: ink}),
  ];
}

export function models() {
  const marks = COLUMNS.map(([text, x]) => words(`column${text}`, x, 20, text, {anchor: "middle", fill: "quiet"}));
  MODELS.forEach(({title, tokens, first, weights, fills, values, output}, i) => {
    const y = TOP + PITCH * i + MIDDLE;
    const fixed = first === undefined ? fills : fills?.map((_, k) => (k === first ? "signal" : "noise"));
    marks.push(words(`title${i}`, 8, TOP + PITCH * i, title, {weight: 600}));
    marks.push(...TOKENS[tokens](`tokens${i}`, y, first), ...frame(`scores${i}`, 126, y, 72, "learned"));
    marks.push(...WEIGHTS[weights](`weights${i}`, y, fixed), ...frame(`values${i}`, 320, y, 70, values));
    [[104, 122], [200, 214], [302, 316], [392, 410]].forEach(([from, to], k) => marks.push(arrow(`next${i}${k}`, from, y, to, y, {stroke: "quiet", width: 2})));
    marks.push(words(`output${i}`, 446, y + 5, output, {anchor: "middle"}));
  });
  const drawn = {pair: "a short and a long arrow", eight: "eight dots, one of them green", prompt: "five pairs and a question"};
  const weighed = {parts: "the parts of one bar", products: "five bars of both signs"};
  const rows = MODELS.map(({title, tokens, weights, values, output}) =>
    `${title.split(":")[0]}: ${drawn[tokens]}, learned scores, weights as ${weighed[weights]}, ${values} values, a ${output}.`);
  return {marks, says: `Six rows, one for each model, in five columns: tokens, scores, weights, values, output. ${rows.join(" ")}`, height: TOP + PITCH * MODELS.length - 12};
}
