/** The explorer of the long run: a point between label noise and x, and the flow that decides its fate. */
import {mount} from "../shared/shell.js";
import {rounded} from "../shared/format.js";
import {followTries} from "../shared/tries.js";
import {drawMap, drawPlane, drawTime, stored} from "./drawing.js";
import {LAST_TIME, firstOrderThreshold, flow, reading, signalThreshold} from "./flow.js";
import {FIRST_TIME, NOISES, TIMES, X, controls, values} from "./settings.js";
import {verdict} from "./words.js";

const REST = 120; // milliseconds without another setting before x* is computed anew

function showValues(show, state, path, end, threshold) {
  const none = "no such sample";
  const flips = state.label_noise > 0;
  show({
    threshold: Number.isFinite(threshold) ? threshold : "above 40",
    margin_line: 1,
    first: firstOrderThreshold(state),
    trap_time: path.trap_time,
    interpolation_time: flips ? path.interpolation_time : none,
    attention_clean: end.attention_clean,
    attention_noisy: flips ? end.attention_noisy : none,
    margin_clean: end.margin_clean,
    margin_noisy: flips ? end.margin_noisy : none,
  });
}

/** x* between two stored label noises, until it is computed: linear in log x. */
function interpolated(data, {label_noise, attention_rate}) {
  const list = stored(data, attention_rate);
  const i = Math.min(list.length - 2, Math.max(0, list.findIndex(([noise]) => noise >= label_noise) - 1));
  const [[a, low], [b, high]] = [list[i], list[i + 1]];
  if (label_noise === 0) return 1;
  if (low === null || high === null) return label_noise === a && low !== null ? low : Infinity;
  return Math.exp(Math.log(low) + ((label_noise - a) / (b - a)) * Math.log(high / low));
}

const time = {scale: "log", domain: [FIRST_TIME, LAST_TIME], label: "time <i>τ</i> = <i>βtd/n</i>"};

mount("long_run", {
  controls,
  values,
  data: true,
  plots: [
    {
      key: "map",
      wide: true,
      height: 400,
      label: "Who wins: signal strength x against label noise, with a point that can be moved",
      x: {domain: NOISES, label: "label noise <i>η</i>"},
      y: {scale: "log", domain: X, ticks: [0.5, 1, 2, 5, 10, 20, 40], label: "<i>x</i>"},
    },
    {
      key: "attention",
      height: 250,
      label: "Attention on the signal over time",
      x: time,
      y: {domain: [-0.03, 1.03], label: "attention on the signal"},
    },
    {
      key: "margins",
      height: 250,
      label: "Margins of clean and flipped samples over time",
      x: time,
      y: {label: "margin <i>y f</i>"},
    },
    {
      key: "plane",
      wide: true,
      height: 300,
      label: "The path of the clean samples in the plane of lead and clean logit, with the trap",
      x: {label: "lead of the signal, <i>V</i> − <i>t</i><sub>c</sub>"},
      y: {label: "clean logit, <i>P</i> − <i>q</i><sub>c</sub>"},
    },
  ],
  // n = 100 and d = 20 000 as on the page; rho from x = rho^2 n (1 - eta) / 2d.
  command: ({x, label_noise, attention_rate}) =>
    attention_rate !== "1" || x <= 0
      ? null
      : `.venv/bin/python -m attnlib rerun single_head/14_the_trap -p signal_norm ${rounded(Math.sqrt((x * 20000) / (50 * (1 - label_noise))), 5)} -p label_noise ${label_noise} -o mine.ipynb`,
  setup({plots, data, set}) {
    followTries(controls, set, "long_run");
    const exact = new Map(); // thresholds that were bisected: "label noise, rate" -> x*
    let timer = 0;
    const key = ({label_noise, attention_rate}) => `${label_noise},${attention_rate}`;
    plots.map.threshold = (state, again) => {
      clearTimeout(timer);
      if (exact.has(key(state))) return {threshold: exact.get(key(state)), computed: true};
      timer = setTimeout(() => {
        exact.set(key(state), signalThreshold(state));
        again();
        Object.values(plots).forEach((plot) => plot.draw());
      }, REST);
      return {threshold: interpolated(data, state), computed: false};
    };
  },
  update(settings, {plots, values: show, say, data, set}) {
    const state = {...settings, attention_rate: Number(settings.attention_rate)}; // options are text
    const path = flow(state);
    const at = TIMES.map((tau) => reading(path.at(tau)));
    const end = at[at.length - 1];
    drawTime(plots, state, path, at);
    drawPlane(plots.plane, state, path);
    const decide = () => {
      const {threshold, computed} = plots.map.threshold(state, decide);
      drawMap(plots.map, state, data, computed ? threshold : NaN, set);
      showValues(show, state, path, end, threshold);
      const words = verdict({...state, threshold, first: firstOrderThreshold(state), path, end});
      plots.map.describe(`${words.word}. ${words.sentence.replace(/<[^>]*>/g, "")}`);
      say(words.sentence, words);
    };
    decide();
  },
});
