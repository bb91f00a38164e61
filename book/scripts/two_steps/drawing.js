/** Drawing: the diagram with its borders and its point, margins and attention over the steps, samples of a random set. */
import {powerOfTen, rounded} from "../shared/format.js";
import {PHASES, STEPS, edgesOf, phaseColours} from "./diagram.js";
import {lowerSnrLimit, preferenceThreshold} from "./mean_field.js";

const horizontal = (state, snr) => (state.axis === "snr" ? snr : state.n * snr ** 2);
const PAPER = "var(--explorer-paper)";

/** Every line twice: a rim in the colour of the paper first, so that it can be seen on every phase. */
const rimmed = (items) => [
  ...items.map((item) => ({
    ...item,
    key: `${item.key}-rim`,
    colour: PAPER,
    dash: null,
    width: 4,
    label: undefined,
    opacity: 0.75,
  })),
  ...items,
];

function drawCells(plot, state, diagram) {
  const bar = {label: "error", ticks: [1, 3, 10, 30, 100, 300, 1000], format: (value) => powerOfTen(-value)};
  plot.heat({
    x: diagram.edges.map((snr) => horizontal(state, snr)),
    y: diagram.rows,
    values: diagram.values,
    colour: diagram.colour ?? phaseColours(),
    bar: diagram.colour ? undefined : bar,
  });
}

/** Cells of a measured diagram: the majority's phase, the median error in benign cells. */
function measuredCells(map, steps) {
  const shown = map.phase.map((row, j) =>
    Array.from(row, (phase, i) => {
      if (phase === "0") return NaN;
      return phase === "1" ? 0 : Math.max(1, -map.log10_error[j][i]);
    }),
  );
  return {edges: edgesOf(map.snr), rows: edgesOf(steps), values: shown};
}

/** Outcomes as numbers of the colour scale: not fitted, harmful, benign; -1 where nothing is proved. */
const OUTCOME = {0: NaN, 1: 0, 2: 30, ".": -1};

function provedColours() {
  const colour = phaseColours();
  return Object.assign((value) => (value === -1 ? PHASES.undecided : colour(value)), {domain: colour.domain, scale: "log"});
}

const provedCells = ({snr, steps, cells}, delta) => ({
  edges: edgesOf(snr),
  rows: edgesOf(steps),
  values: cells[delta].map((row) => Array.from(row, (one) => OUTCOME[one])),
  colour: provedColours(),
});

/** Borders of the measured phases: where most training sets fit every label, and where most are benign. */
function measuredBorders(map, steps, state) {
  const grid = {x: map.snr.map((snr) => horizontal(state, snr)), y: steps, levels: [0.5]};
  const from = (least) => map.phase.map((row) => Array.from(row, (one) => (Number(one) >= least ? 1 : 0)));
  return [
    {key: "most-fitted", ...grid, values: from(1), width: 1.6, label: "measured: most sets fitted"},
    {key: "most-benign", ...grid, values: from(2), width: 1.6, dash: true, label: "measured: most sets benign"},
  ];
}

/** The stored proved cells of this setting, if there are any. */
export const storedProofs = ({proved}, state) => (storedMap({maps: [proved]}, state) ? proved : undefined);

const theoryCells = ({snr, steps, error}) => ({
  edges: snr.edges,
  rows: steps.edges,
  values: error.map((row) => row.map((one) => -one)),
});

export const storedMap = (data, {n, d, label_noise, first_class_share}) =>
  first_class_share === 0.5
    ? data.maps.find((map) => map.n === n && map.d === d && Math.abs(map.label_noise - label_noise) < 1e-9)
    : undefined;

