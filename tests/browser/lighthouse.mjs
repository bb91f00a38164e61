/* Lighthouse over pages of the built book, offline: node tests/browser/lighthouse.mjs CHROMIUM mobile|desktop URL...
 *
 * Prints one JSON object per page and line: {url, form, scores: {category: 0..100}, metrics: {audit: value},
 * failed: [audit: what it found, ...]}. "mobile" is Lighthouse's default: a mid-range phone on slow 4G, both simulated.
 */
import { launch } from "chrome-launcher";
import lighthouse, { desktopConfig } from "lighthouse";

const METRICS = ["first-contentful-paint", "largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift", "speed-index", "total-byte-weight"];
const CATEGORIES = ["performance", "accessibility", "best-practices"];
const [chromium, form, ...urls] = process.argv.slice(2);

/** Audits of the two categories that hold yes-or-no checks, and what each one found. */
function failures({ audits, categories }) {
  const checks = ["accessibility", "best-practices"].flatMap((name) => categories[name].auditRefs.map(({ id }) => audits[id]));
  const found = checks.filter(({ score, scoreDisplayMode }) => scoreDisplayMode === "binary" && score === 0);
  return found.map(({ id, details }) => `${id}: ${(details?.items ?? []).slice(0, 3).map((item) => JSON.stringify(item).slice(0, 300)).join("; ")}`);
}

const chrome = await launch({ chromePath: chromium, chromeFlags: ["--headless=new", "--no-sandbox", "--disable-gpu"] });
try {
  for (const url of urls) {
    const options = { port: chrome.port, onlyCategories: CATEGORIES, logLevel: "error", output: [] };
    const { lhr } = await lighthouse(url, options, form === "desktop" ? desktopConfig : undefined);
    if (lhr.runtimeError) throw new Error(`${url}: ${lhr.runtimeError.message}`);
    const scores = Object.fromEntries(CATEGORIES.map((name) => [name, Math.round(100 * lhr.categories[name].score)]));
    const metrics = Object.fromEntries(METRICS.map((name) => [name, lhr.audits[name].numericValue]));
    console.log(JSON.stringify({ url, form, scores, metrics, failed: failures(lhr) }));
  }
} finally {
  await chrome.kill();
}
