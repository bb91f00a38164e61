/**
 * Evaluate an explorer's formulas outside the browser: `node book/scripts/evaluate.mjs NAME` reads
 * [{"function": name, "arguments": object}, ...] from stdin and prints the list of results as JSON. Numbers that JSON
 * lacks travel as the strings "nan", "inf" and "-inf", both ways. tests/explorers compare the results with attnlib.
 */
import {readFileSync} from "node:fs";

const SPECIAL = {nan: NaN, inf: Infinity, "-inf": -Infinity};

function encode(value) {
  if (typeof value === "number")
    return Number.isFinite(value) ? value : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (ArrayBuffer.isView(value)) return Array.from(value, encode);
  if (Array.isArray(value)) return value.map(encode);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, encode(one)]));
  return value;
}

const decode = (key, value) => (typeof value === "string" && value in SPECIAL ? SPECIAL[value] : value);

const [name] = process.argv.slice(2);
if (!/^[a-z0-9_]+$/.test(name ?? "")) {
  console.error("usage: node book/scripts/evaluate.mjs NAME < calls.json");
  process.exit(2);
}
const {functions} = await import(name === "shared" ? "./shared/functions.js" : `./${name}/model.js`);
const calls = JSON.parse(readFileSync(0, "utf8"), decode);
const results = calls.map(({function: called, arguments: given}) => {
  if (!Object.hasOwn(functions, called)) {
    console.error(`error: ${name} has no function ${called}; there are ${Object.keys(functions).join(", ")}`);
    process.exit(2);
  }
  return encode(functions[called](given));
});
process.stdout.write(JSON.stringify(results));
