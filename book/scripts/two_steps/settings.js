/** The settings and the values of the explorer of two steps: ends of sliders, labels, how numbers are written. */
import {number, percent, powerOfTen} from "../shared/format.js";

export const controls = [
  {key: "n", label: "training samples <i>n</i>", kind: "log-range", min: 10, max: 2000, value: 200, integer: true},
  {
    key: "d",
    label: "dimension <i>d</i>",
    kind: "log-range",
    min: 100,
    max: 1e8,
    value: 40000,
    integer: true,
    count: 120,
  },
  {key: "signal_norm", label: "signal norm <i>ρ</i>", kind: "log-range", min: 0.05, max: 20000, value: 30, count: 400},
  {key: "label_noise", label: "label noise <i>η</i>", kind: "range", min: 0, max: 0.45, step: 0.005, value: 0.05},
  {
    key: "step",
    label: "step size <i>β</i>, in units of <i>n/d</i>",
    kind: "log-range",
    min: 0.1,
    max: 60,
    value: 5,
    count: 200,
  },
  {
    key: "first_class_share",
    label: "fraction of the flips that fall in class 1",
    kind: "range",
    min: 0,
    max: 1,
    step: 0.05,
    value: 0.5,
    help: "One half is what the law expects. Chance moves it, and then the two classes differ.",
  },
  {
    key: "shown_class",
    label: "numbers are for",
    kind: "choice",
    options: [
      {value: "1", label: "class 1"},
      {value: "2", label: "class 2"},
    ],
    value: "1",
  },
  {
    key: "axis",
    label: "horizontal axis",
    kind: "choice",
    options: [
      {value: "snr", label: "SNR"},
      {value: "n_snr2", label: "<i>n</i> SNR²"},
    ],
    value: "snr",
  },
  {
    key: "cells",
    label: "cells of the diagram",
    kind: "choice",
    options: [
      {value: "theory", label: "orthogonal noise"},
      {value: "measured", label: "measured"},
      {value: "proved", label: "proved"},
    ],
    value: "theory",
  },
  {
    key: "delta",
    label: "proved with probability 1 − <i>δ</i>, <i>δ</i> =",
    kind: "choice",
    options: ["0.001", "0.01", "0.1", "0.5"].map((value) => ({value, label: value})),
    value: "0.01",
    help: "Proved cells exist at n = 200, d = 40000, η = 0.05.",
  },
  {key: "trained", label: "train ten random sets at the point", kind: "toggle", value: true},
];

const inTen = (value) =>
  typeof value === "string" ? value : Number.isFinite(value) ? powerOfTen(value) : number(value);
const inPercent = (value) => (typeof value === "string" ? value : percent(value));
export const values = [
  {key: "log10_error2", label: "clean error after step 2", format: inTen},
  {key: "log10_error1", label: "clean error after step 1", format: inTen},
  {key: "margin1_clean", label: "margin after step 1, clean"},
  {key: "margin1_noisy", label: "margin after step 1, flipped"},
  {key: "margin2_clean", label: "margin after step 2, clean"},
  {key: "margin2_noisy", label: "margin after step 2, flipped"},
  {key: "attention_clean", label: "attention on the signal, clean", format: inPercent},
  {key: "attention_noisy", label: "attention on the signal, flipped", format: inPercent},
  {key: "snr", label: "SNR = <i>ρ</i>/√<i>d</i>"},
  {key: "n_snr2", label: "<i>n</i> SNR²"},
  {key: "kappa", label: "<i>κ</i> = E<i>b/a</i>"},
  {key: "a", label: "pull of own noise <i>a</i>"},
  {key: "b", label: "pull of the signal <i>b</i>"},
  {key: "step_size", label: "step size <i>β</i>"},
  {key: "lambda1", label: "<i>μ</i> in <i>v</i><sub>1</sub> <sup>*</sup>"},
  {key: "lambda2", label: "<i>μ</i> in <i>v</i><sub>2</sub> <sup>*</sup>"},
  {key: "theta2_clean", label: "<i>yξ</i> in <i>v</i><sub>2</sub>, clean <sup>*</sup>"},
  {key: "theta2_noisy", label: "<i>yξ</i> in <i>v</i><sub>2</sub>, flipped <sup>*</sup>"},
  {key: "p_signal", label: "<i>μ</i> in <i>p</i><sub>2</sub> <sup>*</sup>"},
  {key: "p_noise_clean", label: "<i>ξ</i> in <i>p</i><sub>2</sub>, clean <sup>*</sup>"},
  {key: "p_noise_noisy", label: "<i>ξ</i> in <i>p</i><sub>2</sub>, flipped <sup>*</sup>"},
  {key: "trained_error", label: "ten random sets: median error", format: inTen},
  {key: "trained_fit", label: "of them fit every label"},
  {key: "trained_benign", label: "of them err below <i>η</i>"},
];
