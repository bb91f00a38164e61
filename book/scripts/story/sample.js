/** Panel 1: all training samples as two arrows each. Lengths are those of the run; on paper the long arrows can only fan out. */
import {arrow, dot, path, round, words} from "./scene.js";

const SCALE = 1.04; // px for a unit of length
const [X, Y] = [232, 274];

/** Where sample i lies in the fan: class +1 to the right, class -1 to the left, each in the order of its numbers. */
export function angleOf(head, i) {
  const first = head.of_first_class[i] === "1";
  let [rank, count] = [0, 0];
  for (let k = 0; k < head.n; k += 1) {
    if ((head.of_first_class[k] === "1") !== first) continue;
    if (k < i) rank += 1;
    count += 1;
  }
  const turn = (84 - (80 * (rank + 0.5)) / count) * (Math.PI / 180);
  return first ? turn : Math.PI - turn;
}

const tip = (head, i, beyond = 0) => {
  const angle = angleOf(head, i);
  const length = SCALE * head.lengths[i] + beyond;
  return [X + length * Math.cos(angle), Y - length * Math.sin(angle)];
};

/** The sample whose tip is nearest to a point of the drawing. */
export function nearest(head, x, y) {
  const away = (i) => {
    const wanted = Math.atan2(Y - y, x - X);
    return Math.abs(angleOf(head, i) - wanted);
  };
  let best = 0;
  for (let i = 1; i < head.n; i += 1) if (away(i) < away(best)) best = i;
  return best;
}

/** "Sample 57: class -1, label -1, long arrow 200.4." */
export function inWords(head, i) {
  const side = head.of_first_class[i] === "1" ? "+1" : "\u22121";
  const wrong = head.flipped.includes(i);
  const label = wrong ? (side === "+1" ? "\u22121, which is wrong" : "+1, which is wrong") : side;
  return `Sample ${i + 1}: class ${side}, label ${label}. Its own arrow is ${head.lengths[i].toFixed(1)} long, the shared one ${head.signal_length}.`;
}

export function sample({head}, {look = null} = {}) {
  const marks = [];
  const [clean, flipped] = head.followed;
  const others = head.lengths.map((_, i) => i).filter((i) => i !== clean && i !== flipped);
  const at = (i) => tip(head, i).map(round);
  const wrong = others.filter((i) => head.flipped.includes(i));
  marks.push(path("rays", others.map((i) => `M${X} ${Y}L${at(i).join(" ")}`).join(""), {stroke: "noise", width: 0.7, opacity: 0.55}));
  marks.push({...path("tips", others.map((i) => `M${at(i).join(" ")}h0`).join(""), {stroke: "clean", width: 3.6})});
  marks[marks.length - 1].at["stroke-linecap"] = "round";
  for (const i of wrong) marks.push(dot(`tip${i}`, ...tip(head, i), 4.5, {fill: "noisy", width: 1.2}));
  const leg = head.signal_length * SCALE * Math.SQRT1_2;
  marks.push(arrow("signal2", X, Y, X - leg, Y + leg, {stroke: "signal", width: 3, opacity: 0.45}));
  marks.push(arrow("signalA", X, Y, X + leg, Y + leg, {stroke: "signal", width: 4}));
  marks.push(words("short", X + leg + 10, Y + leg + 4, `the shared arrow: ${head.signal_length}`));
  marks.push(words("minus", 22, Y + 62, "class \u22121", {fill: "quiet"}));
  marks.push(words("plus", 442, Y + 62, "class +1", {fill: "quiet", anchor: "end"}));
  for (const [i, kind, fill] of [[clean, "A", "clean"], [flipped, "B", "noisy"]]) {
    const [x, y] = tip(head, i);
    marks.push(arrow(`noise${kind}`, X, Y, x, y, {stroke: "noise", width: 3.4}));
    marks.push(dot(`face${kind}`, ...tip(head, i, 9), 7, {fill, width: 2}));
  }
  const [ax, ay] = tip(head, clean, 9);
  const [bx, by] = tip(head, flipped, 9);
  const long = (i) => head.lengths[i].toFixed(0);
  marks.push(words("nameA", ax + 13, ay - 4, `clean: ${long(clean)}`, {weight: 600}));
  marks.push(words("nameB", bx + 12, by - 10, "flipped:", {weight: 600}), words("longB", bx + 14, by + 8, long(flipped), {weight: 600}));
  if (look !== null) {
    const [x, y] = tip(head, look);
    marks.push(arrow("look", X, Y, x, y, {stroke: "ink", width: 2.4}));
  }
  return {
    marks,
    says:
      `A fan of ${head.n} long thin arrows from one point, half of them to the right, half to the left, all nearly ${head.lengths[clean].toFixed(0)} long. ` +
      `Below it two short arrows of length ${head.signal_length}, one for each class. One clean and one flipped sample of class +1 are drawn strongly.`,
  };
}
