/** Still pictures, by the same drawing code as the live page: for paper, and where no script runs. Written by build.mjs. */
import {readFileSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";
import {glyph, names} from "./glyphs.js";
import {models} from "./models.js";
import {PANELS} from "./panels.js";
import {toSvg} from "./scene.js";

const RUN = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "assets", "story", "run.json");

/** File name -> text of every still picture. */
export function stills() {
  const data = JSON.parse(readFileSync(RUN, "utf8"));
  const panels = Object.entries(PANELS).map(([name, draw]) => {
    const {marks, says} = draw(data);
    return [`panel-${name}.svg`, toSvg(marks, says)];
  });
  const {marks, says, height} = models();
  panels.push(["panel-models.svg", toSvg(marks, says, {height})]);
  return Object.fromEntries([...panels, ...names.map((name) => [`glyph-${name}.svg`, glyph(name)])]);
}
