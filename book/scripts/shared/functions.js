/** The shared module's pure functions for `evaluate.mjs shared`; no explorer loads this file. */
import {fromText, positions} from "./controls.js";
import {number, parse, plain, powerOfTen} from "./format.js";
import {bisect, integrate} from "./ode.js";

const EQUATIONS = {
  pendulum:
    () =>
    (t, [angle, speed]) => [speed, -Math.sin(angle)],
  logistic:
    ({rate}) =>
    (t, [y]) => [rate * y * (1 - y)],
  forced:
    ({rate}) =>
    (t, [y]) => [rate * (Math.cos(t) - y)],
  escape:
    () =>
    (t, [y]) => [y * y],
};

export const functions = {
  number: ({value, digits}) => number(value, digits),
  power_of_ten: ({exponent, digits}) => powerOfTen(exponent, digits),
  parse: ({text}) => parse(text),
  plain: ({value}) => plain(value),
  from_text: ({control, text}) => fromText(control, text),
  slider_values: ({control}) => {
    const at = positions(control);
    return Array.from({length: at.count + 1}, (_, i) => at.value(i));
  },
  slider_positions: ({control, values}) => values.map(positions(control).position),
  integrate: ({equation, parameters, start, from, to, times, options, level}) => {
    const event = level === undefined ? undefined : (t, y) => y[0] - level;
    const {t, y, steps, ended, at} = integrate(EQUATIONS[equation](parameters ?? {}), start, from, to, {
      ...options,
      event,
    });
    return {t: t[t.length - 1], y: y[y.length - 1], steps, ended, dense: (times ?? []).map(at)};
  },
  root: ({low, high, target}) => bisect((x) => x * x - target, low, high),
};
