/**
 * The measured course of one pair (a signal-to-noise ratio and a label noise): unpacked curves, read off at any time, and what they mean in words.
 * Curves are linear in log time between the stored times, as book/attnbook/token_selection/time_laws/delay.py `along_time` makes them.
 * @module
 */
import {unpack} from "./packing.js";

/**
 * @param {object} data window.attentionCheckedData.token_selection
 * @param {number} index of the pair
 * @returns {object} {pair, logTimes, mean: {curve: values}, error: {curve: values}, samples: [token: values][], phases: phase of each run at each time}
 */
export function course(data, index) {
  const pair = data.pairs[index];
  const [count, length] = [data.curves.length, data.times.length];
  const curves = unpack(pair.packed, 2 * count + pair.samples.length * pair.tokens, length, data.resolution);
  const named = (from) => Object.fromEntries(data.curves.map((name, i) => [name, curves[from + i]]));
  const samples = pair.samples.map((_, i) => curves.slice(2 * count + i * pair.tokens, 2 * count + (i + 1) * pair.tokens));
  return {pair, logTimes: data.times, mean: named(0), error: named(count), samples, phases: pair.phase_changes.map((changes) => unroll(changes, length))};
}

/** Only the mean curves of a pair: {pair, logTimes, mean}. They are packed first, so the rest is not even read. */
export function means(data, index) {
  const curves = unpack(data.pairs[index].packed, data.curves.length, data.times.length, data.resolution);
  return {pair: data.pairs[index], logTimes: data.times, mean: Object.fromEntries(data.curves.map((name, i) => [name, curves[i]]))};
}

/** [[time, phase], ...] -> the phase at every time. */
function unroll(changes, length) {
  const phases = new Uint8Array(length);
  for (const [from, phase] of changes) phases.fill(phase, from);
  return phases;
}

/** Where log10 time lies between the stored times: the one before, and the way to the next. */
export function place(logTimes, at) {
  const last = logTimes.length - 1;
  if (at <= logTimes[0]) return [0, 0];
  if (at >= logTimes[last]) return [last - 1, 1];
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (logTimes[middle] <= at) low = middle;
    else high = middle;
  }
  return [low, (at - logTimes[low]) / (logTimes[high] - logTimes[low])];
}

export const between = (values, [k, part]) => values[k] + part * (values[k + 1] - values[k]);

/** First log10 time at which a mean curve reaches a level from below; NaN if never. */
export function reaches(logTimes, values, level) {
  const k = values.findIndex((value) => value >= level);
  if (k <= 0) return k === 0 ? logTimes[0] : NaN;
  return logTimes[k - 1] + ((level - values[k - 1]) / (values[k] - values[k - 1])) * (logTimes[k] - logTimes[k - 1]);
}

/** Phase of most runs at stored time k, and how many of them: as `HeatMap.phase` (the first of equals). */
export function majority(phases, k, kinds) {
  const counts = new Array(kinds).fill(0);
  for (const run of phases) counts[run[k]] += 1;
  const phase = counts.indexOf(Math.max(...counts));
  return [phase, counts[phase]];
}

/** Stretches of log10 time in one phase of most runs: [[phase, from, to], ...]; a border lies half way between stored times. */
export function stretches(logTimes, phases, kinds) {
  const found = [];
  for (let k = 0; k < logTimes.length; k += 1) {
    const [phase] = majority(phases, k, kinds);
    const last = found[found.length - 1];
    if (last?.[0] === phase) last[2] = logTimes[k];
    else {
      const border = k === 0 ? logTimes[0] : (logTimes[k - 1] + logTimes[k]) / 2;
      if (last) last[2] = border;
      found.push([phase, border, logTimes[k]]);
    }
  }
  return found;
}

/** Mean and standard error of log10 times of single runs, over those that got there. */
export function meanTime(logs) {
  const there = logs.filter((x) => x !== null);
  const m = there.length;
  if (!m) return {count: 0, mean: NaN, error: NaN};
  const mean = there.reduce((a, b) => a + b, 0) / m;
  const error = m > 1 ? Math.sqrt(there.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (m - 1) / m) : NaN;
  return {count: m, mean, error};
}

/**
 * What the models do at a time, in words.
 * @param {object} seen {phase, clean, noisyFitted, cleanFitted, fresh, accuracy, uniform, tokens} clean, fresh: attention on the relevant token
 * @returns {{badge: string, word: string, sentence: string}} badge: a colour of the ledger; word: the phase by the rule of the heat map
 */
export function verdict({phase, clean, noisyFitted, cleanFitted, fresh, accuracy, uniform, tokens}) {
  const chance = 1 / tokens;
  const look = fresh < 1.4 * chance
    ? "a fresh sample still spreads its attention almost evenly"
    : fresh < 0.5
      ? `a fresh sample gives ${percent(fresh)} of its attention to the relevant token`
      : `a fresh sample gives ${percent(fresh)} of its attention to the relevant token: selected`;
  if (phase === "does not overfit") {
    if (clean < 1.4 * chance) return {badge: "outside", word: "just begun", sentence: `Attention is close to uniform everywhere; what is right now is right by the head alone: ${percent(cleanFitted)} of the clean labels and ${percent(noisyFitted)} of the wrong ones are fitted.`};
    const selected = clean >= 0.5 ? "Clean samples have found their relevant token" : "Clean samples are finding their relevant token";
    const noisy = noisyFitted < 0.05 ? "no flipped label is memorised" : `${percent(noisyFitted)} of the flipped labels are memorised`;
    return {badge: "holds", word: "not overfitting", sentence: `${selected}, ${noisy}; ${look}.`};
  }
  const memorised = noisyFitted > 0.999 ? "Memorised, flipped labels included" : `Memorised, ${percent(noisyFitted)} of the flipped labels included`;
  if (phase === "benign") return {badge: "holds", word: "benign", sentence: `${memorised}, and yet ${look}.`};
  if (phase === "harmful") return {badge: "fails", word: "harmful", sentence: `${memorised}; accuracy on fresh data has fallen to ${percent(accuracy)}, from ${percent(uniform)} before training; ${look}.`};
  return {badge: "outside", word: "selection still to come", sentence: `${memorised}; ${look}, and accuracy cannot tell: the head alone has ${percent(uniform)}.`};
}

const IN_A_RUN = {"does not overfit": "not overfitting", "selection still to come": "memorised", harmful: "harmful", benign: "benign"};

/** The whole run in words: which phase of most training sets begins when; every run begins by not overfitting. */
export function wholeRun(found, names, write) {
  const parts = found.slice(1).map(([phase, from], i) => `${IN_A_RUN[names[phase]]} from ${i === 0 ? "time " : ""}${write(from)}`);
  return `Whole run: ${parts.length ? parts.join(", ") : "not overfitting to the end"}.`;
}

/** 1000 steps of size 0.005, as log10. */
export const HEAT_MAP_TIME = Math.log10(5);

const percent = (share) => {
  const value = 100 * share;
  return value > 99 && value < 99.95 ? `${value.toFixed(1)}\u00a0%` : `${Math.round(value)}\u00a0%`;
};
