/** Drawing: the map of fates with its point, the curves over time, the path in the plane with the trap. */
import {rounded} from "../shared/format.js";
import {LAST_TIME, firstOrderThreshold} from "./flow.js";
import {FIRST_TIME, NOISES, TIMES, X} from "./settings.js";

const [SIGNAL, NOISE, TRAP] = ["signal", "noise", "noisy"];

/** [label noise, x*] of the stored boundary; null where it lies above the highest x. */
export const stored = (data, rate) => {
  const {x} = data.boundaries.find((one) => one.attention_rate === rate);
  return data.label_noises.map((noise, i) => [noise, x[i]]);
};

export function drawMap(plot, state, data, threshold, set) {
  const boundary = stored(data, state.attention_rate);
  const last = boundary.findIndex(([, x]) => x === null); // from here on x* lies above the picture
  const top = boundary.map(([noise, x]) => [noise, x ?? X[1]]);
  const first = Array.from({length: 91}, (_, i) => (NOISES[1] * i) / 90).map((noise) => [
    noise,
    firstOrderThreshold({label_noise: noise}),
  ]);
  plot.areas([
    {
      key: "signal",
      points: top.map(([noise, x]) => [noise, x, X[1]]),
      colour: SIGNAL,
      opacity: 0.2,
      label: "both choose the signal",
    },
    {
      key: "trap",
      points: top.map(([noise, x]) => [noise, 1, x]),
      colour: TRAP,
      opacity: 0.2,
      label: "trap: flow on noise, maximum margin on signal",
    },
    {
      key: "noise",
      points: NOISES.map((noise) => [noise, X[0], 1]),
      colour: NOISE,
      opacity: 0.25,
      label: "both choose noise",
    },
  ]);
  plot.lines([
    {
      key: "boundary",
      points: last < 0 ? top : top.slice(0, last + 1),
      colour: "theory",
      width: 2.2,
      label: "<i>x</i>*, gradient flow",
    },
    {
      key: "margin",
      points: NOISES.map((noise) => [noise, 1]),
      colour: "theory",
      dash: "dotted",
      width: 2,
      label: "<i>x</i> = 1, maximum margin",
    },
    {key: "first", points: first, colour: "bound", dash: true, label: "<i>x</i><sub>1</sub>, first move"},
  ]);
  const {flipped, x, on_signal} = data.trained;
  const ended = (on) => flipped.map((share, i) => [share, x[i]]).filter((_, i) => (on_signal[i] === "1") === on);
  const shown = state.trained && state.attention_rate === 1;
  plot.points([
    ...(shown
      ? [
          {key: "on-signal", points: ended(true), colour: SIGNAL, radius: 2.2, label: "trained class, ends on signal"},
          {
            key: "on-noise",
            points: ended(false),
            colour: NOISE,
            radius: 2.2,
            hollow: true,
            label: "trained class, ends on noise",
          },
        ]
      : []),
    {
      key: "here",
      points: Number.isFinite(threshold) ? [[state.label_noise, threshold]] : [],
      colour: "theory",
      radius: 4,
      hollow: true,
      label: "<i>x</i>* computed just now",
    },
  ]);
  const move = ([noise, strength]) => set({label_noise: rounded(Math.max(0, noise), 3), x: rounded(strength, 4)});
  plot.marker({
    key: "point",
    x: state.label_noise,
    y: state.x,
    name: "label noise and signal strength x",
    draggable: true,
    onmove: move,
  });
  plot.onpoint(move);
}

export function drawTime(plots, state, path, at) {
  const flips = state.label_noise > 0;
  const curve = (name) => TIMES.map((tau, i) => [tau, at[i][name]]);
  const two = (name) => [
    {key: "clean", points: curve(`${name}_clean`), colour: "clean", label: "clean"},
    ...(flips ? [{key: "noisy", points: curve(`${name}_noisy`), colour: "noisy", label: "flipped"}] : []),
  ];
  const seen = (time) => time >= FIRST_TIME && time <= LAST_TIME;
  const closes = seen(path.trap_time) ? [{x: path.trap_time, label: "trap closes"}] : [];
  plots.attention.lines(two("attention"));
  plots.attention.rules(closes);
  plots.margins.lines(two("margin"));
  const ends = at.flatMap((one) => [one.margin_clean, ...(flips ? [one.margin_noisy] : [])]);
  const [low, high] = [Math.min(-0.2, ...ends), Math.max(0.5, ...ends)];
  plots.margins.axes({y: {domain: [low - 0.06 * (high - low), high + 0.06 * (high - low)]}});
  plots.margins.rules([
    {y: 0, dash: false, colour: "theory"},
    ...(flips && seen(path.interpolation_time) ? [{x: path.interpolation_time, label: "flipped fitted"}] : []),
  ]);
}

/** The plane of lead and logit; the trap is its lower left corner, left of V = t_c and below s_c = 1/(1 + x). */
export function drawPlane(plot, state, path) {
  const points = [[0, 0], ...path.states.slice(1).map((one) => [one[0] - one[1], one[3] - one[4]])];
  const ceiling = -Math.log(state.x);
  const wide = (list) => {
    const [low, high] = [Math.min(0, ...list), Math.max(0, ...list)];
    const room = Math.max(0.05, 0.1 * (high - low));
    return [low - room, high + room];
  };
  const [horizontal, vertical] = [
    wide(points.map(([lead]) => lead)),
    wide([...points.map(([, logit]) => logit), ceiling]),
  ];
  plot.axes({x: {domain: horizontal}, y: {domain: vertical}});
  plot.areas([
    {
      key: "trap",
      points: [
        [horizontal[0], vertical[0], ceiling],
        [0, vertical[0], ceiling],
      ],
      colour: TRAP,
      opacity: 0.2,
      label: "trap",
    },
  ]);
  plot.rules([
    {x: 0, dash: false},
    {y: 0, dash: false},
  ]);
  const decades = [0.1, 1, 10, 100, 1000, 1e4, 1e5];
  plot.lines([{key: "path", points, colour: "clean", width: 2, label: "clean samples"}]);
  plot.points([
    {
      key: "decades",
      points: decades.map((tau) => path.at(tau)).map((one) => [one[0] - one[1], one[3] - one[4]]),
      colour: "clean",
      radius: 2.6,
      label: "<i>τ</i> = 0.1, 1, …, 10⁵",
    },
    ...(Number.isFinite(path.trap_time)
      ? [
          {
            key: "closes",
            points: [path.at(path.trap_time)].map((one) => [one[0] - one[1], one[3] - one[4]]),
            colour: TRAP,
            radius: 5,
            hollow: true,
            label: "the trap closes",
          },
        ]
      : []),
  ]);
}
