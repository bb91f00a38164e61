/** Panel 5: a fresh sample, how far the head is from erring on it, and three outcomes on a small phase diagram. */
import {diagramRows, point} from "../two_steps/mean_field.js";
import {errorInWords} from "../two_steps/words.js";
import {arrow, dot, line, path, rect, round, words} from "./scene.js";

const OUTCOMES = ["not fitted", "harmful", "benign"];
const BOX = {x: 64, y: 178, width: 268, height: 138};
const COLUMNS = 36;
export const ROWS = 20;
const SNR = [0.02, 1]; // ends of both axes, logarithmic
const STEP = [0.2, 40]; // beta d / n

const spaced = ([low, high], count) => Array.from({length: count}, (_, i) => low * (high / low) ** ((i + 0.5) / count));
const place = ([low, high], value) => Math.log(value / low) / Math.log(high / low);

/** The run's own setting, for the sliders. */
export const ownSetting = (head) => ({signal: head.signal_length, step: (head.step_size * head.d) / head.n, flips: head.label_noise});

/** What the mean field says at the reader's setting: {outcome, error, log10_error}. */
export function outcome(head, {signal, step, flips}) {
  const found = point({n: head.n, d: head.d, signal_norm: signal, label_noise: flips, step});
  return {word: OUTCOMES[found.phase], error: errorInWords(found.error2.total), log10_error: found.error2.total};
}

const known = new Map(); // cells by share of wrong labels
const computed = new Map(); // rows of log10 errors, as far as they are computed

/** The first `count` rows of the map, from below: so that a page may compute it bit by bit before it is looked at. */
export function prepare(head, flips, count = ROWS) {
  const key = `${head.n} ${head.d} ${flips}`;
  const rows = computed.get(key) ?? [];
  computed.set(key, rows);
  if (rows.length < count) {
    const asked = {n: head.n, d: head.d, label_noise: flips, snr: spaced(SNR, COLUMNS), steps: spaced(STEP, ROWS), rows: [rows.length, count], tolerance: 1e-2};
    rows.push(...diagramRows(asked).error);
  }
  return rows;
}

/** Cells of the diagram at a share of wrong labels: for each kind of outcome one path. */
function cells(head, flips) {
  const key = `${head.n} ${head.d} ${flips}`;
  if (!known.has(key)) {
    const error = prepare(head, flips);
    const kinds = {none: "", harmful: "", some: "", more: "", most: ""};
    const [w, h] = [BOX.width / COLUMNS, BOX.height / ROWS];
    error.forEach((row, j) => {
      const kindOf = (value) => (Number.isNaN(value) ? "none" : value >= -1 ? "harmful" : value > -10 ? "some" : value > -60 ? "more" : "most");
      for (let i = 0; i < COLUMNS; ) {
        const kind = kindOf(row[i]);
        let end = i + 1;
        while (end < COLUMNS && kindOf(row[end]) === kind) end += 1;
        kinds[kind] += `M${round(BOX.x + i * w)} ${round(BOX.y + BOX.height - (j + 1) * h)}h${round((end - i) * w)}v${round(h)}h${round((i - end) * w)}z`;
        i = end;
      }
    });
    known.set(key, kinds);
  }
  return known.get(key);
}

function bell(key, x, base, height, unit, {fill, opacity}) {
  const side = [-3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3];
  const d = side.map((z, i) => `${i ? "L" : "M"}${round(x + z * unit)} ${round(base - height * Math.exp((-z * z) / 2))}`).join("");
  return path(key, `${d}Z`, {fill, opacity, stroke: fill, width: 1.5});
}

