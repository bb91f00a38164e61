/** The explorer of two steps: a point in the phase diagram, and everything mean field says about it. */
import {mount} from "../shared/shell.js";
import {number, rounded} from "../shared/format.js";
import {followTries} from "../shared/tries.js";
import {DiagramComputer, STEPS, ends} from "./diagram.js";
import {drawMap, drawSteps, storedMap, storedProofs} from "./drawing.js";
import {point} from "./mean_field.js";
import {controls, values} from "./settings.js";
import {Trainer} from "./trainer.js";
import {benignOf, trainedInWords, verdict} from "./words.js";

let diagram = null;
let drawnFor = ""; // what the diagram depends on

mount("two_steps", {
  controls,
  values,
  data: true,
  plots: [
    {
      key: "map",
      wide: true,
      height: 430,
      label: "Phase diagram of two steps: step size against signal-to-noise ratio, with a point that can be moved",
      x: {scale: "log", domain: [0.006, 1.5], label: "SNR"},
      y: {scale: "log", domain: STEPS, ticks: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], label: "step size <i>βd/n</i>"},
    },
    {
      key: "margins",
      height: 250,
      label: "Margins of clean and flipped samples after steps 0, 1 and 2",
      x: {domain: [-0.1, 2.25], ticks: [0, 1, 2], label: "step"},
      y: {label: "margin <i>y f</i>"},
    },
    {
      key: "attention",
      height: 250,
      label: "Attention on the signal token after steps 0, 1 and 2",
      x: {domain: [-0.1, 2.25], ticks: [0, 1, 2], label: "step"},
      y: {domain: [-0.04, 1.04], label: "attention on the signal"},
    },
  ],
  command: ({n, d, signal_norm, label_noise, step}) =>
    `.venv/bin/python -m attnlib rerun single_head/02_two_steps -p n ${n} -p d ${d} -p signal_norm ${signal_norm} -p label_noise ${label_noise} -p step_size ${rounded((step * n) / d, 6)} -o mine.ipynb`,
  setup({plots, set}) {
    followTries(controls, set, "two_steps");
    let latest = () => {};
    const again = () => {
      latest();
      Object.values(plots).forEach((plot) => plot.draw());
    };
    plots.map.remember = (draw) => {
      latest = draw;
    };
    plots.map.computer = new DiagramComputer((fine) => {
      diagram = fine;
      again();
    });
    plots.map.trainer = new Trainer(again);
  },
  update(state, {plots, values: show, say, data, set, changed}) {
    const found = point(state);
    const {n, d, label_noise, first_class_share} = state;
    const asked = JSON.stringify([n, d, label_noise, first_class_share, ends(state)]);
    if (asked !== drawnFor) diagram = plots.map.computer.request(state);
    drawnFor = asked;
    if (
      ["n", "d", "signal_norm", "label_noise", "step", "first_class_share", "trained"].some((key) => changed.has(key))
    )
      plots.map.trainer.request(state);
    const map = storedMap(data, state);
    const words = verdict(state, found);
    const draw = () => {
      const {sets, refusal} = plots.map.trainer;
      drawMap(plots.map, state, found, diagram, map, data, set);
      drawSteps(plots, state, found, sets[0]);
      showValues(show, state, found, plots.map.trainer);
      say(words.sentence + trainedInWords(sets, refusal, state.label_noise) + storedInWords(state, data, map), words);
    };
    plots.map.remember(draw);
    draw();
    plots.map.describe(`${words.word}. ${words.sentence.replace(/<[^>]*>/g, "")}`);
  },
});

function storedInWords(state, data, map) {
  if (state.cells === "proved") {
    if (!storedProofs(data, state))
      return " Cells are predictions for orthogonal noise: proved ones exist at <i>n</i> = 200, <i>d</i> = 40000, <i>η</i> = 0.05.";
    const all = data.proved.cells[state.delta].join("");
    const share = 1 - (all.split(".").length - 1) / all.length;
    return ` Cells: the outcome that is proved with probability 1 − <i>δ</i>; in ${number(100 * share, 2)} % of them there is one.`;
  }
  if (state.cells !== "measured") return "";
  if (map) return ` Cells: the majority of ${data.draws} real training sets, and their median error.`;
  const known = data.maps.map(({n, d, label_noise}) => `(${n}, ${number(d)}, ${label_noise})`).join(", ");
  return ` Cells are predictions for orthogonal noise: measured ones exist at (<i>n</i>, <i>d</i>, <i>η</i>) = ${known}.`;
}

function showValues(show, state, found, {sets, median, fitting}) {
  const k = Number(state.shown_class) - 1;
  const {field, coefficients: own} = found;
  const flips = found.noisy[k] > 0;
  const ofFlipped = (value) => (flips ? value : "no such sample");
  const pick = (from, names) =>
    Object.fromEntries(names.map((name) => [name, name.endsWith("_noisy") ? ofFlipped(from[name][k]) : from[name][k]]));
  show({
    ...pick(field, [
      "margin1_clean",
      "margin1_noisy",
      "margin2_clean",
      "margin2_noisy",
      "attention_clean",
      "attention_noisy",
      "b",
    ]),
    ...pick(own, ["lambda1", "lambda2", "theta2_clean", "theta2_noisy", "p_signal", "p_noise_clean", "p_noise_noisy"]),
    a: field.a,
    snr: found.snr,
    n_snr2: found.n_snr2,
    kappa: found.kappa,
    step_size: found.step_size,
    log10_error1: found.error1.total,
    log10_error2: found.error2.total,
    trained_error: sets.length ? median : "none yet",
    trained_fit: sets.length ? fitting : "none yet",
    trained_benign: state.label_noise > 0 ? (sets.length ? benignOf(sets, state.label_noise) : "none yet") : "no flips",
  });
}
