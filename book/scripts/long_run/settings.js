/** The settings and the values of the explorer of the long run: ends of sliders and axes, labels, how numbers are written. */
import {number, percent} from "../shared/format.js";
import {LAST_TIME} from "./flow.js";

export const X = [0.5, 40];
export const NOISES = [0, 0.45];
export const FIRST_TIME = 0.1;
export const TIMES = Array.from({length: 161}, (_, i) => FIRST_TIME * (LAST_TIME / FIRST_TIME) ** (i / 160));

const inTime = (value) => (value === 0 ? "from the start" : Number.isFinite(value) ? number(value) : "never");

export const controls = [
  {
    key: "x",
    label: "signal strength <i>x</i> = <i>ρ</i>²|<i>C</i>|/<i>d</i>",
    kind: "log-range",
    min: X[0],
    max: X[1],
    value: 1.3,
    count: 400,
  },
  {
    key: "label_noise",
    label: "label noise <i>η</i>",
    kind: "range",
    min: NOISES[0],
    max: NOISES[1],
    step: 0.005,
    value: 0.2,
  },
  {
    key: "attention_rate",
    label: "step size of <i>p</i> over that of <i>v</i>",
    kind: "choice",
    value: "1",
    options: [
      {value: "0.25", label: "1/4"},
      {value: "1", label: "1"},
      {value: "4", label: "4"},
    ],
  },
  {key: "trained", label: "show trained classes", kind: "toggle", value: true},
];

export const values = [
  {key: "threshold", label: "<i>x</i>*, gradient flow"},
  {key: "margin_line", label: "maximum margin"},
  {key: "first", label: "<i>x</i><sub>1</sub>, first move"},
  {key: "trap_time", label: "trap closes at <i>τ</i>", format: inTime},
  {key: "interpolation_time", label: "flipped labels fitted from <i>τ</i>", format: inTime},
  {key: "attention_clean", label: "attention at the end, clean", format: (value) => percent(value)},
  {
    key: "attention_noisy",
    label: "attention at the end, flipped",
    format: (value) => (typeof value === "string" ? value : percent(value)),
  },
  {key: "margin_clean", label: "margin at the end, clean"},
  {key: "margin_noisy", label: "margin at the end, flipped"},
];
