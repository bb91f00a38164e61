/** Five small signs in one style, 64 x 64: sample, head, pull, race, pair. At the head of chapters, in the table of notation, on the shelves. */
import {arrow, dot, line, rect, toSvg} from "./scene.js";

const GLYPHS = {
  sample: ["two arrows from one point: a short one and a long one", () => [
    arrow("long", 12, 48, 57, 27, {stroke: "noise", width: 3.5}), arrow("short", 12, 48, 12, 27, {stroke: "signal", width: 3.5, head: 2.8}), dot("origin", 12, 48, 3, {width: 0}),
  ]],
  head: ["a bar in two parts above a needle", () => [
    rect("s", 7, 14, 29, 14, {fill: "signal"}), rect("n", 36, 14, 21, 14, {fill: "noise"}), rect("frame", 7, 14, 50, 14, {fill: "none", stroke: "ink"}),
    line("floor", 7, 52, 57, 52, {stroke: "bound", width: 2}), arrow("needle", 32, 52, 45, 35, {stroke: "ink", width: 3}),
  ]],
  pull: ["many short arrows one way, one long arrow the other way", () => [
    ...[0, 1, 2, 3, 4].map((i) => arrow(`one${i}`, 54 - 9 * i, 21, 46.5 - 9 * i, 21, {stroke: "signal", width: 3.4, head: 2.2})),
    arrow("own", 12, 42, 38, 42, {stroke: "noise", width: 4, head: 2.8}), line("zero", 38, 12, 38, 54, {stroke: "ink", width: 1.5}),
  ]],
  race: ["two runners on two lanes", () => [
    line("lane1", 6, 22, 58, 22, {stroke: "rule", width: 9}), line("lane2", 6, 44, 58, 44, {stroke: "rule", width: 9}),
    ...[14, 24, 36].map((x, i) => dot(`foot${i}`, x, 22, 2.5, {fill: "signal", width: 0, opacity: 0.6})), dot("signal", 51, 22, 6.5, {fill: "signal"}),
    ...[12, 19].map((x, i) => dot(`print${i}`, x, 44, 2.5, {fill: "noise", width: 0, opacity: 0.6})), dot("noise", 29, 44, 6.5, {fill: "noise"}),
  ]],
  pair: ["rising bars above a line, falling bars below it", () => [
    ...[3, 5, 8, 12, 17, 24].map((h, i) => rect(`up${i}`, 8 + 8.4 * i, 31 - h, 6, h, {fill: "measured"})),
    ...[24, 17, 12, 8, 5, 3].map((h, i) => rect(`down${i}`, 8 + 8.4 * i, 34, 6, h, {fill: "bound"})), line("floor", 5, 32.5, 60, 32.5, {width: 1.5}),
  ]],
};

export const names = Object.keys(GLYPHS);
/** The marks of a glyph, for use in a larger drawing. */
export const marksOf = (name) => GLYPHS[name][1]();
/** The glyph as an SVG element in text. */
export const glyph = (name) => toSvg(marksOf(name), GLYPHS[name][0], {width: 64, height: 64});
