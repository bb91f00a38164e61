/* Lighthouse over pages of the built book, offline: node tests/browser/lighthouse.mjs CHROMIUM craft|performance URL...
 *
 * Prints one JSON object per page and line: {url, kind, scores: {category: 0..100}, metrics: {audit: value},
 * failed: [audit: what it found, ...]}. The device is Lighthouse's default: a mid-range phone on slow 4G, both simulated.
 */
import { launch } from "chrome-launcher";
import lighthouse from "lighthouse";

const KINDS = {
  craft: { onlyCategories: ["accessibility", "best-practices"], onlyAudits: ["cumulative-layout-shift"] },
  performance: { onlyCategories: ["performance"] },
};
const METRICS = ["first-contentful-paint", "largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift", "speed-index", "total-byte-weight"];
const PATIENCE = 300_000; // ms, for a page to load on a busy machine
const [chromium, kind, ...urls] = process.argv.slice(2);
if (!(kind in KINDS)) throw new Error(`expected one of ${Object.keys(KINDS)}; got ${kind}`);

/** Audits that hold yes-or-no checks, and what each one found. */
function failures({ audits }) {
  const found = Object.values(audits).filter(({ score, scoreDisplayMode }) => scoreDisplayMode === "binary" && score === 0);
  return found.map(({ id, details }) => `${id}: ${(details?.items ?? []).slice(0, 3).map((item) => JSON.stringify(item).slice(0, 300)).join("; ")}`);
}

const chrome = await launch({ chromePath: chromium, chromeFlags: ["--headless=new", "--no-sandbox", "--disable-gpu"] });
try {
  for (const url of urls) {
    const options = { port: chrome.port, logLevel: "error", output: [], maxWaitForLoad: PATIENCE, maxWaitForFcp: PATIENCE, ...KINDS[kind] };
    const { lhr } = await lighthouse(url, options);
    if (lhr.runtimeError) throw new Error(`${url}: ${lhr.runtimeError.message}`);
    const scores = Object.fromEntries(KINDS[kind].onlyCategories.map((name) => [name, Math.round(100 * lhr.categories[name].score)]));
    const metrics = Object.fromEntries(METRICS.filter((name) => name in lhr.audits).map((name) => [name, lhr.audits[name].numericValue]));
    console.log(JSON.stringify({ url, kind, scores, metrics, failed: failures(lhr) }));
  }
} finally {
  await chrome.kill();
}
