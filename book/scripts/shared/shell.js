/**
 * The shell of an explorer: controls, plots, values and a sentence in words around one function `update`.
 *
 *     mount("two_steps", {
 *       controls: [...],                      see controls.js
 *       data: true,      window.attentionCheckedData.two_steps is needed; without it, a sentence and the still picture
 *       plots: [{key, label, title, height, x: {label, scale, domain}, y: {...}, wide, square}],      see plot.js
 *       values: [{key, label, digits | format: (value) => text}],
 *       command: (state) => "python -m attnlib rerun ...",    the command that runs the same point (optional)
 *       setup({plots, data, set, state}) {},  once, before the first update (optional): what never changes
 *       update(state, {plots, values, say, data, set, changed}) {
 *         plots.map.lines([...]);
 *         values({margin: 0.25});             shown with `digits`; data-number holds every digit
 *         say("The head memorises.", {badge: "fails", word: "memorises"});      badge: "holds" | "fails" | "outside"
 *       },
 *     });
 *
 * `update` runs once per animation frame at most and measures nothing on the page. `set({key: value})` moves controls:
 * values are held within their limits and rounded to what a slider would give (a dragged point has no more digits than
 * that). `changed` is the set of keys that changed since the last update, all of them at the first. Labels may hold <i>,
 * <sub>, <sup>.
 * Within another page, `data-page` leads to the explorer's own: links go there, and this page's address is left alone.
 * If `update` throws, its message is shown as a sentence instead of the picture until the next good setting.
 */
import {copy, linkTo, readAddress, writeAddress} from "./address.js";
import {makeControl} from "./controls.js";
import {number, rounded} from "./format.js";
import {Plot} from "./plot.js";
import {fillHtml} from "./rich.js";
import {keepStillForPaper, stayStill} from "./still.js";

// Whole names: a class that no page and no script holds is left out of the built style sheet.
const BADGES = {holds: "verdict verdict-holds", fails: "verdict verdict-fails", outside: "verdict verdict-outside"};

function element(name, className, parent) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (parent) parent.appendChild(node);
  return node;
}

