/** All formulas of the explorer by name, for the tests against attnlib (book/scripts/evaluate.mjs). */
import {logError} from "./gaussian_tail.js";
import * as formulas from "./mean_field.js";
import {chi, drawSet, normals, trainOn, trainSets, uniforms} from "./real.js";
import {benignOf, errorInWords, trainedInWords, verdict} from "./words.js";

const {
  expectedCounts,
  meanField,
  log10Error,
  log10ErrorStep1,
  readings,
  preferenceThreshold,
  lowerSnrLimit,
  theoremDimension,
} = formulas;
const {point, diagramRows, fittingStep} = formulas;

/** `count` chi variables. */
function chis({freedom, count, seed}) {
  const uniform = uniforms(seed);
  const normal = normals(uniform);
  return Array.from({length: count}, () => chi(freedom, uniform, normal));
}

export const functions = {
  expectedCounts,
  meanField,
  log10Error,
  log10ErrorStep1,
  readings,
  preferenceThreshold,
  lowerSnrLimit,
  theoremDimension,
  point,
  diagramRows,
  fittingStep,
  trainOn,
  trainSets,
  drawSet,
  chis,
  logError: ({logit, value, omega, along, tau}) => logError(logit, value, omega, along, tau),
  verdict: ({state}) => verdict(state, point(state)),
  errorInWords: ({log10_error}) => errorInWords(log10_error),
  benignOf: ({sets, label_noise}) => benignOf(sets, label_noise),
  trainedInWords: ({sets, refusal, label_noise}) => trainedInWords(sets, refusal, label_noise),
};
