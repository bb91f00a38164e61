/**
 * The page that tells a story beside a drawing: the stage stays in view, the panel that is read is drawn on it.
 *
 * The page holds <div data-story> with the numbers as JSON, and one <div class="story-panel" data-panel="name"> in the section of every
 * panel, with its still picture. Still pictures remain for paper, and where this script does not run.
 */
import {controlsOf} from "./controls.js";
import {PANELS} from "./panels.js";
import {ROWS, prepare} from "./fresh.js";
import {nearest} from "./sample.js";
import {HEIGHT, WIDTH} from "./scene.js";
import {Stage} from "./stage.js";

function element(tag, className, parent, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  parent?.appendChild(node);
  return node;
}

class Story {
  constructor(root) {
    this.root = root;
    this.data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("class", "story-drawing");
    root.appendChild(svg);
    this.stage = new Stage(svg);
    this.panels = [...document.querySelectorAll(".story-panel")].map((place) => this.panel(place));
    this.makeWays();
    this.current = -1;
    root.dataset.state = "live";
    root.parentNode.classList.add("is-story");
    // Where a panel's heading comes to rest under a drawing that lies above it.
    new ResizeObserver(() => root.parentNode.style.setProperty("--story-room", `${root.offsetHeight}px`)).observe(root);
    const look = () => {
      delete root.dataset.drawn;
      this.waiting ||= requestAnimationFrame(() => {
        this.waiting = 0;
        this.follow();
        this.rest();
      });
    };
    window.addEventListener("scroll", look, {passive: true});
    window.addEventListener("resize", look);
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerdown", (event) => this.point(event));
    document.addEventListener("keydown", (event) => this.key(event));
    this.follow();
    this.rest();
    this.prepareMap();
  }

  /** The map of panel 5 costs a tenth of a second: row by row, while nothing else is to do. */
  prepareMap(row = 1) {
    const later = window.requestIdleCallback ?? ((task) => setTimeout(task, 50));
    later(() => {
      prepare(this.data.head, this.data.head.label_noise, row);
      if (row < ROWS) this.prepareMap(row + 1);
    });
  }

  /** A panel with its sliders, which stand in the text. */
  panel(place) {
    const name = place.dataset.panel;
    const controls = controlsOf(name, this.data);
    const panel = {name, section: place.closest("section"), state: undefined, controls};
    if (!controls) return panel;
    const box = element("div", "story-try screen-only");
    place.before(box);
    element("p", "story-invitation", box, controls.invitation);
    panel.inputs = {};
    for (const slider of controls.sliders) {
      const label = element("label", "story-slider", box);
      element("span", "", label, slider.label);
      const input = element("input", "", label);
      Object.assign(input, {type: "range", min: slider.min, max: slider.max, step: slider.step, value: slider.value});
      const output = element("output", "", label, slider.show(slider.read(slider.value)));
      input.setAttribute("aria-valuetext", output.textContent);
      input.addEventListener("input", () => {
        const value = slider.read(Number(input.value));
        output.textContent = slider.show(value);
        input.setAttribute("aria-valuetext", output.textContent);
        panel.state = {...(panel.state ?? this.first(panel)), [slider.key]: value};
        delete this.root.dataset.drawn;
        this.asked ||= requestAnimationFrame(() => {
          this.asked = 0;
          this.go(panel, false);
          this.rest();
        });
      });
      panel.inputs[slider.key] = {input, slider};
    }
    panel.said = element("p", "story-said", box);
    panel.said.setAttribute("role", "status");
    return panel;
  }

  /** Say on the page that all that was asked for is drawn. */
  rest() {
    if (!this.waiting && !this.asked) this.root.dataset.drawn = "";
  }

  first({controls}) {
    return Object.fromEntries(controls.sliders.map((slider) => [slider.key, slider.read(slider.value)]));
  }

  /** Draw a panel; a slider of a panel that is not the current one makes it current. */
  go(panel, move) {
    this.current = this.panels.indexOf(panel);
    const drawn = PANELS[panel.name](this.data, panel.state);
    this.stage.show(drawn, {move});
    this.root.dataset.panel = panel.name;
    if (panel.said && panel.state) panel.said.textContent = panel.controls.said(panel.state, drawn);
    this.place.textContent = `${this.current + 1} of ${this.panels.length}`;
    this.back.disabled = this.current === 0;
    this.on.disabled = this.current === this.panels.length - 1;
  }

  /** The line of the view that a panel's heading must have passed to be the one that is read. */
  line() {
    const {top, bottom, height} = this.root.getBoundingClientRect();
    const above = bottom < window.innerHeight * 0.75 && this.root.offsetWidth > 0.8 * this.root.parentNode.offsetWidth;
    return above ? Math.max(bottom, top + height) + 0.3 * (window.innerHeight - bottom) : 0.5 * window.innerHeight;
  }

  follow() {
    const line = this.line();
    let now = 0;
    this.panels.forEach(({section}, i) => {
      if (section.getBoundingClientRect().top < line) now = i;
    });
    if (now !== this.current) this.go(this.panels[now], this.current >= 0);
  }

  point(event) {
    const panel = this.panels[this.current];
    if (panel.name !== "sample") return;
    const box = this.stage.svg.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) * WIDTH) / box.width, ((event.clientY - box.top) * HEIGHT) / box.height];
    if (y > 0.8 * HEIGHT) return;
    const {input} = panel.inputs.look;
    input.value = nearest(this.data.head, x, y) + 1;
    input.dispatchEvent(new Event("input"));
  }

  makeWays() {
    const ways = element("div", "story-ways", this.root);
    const button = (text, label, by) => {
      const node = element("button", "story-way", ways, text);
      node.type = "button";
      node.setAttribute("aria-label", label);
      node.addEventListener("click", () => this.jump(by));
      return node;
    };
    this.back = button("\u2190", "Previous panel", -1);
    this.place = element("span", "story-place", ways);
    this.on = button("\u2192", "Next panel", 1);
  }

  jump(by) {
    const panel = this.panels[this.current + by];
    if (!panel) return;
    const heading = panel.section.querySelector("h2");
    panel.section.scrollIntoView({block: "start", behavior: this.stage.calm.matches ? "auto" : "smooth"});
    heading.tabIndex = -1;
    heading.focus({preventScroll: true});
  }

  /** Left and right arrows go from panel to panel, unless something else wants them. */
  key(event) {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest?.("input, select, textarea, [role=slider], dialog, .explorer")) return;
    event.preventDefault();
    this.jump(by);
  }
}

function start() {
  const root = document.querySelector("[data-story]");
  if (!root || root.dataset.state) return;
  try {
    new Story(root);
  } catch (error) {
    console.error(error);
    root.dataset.state = "failed";
    root.parentNode.classList.remove("is-story");
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
