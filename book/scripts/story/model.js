/** The story's formulas by name, for the tests against attnlib (book/scripts/evaluate.mjs). */
import {afterOneStep, outvotedFrom} from "./desk.js";
import {front} from "./front.js";
import {outcome} from "./fresh.js";
import {pairOf, weights} from "./pair.js";
import {PANELS} from "./panels.js";
import {raced} from "./race.js";
import {between} from "./stage.js";

export const functions = {
  weights: ({alike, omega}) => weights(alike, omega),
  pairOf: ({prompt, omega}) => pairOf(prompt, omega),
  afterOneStep: ({head, length}) => afterOneStep(head, length),
  outvotedFrom: ({head}) => outvotedFrom(head),
  outcome: ({head, ...setting}) => outcome(head, setting),
  raced,
  draw: ({panel, data, state}) => PANELS[panel](data, state),
  frontPage: ({data, front: all, step}) => front(data, all, step),
  between: ({from, to, at}) => between(from, to)?.(at) ?? null,
};