export function drawMap(plot, state, found, diagram, map, data, set) {
  const {unfitted, harmful, benign} = PHASES;
  const {edges} = diagram.snr;
  const ends = [edges[0], edges[edges.length - 1]].map((snr) => horizontal(state, snr));
  const measured = state.cells === "measured" && map;
  const proofs = state.cells === "proved" && storedProofs(data, state);
  plot.axes({x: {domain: ends, label: state.axis === "snr" ? "SNR = <i>ρ</i>/√<i>d</i>" : "<i>n</i> SNR²"}});
  const chosen = proofs ? provedCells(proofs, state.delta) : measured && measuredCells(map, data.steps);
  drawCells(plot, state, chosen || theoryCells(diagram));
  const patch = (key, colour, label) => ({key, colour, label, points: [], opacity: 1});
  plot.areas([
    patch("unfitted", unfitted, "not every label fitted"),
    patch("harmful", harmful, "fitted, harmful"),
    patch("benign", benign[2], "fitted, benign"),
  ]);
  const upright = (snr) => STEPS.map((step) => [horizontal(state, snr), step]);
  plot.lines(
    rimmed([
      {key: "kappa", points: upright(preferenceThreshold(state)), label: "<i>κ</i> = 1"},
      {key: "lower", points: upright(lowerSnrLimit(state)), dash: true, label: "lower limit"},
    ]),
  );
  const grid = {x: diagram.snr.centres.map((snr) => horizontal(state, snr)), y: diagram.steps.centres, levels: [0]};
  // Held within reach, as attnlib does before it draws: minus infinity has no place between two cells.
  const held = (rows) => rows.map((row) => row.map((one) => Math.max(-3, Math.min(3, one))));
  const flips = state.label_noise > 0;
  if (proofs) plot.contours(rimmed(measuredBorders(map, data.steps, state)));
  else plot.contours(
    rimmed([
      ...(flips
        ? [
            {
              key: "fitted",
              ...grid,
              values: held(diagram.margin),
              dash: "7 3 1.5 3",
              width: 1.8,
              label: "flipped labels fitted",
            },
          ]
        : []),
      {key: "strength", ...grid, values: held(diagram.strength), dash: "dotted", width: 2, label: "<i>S</i> = 1"},
    ]),
  );
  const unsure = [];
  if (measured)
    map.uncertain.forEach((row, j) =>
      Array.from(row).forEach((one, i) => {
        if (one === "1") unsure.push([horizontal(state, map.snr[i]), data.steps[j]]);
      }),
    );
  if (proofs)
    proofs.cells[state.delta].forEach((row, j) =>
      Array.from(row).forEach((one, i) => {
        if (one === ".") unsure.push([horizontal(state, proofs.snr[i]), proofs.steps[j]]);
      }),
    );
  plot.points([
    {
      key: "unsure",
      points: unsure,
      colour: "theory",
      radius: 1,
      label: proofs ? "not decided" : measured ? "training sets disagree" : undefined,
    },
  ]);
  const move = ([x, step]) => {
    const snr = state.axis === "snr" ? x : Math.sqrt(x / state.n);
    set({signal_norm: rounded(snr * Math.sqrt(state.d), 4), step: rounded(step, 4)});
  };
  plot.marker({
    key: "point",
    x: horizontal(state, found.snr),
    y: state.step,
    name: "signal-to-noise ratio and step size",
    draggable: true,
    onmove: move,
  });
  plot.onpoint(move);
}

/** Margins or attention over the steps 0, 1, 2; class 2 dashed where it differs. */
function overSteps(plot, state, series, domain, samples = []) {
  const differs = state.first_class_share !== 0.5 && state.label_noise > 0;
  const lines = [];
  for (const {key, colour, label, steps} of series) {
    for (const k of differs ? [0, 1] : [0]) {
      const points = steps.map((one, t) => [t, one[k]]);
      lines.push({
        key: `${key}-${k}`,
        points,
        colour,
        dash: k === 1,
        label: differs ? `${label}, class ${k + 1}` : label,
      });
    }
  }
  plot.axes({y: {domain}});
  plot.lines(lines);
  plot.points([...samples, ...lines.map((line) => ({...line, label: undefined, radius: 4}))]);
}

function marginDomain(lists) {
  const all = lists.flat(2).filter(Number.isFinite);
  const [low, high] = [Math.min(-0.2, ...all), Math.max(0.5, ...all)];
  return [low - 0.08 * (high - low), high + 0.08 * (high - low)];
}

const SHOWN = 60; // samples of one kind that are drawn

/** Samples of the first random set as small points beside the step; each keeps its place when the point moves. */
function cloud(set, lists, first) {
  if (!set) return [];
  return ["clean", "noisy"].map((kind) => {
    const own = set.flipped.flatMap((flipped, i) => (flipped === (kind === "noisy") ? [i] : [])).slice(0, SHOWN);
    const points = lists.flatMap((list, t) =>
      own.map((i, place) => [first + t + 0.03 + 0.12 * ((place * 0.618) % 1), list[i]]),
    );
    return {
      key: `set-${kind}`,
      colour: kind,
      radius: 1.1,
      points,
      label: points.length ? "samples of one random set" : undefined,
    };
  });
}

export function drawSteps(plots, state, {field}, set) {
  const [zero, half] = [
    [0, 0],
    [0.5, 0.5],
  ];
  const kinds = (clean, noisy) => [
    {key: "clean", colour: "clean", label: "clean", steps: clean},
    ...(state.label_noise > 0 ? [{key: "noisy", colour: "noisy", label: "flipped", steps: noisy}] : []),
  ];
  const margins = kinds(
    [zero, field.margin1_clean, field.margin2_clean],
    [zero, field.margin1_noisy, field.margin2_noisy],
  );
  const seen = cloud(set, set ? [set.margins1, set.margins2] : [], 1);
  const domain = marginDomain([
    ...margins.map((one) => one.steps),
    seen.map((one) => one.points.map(([, margin]) => margin)),
  ]);
  overSteps(plots.margins, state, margins, domain, seen);
  plots.margins.rules([{y: 0, dash: false, colour: "theory"}]);
  const attention = kinds([half, half, field.attention_clean], [half, half, field.attention_noisy]);
  overSteps(plots.attention, state, attention, [-0.04, 1.04], cloud(set, set ? [set.attention] : [], 2));
}
