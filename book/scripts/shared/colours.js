/**
 * Colours mean the same on every page: the names are those of bookkit.figures.COLOURS, the values come from the page's
 * style sheet (--book-clean and so on, light and dark); the fallback is attnlib's own value.
 */
import {scaleLinear} from "d3-scale";

// Written out: a property that no page and no script names is left out of the built style sheet.
const NAMED = {
  clean: "var(--book-clean, #0072B2)",
  noisy: "var(--book-noisy, #D55E00)",
  signal: "var(--book-signal, #009E73)",
  noise: "var(--book-noise, #CC79A7)",
  theory: "var(--book-theory, #222222)",
  measured: "var(--book-measured, #56B4E9)",
  bound: "var(--book-bound, #777777)",
};

/** A CSS colour: one of the names above, or any CSS colour as it is. */
export const css = (colour) => NAMED[colour] ?? colour;

const RAMPS = {
  // Light to dark in one hue, for shares and amounts (attnlib's blue).
  blues: ["#f4f8fb", "#cfe3f1", "#93c1e0", "#4d98ca", "#0072B2", "#064a78"],
  // Even in lightness and for colour-blind readers (cividis).
  cividis: ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"],
  // Two sides of a boundary: noisy's orange, paper, clean's blue.
  sides: ["#8f3f00", "#D55E00", "#f0b48a", "#f7f5f2", "#93c1e0", "#0072B2", "#004a75"],
};

/**
 * A colour for every value between the ends of `domain`, for heat maps and their bar.
 * @param {"blues"|"cividis"|"sides"} name
 * @param {[number, number]} domain values outside take the colour of the end
 * @param {{scale?: "linear"|"log"}} [options]
 * @returns {((value: number) => string) & {domain: [number, number], scale: string}} NaN is transparent
 */
export function ramp(name, domain, {scale = "linear"} = {}) {
  const colours = RAMPS[name];
  const position = scale === "log" ? Math.log : (value) => value;
  const [low, high] = domain.map(position);
  const paint = scaleLinear()
    .domain(colours.map((_, i) => i / (colours.length - 1)))
    .range(colours)
    .clamp(true);
  const steps = Array.from({length: 513}, (_, i) => paint(i / 512)); // painted once: a heat map asks thousands of times
  const colour = (value) => {
    const share = (position(value) - low) / (high - low);
    return Number.isNaN(share) ? "transparent" : steps[Math.round(512 * Math.min(1, Math.max(0, share)))];
  };
  return Object.assign(colour, {domain, scale});
}
