/** Panel 9: four shelves, and on each the signs of what was seen. */
import {marksOf} from "./glyphs.js";
import {line, words} from "./scene.js";

// Which sign lies where; the text beside the drawing says why, with links.
export const SHELVES = [
  ["published", ["sample", "head", "pair"]],
  ["derived here", ["pull", "race"]],
  ["measured here", ["race", "pair"]],
  ["open", ["head"]],
];

export function shelves() {
  const marks = [];
  SHELVES.forEach(([name, signs], i) => {
    const y = 84 + 84 * i;
    marks.push(words(`shelf${i}`, 18, y - 12, name, {size: 18, weight: 600}), line(`board${i}`, 14, y, 466, y, {stroke: "bound", width: 3}));
    signs.forEach((sign, k) =>
      marksOf(sign).forEach((one) =>
        marks.push({...one, key: `${i}${k}${one.key}`, at: {...one.at, transform: `translate(${216 + 86 * k} ${y - 66})`, opacity: i === 3 ? 0.45 : one.at.opacity}}),
      ),
    );
  });
  return {marks, says: "Four shelves. " + SHELVES.map(([name, signs]) => `${name}: ${signs.join(", ")}`).join("; ") + "."};
}
