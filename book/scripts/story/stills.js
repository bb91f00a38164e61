/** Still pictures, by the same drawing code as the live page: for paper, and where no script runs. Written by build.mjs. */
import {readFileSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";
import {FRAMES, front, HEIGHT, WIDTH} from "./front.js";
import {glyph, names} from "./glyphs.js";
import {models} from "./models.js";
import {PANELS} from "./panels.js";
import {toSvg} from "./scene.js";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "assets", "story");
const read = (name) => JSON.parse(readFileSync(join(FOLDER, name), "utf8"));

/** File name -> text of every still picture. */
export function stills() {
  const [data, all] = [read("run.json"), read("front.json")];
  const panels = Object.entries(PANELS).map(([name, draw]) => {
    const {marks, says} = draw(data);
    return [`panel-${name}.svg`, toSvg(marks, says)];
  });
  for (const [name, step] of Object.entries(FRAMES)) {
    const {marks, says} = front(data, all, step);
    panels.push([`panel-${name}.svg`, toSvg(marks, says, {width: WIDTH, height: HEIGHT})]);
  }
  const {marks, says, height} = models();
  panels.push(["panel-models.svg", toSvg(marks, says, {height})]);
  return Object.fromEntries([...panels, ...names.map((name) => [`glyph-${name}.svg`, glyph(name)])]);
}
