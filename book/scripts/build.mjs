/**
 * Bundle explorers: `node book/scripts/build.mjs [NAME ...]` writes book/assets/explorers/NAME.js, all of them without a name.
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

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = dirname(dirname(HERE));
const OUT = join(ROOT, "book", "assets", "explorers");
const LIMIT = 150_000;

/** Names of all explorers: folders that hold a view.js. */
export function names() {
  return readdirSync(HERE)
    .filter((name) => existsSync(join(HERE, name, "view.js")))
    .sort();
}

/** Hash of what makes a bundle: its own sources, the shared module, this file and the pinned packages. */
export function sourceHash(name) {
  if (!names().includes(name)) return "none";
  const scripts = (folder) =>
    readdirSync(join(HERE, folder))
      .filter((file) => file.endsWith(".js"))
      .map((file) => `book/scripts/${folder}/${file}`);
  const paths = ["book/scripts/build.mjs", "package-lock.json", ...scripts("shared"), ...scripts(name)].sort();
  const hash = createHash("sha256");
  for (const path of paths)
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(ROOT, path)))
      .update("\0");
  return hash.digest("hex").slice(0, 16);
}

/** The bundle's text; `entry` for a view that lies elsewhere (tests). */
export async function bundle(name, entry = join(HERE, name, "view.js")) {
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

async function main(args) {
  if (args[0] === "--from" && args[2] === "--to" && args.length === 4) {
    writeFileSync(args[3], await bundle(basename(args[3], ".js"), resolve(args[1])));
    return 0;
  }
  const check = args.includes("--check");
  const wanted = args.filter((argument) => !argument.startsWith("--"));
  const unknown = wanted.filter((name) => !names().includes(name));
  if (unknown.length) {
    console.error(`error: no explorer called ${unknown.join(", ")}; there are ${names().join(", ") || "none"}`);
    return 2;
  }
  let status = 0;
  mkdirSync(OUT, {recursive: true});
  for (const name of wanted.length ? wanted : names()) {
    const text = await bundle(name);
    const path = join(OUT, `${name}.js`);
    if (text.length > LIMIT) {
      console.error(`error: ${name}.js has ${text.length} bytes; at most ${LIMIT} are allowed`);
      status = 1;
    } else if (check) {
      if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
        console.error(`error: ${name}.js is not what its sources give: run node book/scripts/build.mjs ${name}`);
        status = 1;
      }
    } else {
      writeFileSync(`${path}.tmp`, text);
      renameSync(`${path}.tmp`, path); // a reader sees the old file or the new one
      console.log(`${path.slice(ROOT.length + 1)}  ${text.length} bytes`);
    }
  }
  return status;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
