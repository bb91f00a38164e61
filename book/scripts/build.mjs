/**
 * Bundle explorers: `node book/scripts/build.mjs [NAME ...]` writes book/assets/explorers/NAME.js, all of them without a name. The page that
 * tells a story is bundled in the same way, into book/assets/story/story.js, and its still pictures are drawn.
 * `--check` writes nothing and fails where a bundle is not what its sources give; `--from VIEW.js --to FILE` bundles a view
 * that lies elsewhere. Needs `npm ci`; readers need none of it.
 *
 * A bundle is one classic script (pages are also opened from disk) in the syntax of 2018; where a browser cannot read it,
 * the still picture stays. Its first line holds the hash of its sources, so that a stale bundle is found without Node
 * (tests/explorers/test_bundles.py).
 */
import {createHash} from "node:crypto";
import {existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync} from "node:fs";
import {basename, dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";
import {build} from "esbuild";
import {stills} from "./story/stills.js";

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = dirname(dirname(HERE));
const ASSETS = join(ROOT, "book", "assets");
const LIMIT = 150_000;

/** What is bundled beside the explorers: its entry, where it goes, and whose formulas it shares. */
const STORY = {entry: "page.js", folder: "story", shares: ["long_run", "two_steps"]};
const EXPLORER = {entry: "view.js", folder: "explorers", shares: []};
const kindOf = (name) => (name === "story" ? STORY : EXPLORER);

/** Names of all explorers: folders that hold a view.js. */
export function names() {
  return readdirSync(HERE)
    .filter((name) => existsSync(join(HERE, name, "view.js")))
    .sort();
}

const known = () => [...names(), "story"];

/** Hash of what makes a bundle: its own sources, the shared module, this file and the pinned packages. */
export function sourceHash(name) {
  if (!known().includes(name)) return "none";
  const scripts = (folder) =>
    readdirSync(join(HERE, folder))
      .filter((file) => file.endsWith(".js"))
      .map((file) => `book/scripts/${folder}/${file}`);
  const folders = ["shared", name, ...kindOf(name).shares];
  const paths = ["book/scripts/build.mjs", "package-lock.json", ...folders.flatMap(scripts)].sort();
  const hash = createHash("sha256");
  for (const path of paths)
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(ROOT, path)))
      .update("\0");
  return hash.digest("hex").slice(0, 16);
}

/** The bundle's text; `entry` for a view that lies elsewhere (tests). */
export async function bundle(name, entry = join(HERE, name, kindOf(name).entry)) {
  const result = await build({
    entryPoints: [entry],
    absWorkingDir: ROOT,
    bundle: true,
    write: false,
    format: "iife",
    target: "es2018",
    charset: "ascii",
    minify: true,
    legalComments: "none",
    banner: {
      js:
        `/* explorer ${name}; sources ${sourceHash(name)}; made by book/scripts/build.mjs; holds parts of D3, ` +
        "(c) 2010-2023 Mike Bostock, ISC licence */",
    },
    logLevel: "warning",
  });
  return result.outputFiles[0].text;
}

/** Write a file, or with `check` say that it is not `text`; returns 1 for that. */
function keep(path, text, check, name = "story") {
  if (check) {
    if (existsSync(path) && readFileSync(path, "utf8") === text) return 0;
    console.error(`error: ${basename(path)} is not what its sources give: run node book/scripts/build.mjs ${name}`);
    return 1;
  }
  writeFileSync(`${path}.tmp`, text);
  renameSync(`${path}.tmp`, path); // a reader sees the old file or the new one
  console.log(`${path.slice(ROOT.length + 1)}  ${text.length} bytes`);
  return 0;
}

async function main(args) {
  if (args[0] === "--from" && args[2] === "--to" && args.length === 4) {
    writeFileSync(args[3], await bundle(basename(args[3], ".js"), resolve(args[1])));
    return 0;
  }
  const check = args.includes("--check");
  const wanted = args.filter((argument) => !argument.startsWith("--"));
  const unknown = wanted.filter((name) => !known().includes(name));
  if (unknown.length) {
    console.error(`error: no explorer called ${unknown.join(", ")}; there are ${known().join(", ")}`);
    return 2;
  }
  let status = 0;
  for (const name of wanted.length ? wanted : known()) {
    const text = await bundle(name);
    const folder = join(ASSETS, kindOf(name).folder);
    const path = join(folder, `${name}.js`);
    mkdirSync(folder, {recursive: true});
    if (name === "story") for (const [file, drawn] of Object.entries(stills())) status |= keep(join(folder, file), drawn, check);
    if (text.length > LIMIT) {
      console.error(`error: ${name}.js has ${text.length} bytes; at most ${LIMIT} are allowed`);
      status = 1;
    } else status |= keep(path, text, check, name);
  }
  return status;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
