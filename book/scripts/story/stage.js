/**
 * The drawing that stays in view: marks on an SVG element of the page. What both drawings hold moves from the old to the new place, what is
 * new appears, what is gone fades. Readers who want no motion see the new drawing at once.
 */
const SVG = "http://www.w3.org/2000/svg";
const TIME = 650; // ms
const NUMBERS = /-?\d+(?:\.\d+)?/g;
const MOVING = new Set(["d", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "opacity", "stroke-width", "stroke-dasharray", "font-size", "transform"]);

const ease = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);

/** (t) => text between two attribute values that differ in their numbers alone; null where they differ in more. */
export function between(from, to) {
  const [a, b] = [String(from), String(to)];
  const [first, last] = [a.match(NUMBERS) ?? [], b.match(NUMBERS) ?? []];
  if (!last.length || first.length !== last.length || a.replace(NUMBERS, "#") !== b.replace(NUMBERS, "#")) return null;
  return (t) => {
    let i = 0;
    return b.replace(NUMBERS, () => {
      const value = Number(first[i]) + t * (Number(last[i]) - Number(first[i]));
      i += 1;
      return String(Math.round(value * 1000) / 1000);
    });
  };
}

export class Stage {
  /** `svg`: an empty element with a view box. */
  constructor(svg) {
    this.svg = svg;
    this.nodes = new Map(); // key -> {node, at, text}
    this.frame = 0;
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  }

  /** Show a drawing; `move`: over some time, unless the reader wants no motion. */
  show({marks, says}, {move = false} = {}) {
    this.finish();
    this.svg.setAttribute("aria-label", says);
    const moving = move && !this.calm.matches;
    const changes = [];
    const gone = new Map(this.nodes);
    const now = new Map();
    for (const {tag, key, at, text} of marks) {
      const old = this.nodes.get(key);
      if (old && old.node.tagName === tag) {
        gone.delete(key);
        this.change(old, at, moving ? changes : null);
        if (old.text !== text) old.node.textContent = text ?? "";
        now.set(key, {node: old.node, at, text});
      } else {
        const node = document.createElementNS(SVG, tag);
        for (const [name, value] of Object.entries(at)) if (value !== undefined) node.setAttribute(name, value);
        if (text !== undefined) node.textContent = text;
        if (moving) {
          node.style.opacity = "0"; // the style lies over the mark's own opacity, and is taken away at the end
          changes.push({step: (t) => (node.style.opacity = String(Math.max(0, 2 * t - 1) * (at.opacity ?? 1))), end: () => (node.style.opacity = "")});
        }
        now.set(key, {node, at, text});
      }
    }
    for (const {node, at} of gone.values()) {
      if (moving) changes.push({step: (t) => (node.style.opacity = String(Math.max(0, 1 - 2 * t) * (at.opacity ?? 1))), end: () => node.remove()});
      else node.remove();
    }
    // In the order of the drawing: what comes later lies above.
    for (const {node} of now.values()) this.svg.appendChild(node);
    this.nodes = now;
    this.changes = changes;
    if (changes.length) this.run();
  }

  change(old, at, changes) {
    const {node} = old;
    for (const name of new Set([...Object.keys(old.at), ...Object.keys(at)])) {
      const [from, to] = [old.at[name], at[name]];
      if (from === to) continue;
      if (to === undefined) node.removeAttribute(name);
      else {
        const path = changes && from !== undefined && MOVING.has(name) ? between(from, to) : null;
        if (path) changes.push({step: (t) => node.setAttribute(name, path(t)), end: () => node.setAttribute(name, to)});
        else node.setAttribute(name, to);
      }
    }
  }

  run() {
    const start = performance.now();
    const next = (now) => {
      const t = Math.min(1, Math.max(0, (now - start) / TIME));
      if (t === 1) return void this.finish();
      for (const {step} of this.changes) step(ease(t));
      this.frame = requestAnimationFrame(next);
    };
    this.frame = requestAnimationFrame(next);
  }

  /** To the end of a motion at once. */
  finish() {
    cancelAnimationFrame(this.frame);
    for (const {end} of this.changes ?? []) end();
    this.changes = [];
  }
}