/** Bring the explorer called `name` to life in every `<div data-explorer="name">` of the page. */
export function mount(name, spec) {
  const start = () => {
    for (const root of document.querySelectorAll(`[data-explorer="${name}"]`)) {
      if (!root.dataset.state) bringToLife(root, name, spec);
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
}

function bringToLife(root, name, spec) {
  const data = spec.data ? window.attentionCheckedData?.[name] : undefined;
  if (spec.data && !data) {
    stayStill(
      root,
      "no-data",
      `The data of this explorer did not arrive (the file ${name}.js in explorers/data beside the page's scripts), ` +
        "so the picture stays still. Reload the page, or build the book again.",
    );
    return;
  }
  try {
    new Explorer(root, spec, data);
  } catch (error) {
    console.error(error);
    root.querySelector(".explorer-live")?.remove();
    stayStill(root, "failed", `This explorer could not start (${error.message}), so the picture stays still.`);
  }
}

class Explorer {
  constructor(root, spec, data) {
    Object.assign(this, {root, spec, data, changed: new Set(), frame: 0, sentenceRoom: 0});
    this.state = Object.fromEntries(spec.controls.map(({key, value}) => [key, value]));
    this.live = root.insertBefore(element("div", "explorer-live"), root.querySelector(".explorer-more"));
    this.sentence = element("p", "explorer-verdict", this.live);
    this.trouble = element("p", "explorer-trouble", this.live);
    this.trouble.setAttribute("role", "alert");
    this.plotsNode = element("div", "explorer-plots", this.live);
    this.plots = {};
    for (const one of spec.plots) {
      const plot = (this.plots[one.key] = new Plot(this.plotsNode, one));
      if (one.wide) plot.node.classList.add("is-wide");
    }
    this.makeControls();
    this.makeValues();
    this.makeFooter();
    this.spoken = element("p", "visually-hidden", this.live); // said when the reader pauses, not at every pixel
    this.spoken.setAttribute("aria-live", "polite");
    this.tools = {
      plots: this.plots,
      data: this.data,
      set: (values) =>
        this.set(Object.fromEntries(Object.entries(values).map(([key, value]) => [key, this.tidy(key, value)]))),
      values: (values) => this.showValues(values),
      say: (sentence, verdict) => this.say(sentence, verdict),
    };
    this.page = root.dataset.page;
    const {values, complaints} = this.page ? {values: {}, complaints: {}} : readAddress(spec.controls);
    Object.assign(this.state, values);
    for (const {key} of spec.controls) {
      this.changed.add(key);
      this.controls[key].show(this.state[key]);
      this.controls[key].complain(complaints[key] ?? null);
    }
    root.dataset.state = "live";
    this.firstPicture();
  }

  /** Setup, the first update and each plot in tasks of their own: one long task would keep a slow phone from scrolling. */
  firstPicture() {
    const steps = [
      () => this.spec.setup?.({...this.tools, state: this.state}),
      () => this.update(),
      ...Object.values(this.plots).map((plot) => () => plot.draw()),
    ];
    const next = () => {
      const good = this.attempt(steps.shift());
      if (good && steps.length) return void setTimeout(next);
      this.settle();
      this.watch();
    };
    setTimeout(next);
  }

  makeControls() {
    this.panel = element("div", "explorer-controls");
    Object.values(this.plots)[0].node.after(this.panel); // beside the plot that they move, or under it
    this.panel.setAttribute("role", "group");
    this.panel.setAttribute("aria-label", "Settings");
    this.controls = {};
    for (const control of this.spec.controls) {
      const made = makeControl(
        control,
        (value) => this.set({[control.key]: value}),
        () => this.state,
      );
      this.controls[control.key] = made;
      // Switches that follow each other are one list.
      const {previousElementSibling: last} = this.panel.appendChild(made.node);
      if (control.kind === "toggle" && last?.matches(".explorer-switches, [data-kind=toggle]")) {
        const list = last.matches(".explorer-switches") ? last : element("div", "explorer-switches");
        if (list !== last) {
          last.replaceWith(list);
          list.appendChild(last);
        }
        list.appendChild(made.node);
      }
    }
  }

  makeValues() {
    this.outputs = {};
    if (!this.spec.values?.length) return;
    const list = element("dl", "explorer-values", this.live);
    for (const {key, label} of this.spec.values) {
      const pair = element("div", "", list);
      fillHtml(element("dt", "", pair), label);
      const output = element("output", "", element("dd", "", pair));
      output.dataset.key = key;
      output.setAttribute("aria-live", "off"); // the sentence is spoken; numbers are read on demand
      this.outputs[key] = output;
    }
  }

  makeFooter() {
    const footer = element("p", "explorer-footer", this.live);
    const button = (text, action) => {
      const node = element("button", "explorer-button", footer);
      node.type = "button";
      node.textContent = text;
      node.addEventListener("click", action);
      return node;
    };
    const note = element("span", "explorer-note");
    note.setAttribute("role", "status");
    button("Reset", () => {
      this.set(Object.fromEntries(this.spec.controls.map(({key, value}) => [key, value])));
      note.textContent = "All settings are back at their start.";
    });
    button("Copy link", async () => {
      const link = linkTo(this.spec.controls, this.state, this.page);
      note.textContent = (await copy(link))
        ? "Copied: the link opens this picture with these settings."
        : `Copy this link: ${link}`;
    });
    if (document.fullscreenEnabled) {
      const whole = button("Full screen", () =>
        document.fullscreenElement ? document.exitFullscreen() : this.root.requestFullscreen(),
      );
      document.addEventListener("fullscreenchange", () => {
        whole.textContent = document.fullscreenElement === this.root ? "Leave full screen" : "Full screen";
      });
    }
    if (this.spec.command) {
      button("Copy command", async () => {
        note.textContent = (await copy(this.command.textContent))
          ? "Copied: the command runs this point on your machine."
          : "Select the command and copy it.";
      });
      const line = element("p", "explorer-command");
      line.textContent = "This point, run on your machine: ";
      this.command = element("code", "", line);
      this.live.insertBefore(line, footer);
    }
    footer.appendChild(note);
  }

  /** A dragged or computed value, without digits that nobody chose. */
  tidy(key, value) {
    const {kind, min, max, digits = 3} = this.spec.controls.find((one) => one.key === key) ?? {};
    if (min === undefined || !Number.isFinite(value)) return value; // an option may be a number, too
    if (kind === "log-range") return rounded(value, digits);
    const quantum = 10 ** (Math.floor(Math.log10(max - min)) - digits);
    return rounded(Math.round(value / quantum) * quantum, 12);
  }

  /** Move controls; a value outside of its limits is held at the limit. */
  set(values) {
    for (const [key, asked] of Object.entries(values)) {
      const control = this.spec.controls.find((one) => one.key === key);
      if (!control) throw new Error(`no control called ${key}`);
      let value = asked;
      if (typeof asked === "number" && "min" in control) {
        if (Number.isNaN(asked)) continue;
        value = Math.min(control.max, Math.max(control.min, control.integer ? Math.round(asked) : asked));
      }
      if (this.state[key] !== value) this.changed.add(key);
      this.state[key] = value;
      this.controls[key].show(value);
    }
    this.later();
  }

  later() {
    if (this.frame) return;
    delete this.root.dataset.drawn;
    this.frame = requestAnimationFrame(() => this.render());
  }

  update() {
    const changed = this.changed;
    this.changed = new Set();
    for (const {key, needs} of this.spec.controls) if (needs) this.controls[key].rest(!needs(this.state));
    this.spec.update({...this.state}, {...this.tools, changed});
    if (this.command) this.command.textContent = this.spec.command({...this.state});
  }

  render() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.attempt(() => {
      this.update();
      for (const plot of Object.values(this.plots)) plot.draw();
    });
    this.settle();
  }

  /** After a picture: room for the sentence, and the address, when the hand rests. */
  settle() {
    this.keepRoom();
    this.root.dataset.drawn = "";
    if (this.page) return;
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => writeAddress(this.spec.controls, this.state), 250);
  }

  /** Run; what is thrown stands as a sentence in place of the picture. Returns whether all went well. */
  attempt(action) {
    try {
      action();
      this.root.classList.remove("is-broken");
      if (this.trouble.textContent) this.trouble.textContent = "";
      return true;
    } catch (error) {
      console.error(error);
      this.root.classList.add("is-broken");
      const reason = `There is no picture for these settings: ${error.message}.`;
      this.trouble.textContent = `${reason} Change a setting or press Reset.`;
      return false;
    }
  }

  /** The picture under a dragging hand must not jump: the sentence's room grows and does not shrink. */
  keepRoom() {
    const height = this.sentence.offsetHeight;
    if (height <= this.sentenceRoom) return;
    this.sentenceRoom = height;
    this.sentence.style.minHeight = `${height}px`;
  }

  showValues(values) {
    for (const [key, value] of Object.entries(values)) {
      const output = this.outputs[key];
      if (!output) throw new Error(`no value called ${key}`);
      const {digits = 3, format} = this.spec.values.find((one) => one.key === key);
      const text = format ? format(value) : typeof value === "number" ? number(value, digits) : String(value);
      if (output.textContent !== text) output.textContent = text;
      if (typeof value === "number") output.dataset.number = String(value);
      else delete output.dataset.number;
    }
  }

  /** The verdict in words, with a badge as in the ledger. */
  say(sentence, {badge, word} = {}) {
    const signature = `${badge}|${word}|${sentence}`;
    if (this.sentence.dataset.said === signature) return;
    this.sentence.dataset.said = signature;
    this.sentence.textContent = "";
    if (word) {
      const node = element("span", BADGES[badge] ?? "verdict", this.sentence);
      node.textContent = word;
      this.sentence.append(" ");
    }
    fillHtml(element("span", "", this.sentence), sentence);
    clearTimeout(this.speech);
    this.speech = setTimeout(() => {
      this.spoken.textContent = this.sentence.textContent;
    }, 700);
  }

  /** Draw again when the room changes; follow the address. */
  watch() {
    let width = this.live.clientWidth;
    const resized = () => {
      if (this.live.clientWidth === width) return;
      width = this.live.clientWidth;
      this.sentenceRoom = 0;
      this.sentence.style.minHeight = "";
      for (const plot of Object.values(this.plots)) plot.width = 0; // measured again
      this.later();
    };
    if (window.ResizeObserver) new ResizeObserver(resized).observe(this.live);
    else window.addEventListener("resize", resized);
    // Light or dark: what was painted on a canvas is painted again.
    new MutationObserver(() => this.later()).observe(document.documentElement, {attributeFilter: ["data-theme"]});
    keepStillForPaper(this.root);
    if (this.page) return;
    window.addEventListener("hashchange", () => {
      const {values, complaints} = readAddress(this.spec.controls);
      if (Object.keys(values).length) this.set(values);
      for (const [key, sentence] of Object.entries(complaints)) this.controls[key].complain(sentence);
    });
  }
}