export function fresh({head, fresh: seen}, setting = ownSetting(head)) {
  const [one, two] = seen;
  const marks = [];
  const share = two.attention;
  // The fresh sample: its long arrow is dashed, the head has never seen it.
  marks.push(dot("faceF", 20, 25, 7, {fill: "measured"}), words("nameF", 34, 30, "a fresh sample", {weight: 600}));
  marks.push(line("noiseF", 22, 76, 104, 76, {stroke: "noise", width: 3, dash: "6 4"}), arrow("headF", 103, 76, 114, 76, {stroke: "noise", width: 3}));
  marks.push(arrow("signalA", 22, 76, 22, 62, {stroke: "signal", width: 3}));
  marks.push(rect("barSA", 22, 92, 120 * share, 22, {fill: "signal"}), rect("barNA", 22 + 120 * share, 92, 120 * (1 - share), 22, {fill: "noise"}));
  marks.push(rect("frameA", 22, 92, 120, 22, {fill: "none", stroke: "ink"}), words("shareSA", 22, 134, share.toFixed(2), {size: 16}));
  // Distance from an error, in widths of the scatter.
  const [zero, unit, base] = [190, 8.4, 112];
  marks.push(line("far", zero - 14, base, 470, base, {stroke: "bound"}), line("zeroF", zero, 40, zero, base + 6, {stroke: "ink"}));
  marks.push(words("wrong", zero + 6, 52, "wrong left of this line", {fill: "quiet"}));
  marks.push(bell("bell1", zero + unit * one.distance, base, 30, unit, {fill: "bound", opacity: 0.45}));
  marks.push(bell("bell2", zero + unit * two.distance, base, 46, unit, {fill: "measured", opacity: 0.85}));
  marks.push(words("at2", zero + unit * two.distance - 4, 134, two.distance.toFixed(0), {anchor: "middle", weight: 600, size: 16}));
  marks.push(words("at1", zero + unit * one.distance + 4, 134, one.distance.toFixed(0), {anchor: "middle", fill: "quiet", size: 16}));
  // Three outcomes.
  const kinds = cells(head, setting.flips);
  marks.push(path("none", kinds.none, {fill: "rule"}), path("harmful", kinds.harmful, {fill: "noisy", opacity: 0.85}));
  for (const [name, opacity] of [["some", 0.38], ["more", 0.6], ["most", 0.85]]) marks.push(path(name, kinds[name], {fill: "clean", opacity}));
  for (const one of marks.slice(-5)) one.at["shape-rendering"] = "crispEdges";
  marks.push(rect("frame", BOX.x, BOX.y, BOX.width, BOX.height, {fill: "none", stroke: "bound"}));
  const x = BOX.x + BOX.width * place(SNR, setting.signal / Math.sqrt(head.d));
  const y = BOX.y + BOX.height * (1 - place(STEP, setting.step));
  marks.push(dot("point", x, y, 8, {fill: "ink", stroke: "paper", width: 2.5}));
  marks.push(words("xaxis", BOX.x + BOX.width / 2, BOX.y + BOX.height + 22, "longer shared arrow \u2192", {anchor: "middle", fill: "quiet"}));
  marks.push({...words("yaxis", 0, 0, "larger step size \u2192", {anchor: "middle", fill: "quiet"})});
  marks[marks.length - 1].at.transform = `translate(46 ${BOX.y + BOX.height / 2}) rotate(-90)`;
  const {word, error, log10_error} = outcome(head, setting);
  const swatches = [["clean", "benign", 0.85], ["noisy", "harmful", 0.85], ["rule", "not fitted", 1]];
  swatches.forEach(([fill, text, opacity], i) => {
    marks.push(rect(`swatch${i}`, 350, 186 + 28 * i, 16, 16, {fill, opacity}), words(`swatchName${i}`, 374, 199 + 28 * i, text, {weight: text === word ? 700 : undefined}));
  });
  marks.push(words("outcome", 350, 300, word, {size: 19, weight: 700}));
  return {
    marks,
    words: `${word}: ${error} (orthogonal noise).`,
    log10_error,
    says:
      `Above, a fresh sample with weight ${share.toFixed(2)} on the shared arrow, and two bells far to the right of a line at zero: at ${one.distance.toFixed(0)} widths after one step, at ${two.distance.toFixed(0)} after two. ` +
      `Below, a map of three outcomes over the length of the shared arrow and the step size; the point lies where the outcome is ${word}.`,
  };
}
