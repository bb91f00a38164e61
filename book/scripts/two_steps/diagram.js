/** The diagram behind the point: which cells, which colours, computed coarsely at once and finely when there is time. */
import {scaleLinear} from "d3-scale";
import {BENIGN_BELOW, diagramRows} from "./mean_field.js";

const N_SNR2 = [0.0072, 450]; // the page's SNR axis at n = 200, as n SNR^2
const DECADE = 10; // by which the axis grows when the point lies beyond it
export const STEPS = [0.1, 60]; // beta d / n
const COARSE = [24, 18];
const FINE = [84, 60];
const SLICE = 8; // milliseconds of computing between two looks at the reader

/** Centres and edges of `count` cells that are equally wide on a log scale. */
export function cells([low, high], count) {
  const ratio = (high / low) ** (1 / count);
  return {
    edges: Array.from({length: count + 1}, (_, i) => low * ratio ** i),
    centres: Array.from({length: count}, (_, i) => low * ratio ** (i + 0.5)),
  };
}

/** Ends of the SNR axis, as n SNR^2: the page's, and as many decades more as the point needs. */
export function ends({n, d, signal_norm}) {
  let [low, high] = N_SNR2;
  const own = (n * signal_norm ** 2) / d;
  while (own < 1.5 * low) low /= DECADE;
  while (own > high / 1.5) high *= DECADE;
  return [low, high];
}

/** Edges of cells around given centres on a log scale. */
export const edgesOf = (centres) => {
  const inner = centres.slice(1).map((one, i) => Math.sqrt(one * centres[i]));
  return [centres[0] ** 2 / inner[0], ...inner, centres[centres.length - 1] ** 2 / inner[inner.length - 1]];
};

/** The same on light and on dark paper: "pale" and "the stronger the blue" are words of the text. */
export const PHASES = {
  unfitted: "#efede2",
  harmful: "#e8853d",
  undecided: "#c4c4c4",
  benign: ["#d6e8f5", "#93c1e0", "#4d98ca", "#0072B2", "#064a78"],
};

/** Colour of -log10 of the clean error: NaN is not fitted, below 1 harmful, then ever stronger blue on a log scale. */
export function phaseColours() {
  const {unfitted, harmful, benign} = PHASES;
  const domain = [-BENIGN_BELOW, 1000];
  const position = scaleLinear()
    .domain(benign.map((_, i) => i / (benign.length - 1)))
    .range(benign)
    .clamp(true);
  const colour = (value) => {
    if (Number.isNaN(value)) return unfitted;
    return value < domain[0] ? harmful : position(Math.log(value / domain[0]) / Math.log(domain[1] / domain[0]));
  };
  return Object.assign(colour, {domain, scale: "log"});
}

/** Computes diagrams one after the other; the newest request wins. */
export class DiagramComputer {
  /** @param {(diagram: object) => void} done called with {snr, steps, error, margin, strength} when a fine diagram is whole */
  constructor(done) {
    this.done = done;
    this.timer = 0;
  }

  static grid(setting, [columns, rows]) {
    const snr = cells(
      ends(setting).map((one) => Math.sqrt(one / setting.n)),
      columns,
    );
    return {snr, steps: cells(STEPS, rows)};
  }

  /** A coarse diagram at once; the fine one follows after `wait` milliseconds without another request. */
  request(setting, wait = 180) {
    clearTimeout(this.timer);
    const grid = DiagramComputer.grid(setting, COARSE);
    this.timer = setTimeout(() => this.refine(setting), wait);
    return {...grid, ...diagramRows({...setting, snr: grid.snr.centres, steps: grid.steps.centres})};
  }

  refine(setting) {
    const grid = DiagramComputer.grid(setting, FINE);
    const found = {error: [], margin: [], strength: []};
    const slice = () => {
      const until = performance.now() + SLICE;
      while (found.error.length < FINE[1] && performance.now() < until) {
        const row = found.error.length;
        const more = diagramRows({
          ...setting,
          snr: grid.snr.centres,
          steps: grid.steps.centres,
          rows: [row, row + 1],
          tolerance: 1e-4,
        });
        for (const name of Object.keys(found)) found[name].push(...more[name]);
      }
      if (found.error.length < FINE[1]) this.timer = setTimeout(slice, 0);
      else this.done({...grid, ...found});
    };
    slice();
  }
}
