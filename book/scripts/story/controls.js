/** What the reader may touch in each panel: sliders, and what they say beside them. A state is {key: value}. */
import {superscript} from "../shared/format.js";
import {outvotedFrom} from "./desk.js";
import {ownSetting} from "./fresh.js";
import {inWords} from "./sample.js";

const plain = (digits) => (value) => Number(value.toPrecision(digits)).toString().replace("-", "\u2212");
const log = (min, max, value, show) => ({min: Math.log(min), max: Math.log(max), step: Math.log(max / min) / 200, value: Math.log(value), read: Math.exp, show});
const linear = (min, max, step, value, show = plain(3)) => ({min, max, step, value, read: (at) => at, show});

/** {invitation, sliders: [{key, label, min, max, step, value, read, show}], said(state, drawn)} of a panel; null where there is nothing to touch. */
export function controlsOf(name, {head, long, thresholds, clock, prompt}) {
  switch (name) {
    case "sample":
      return {
        invitation: "Point at an arrow, or move the slider.",
        sliders: [{key: "look", label: "sample", ...linear(1, head.n, 1, head.followed[0] + 1, String), read: (at) => at - 1, show: (value) => String(value + 1)}],
        said: ({look}) => inWords(head, look),
      };
    case "head":
      return {
        invitation: "Give the two tokens scores.",
        sliders: [
          {key: "signal", label: "score of the shared arrow", ...linear(-4, 4, 0.1, 0)},
          {key: "noise", label: "score of its own arrow", ...linear(-4, 4, 0.1, 0)},
        ],
        said: () => "The weights follow the scores; the margin stays at zero, because the head does not yet read anything.",
      };
    case "pulls":
      return {
        invitation: "Give the shared arrow another length.",
        sliders: [{key: "length", label: "length", ...linear(10, 36, 0.5, head.signal_length)}],
        said: ({length}, {margins}) =>
          `Margins ${margins.map((m) => m.toFixed(2).replace("-", "\u2212")).join(" and ")}: the flipped sample is ${margins[1] < 0 ? "outvoted" : "fitted at once"}. The border lies at ${outvotedFrom(head).toFixed(1)}.`,
      };
    case "sides":
      return {
        invitation: "Go on, or go back.",
        sliders: [{key: "step", label: "steps", ...linear(0, head.margins.length - 1, 1, 2, String)}],
        said: ({step}) =>
          step === 0
            ? "Before the first step nothing is fitted."
            : `After step ${step}: ${head.fitted[step]} of ${head.n} labels are fitted, and the head errs on fresh data once in 10${superscript(Math.round(-head.log10_error[step]))}.`,
      };
    case "fresh": {
      const own = ownSetting(head);
      return {
        invitation: "Walk over the map.",
        sliders: [
          {key: "signal", label: "length of the shared arrow", ...log(4, 200, own.signal, plain(2))},
          {key: "step", label: "step size, in units of n/d", ...log(0.2, 40, own.step, plain(2))},
          {key: "flips", label: "fraction of flipped labels", ...linear(0, 0.3, 0.01, own.flips, plain(2))},
        ],
        said: (_, drawn) => drawn.words,
      };
    }
    case "race": {
      const shares = thresholds.map(([eta]) => eta);
      return {
        invitation: "Choose x and the fraction of flipped labels.",
        sliders: [
          {key: "x", label: "x", ...log(0.5, 5, 1.3, plain(3))},
          {key: "flips", label: "fraction of flipped labels", ...linear(0, shares.length - 1, 1, 3), read: (at) => shares[at], show: plain(2)},
        ],
        said: (_, drawn) => `${drawn.words} (Our class has x = ${plain(4)(long.x)}.)`,
      };
    }
    case "clock":
      return {
        invitation: "Weaken the signal.",
        sliders: [{key: "face", label: "n SNR\u00b2", ...linear(0, clock.faces.length - 1, 1, 3), show: (face) => plain(2)(clock.faces[face].n_snr2)}],
        said: (_, drawn) => drawn.words,
      };
    case "pair":
      return {
        invitation: "Sharpen both heads.",
        sliders: [{key: "omega", label: "sharpness", ...log(0.01, 3, prompt.omega, plain(2))}],
        said: (_, drawn) => drawn.words,
      };
    default:
      return null;
  }
}
