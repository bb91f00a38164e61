/** All formulas of the explorer by name, for the tests against attnlib (book/scripts/evaluate.mjs). */
import {
  LAST_TIME,
  firstOrderThreshold,
  flow,
  flowPath,
  flowRates,
  reading,
  selectsSignal,
  signalThreshold,
  trapRoom,
} from "./flow.js";
import {verdict} from "./words.js";

/** The verdict of one point, from the settings alone. */
function verdictAt({x, label_noise, attention_rate = 1}) {
  const path = flow({x, label_noise, attention_rate});
  const threshold = signalThreshold({label_noise, attention_rate});
  return verdict({
    x,
    label_noise,
    threshold,
    first: firstOrderThreshold({label_noise}),
    path,
    end: reading(path.at(LAST_TIME)),
  });
}

export const functions = {
  flowRates: ({state, x, nu, rate}) => flowRates(state, x, nu, rate),
  trapRoom: ({state, x, nu}) => trapRoom(state, x, nu),
  reading: ({state}) => reading(state),
  flowPath,
  selectsSignal,
  signalThreshold,
  firstOrderThreshold,
  verdict: verdictAt,
};
