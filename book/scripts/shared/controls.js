/**
 * Controls of an explorer: a slider with a number field beside it, a choice, a switch.
 *
 *     {key, label, kind: "range", min, max, value, step, digits, integer, help, play: {seconds}}
 *     {key, label, kind: "log-range", min, max, value, count, digits, integer, help}
 *     {key, label, kind: "choice", options: [{value, label}], value, help}
 *     {key, label, kind: "toggle", value: true|false, help}
 *
 * `step`: what one arrow key adds (default: 1 / 100 of the range; 1 for integers); `count`: positions of a slider on a log
 * scale (default 100); `digits`: significant digits of the slider's values (default 3; a typed value is taken as it is);
 * `needs: (state) => boolean` says when the control has an effect; elsewhere it rests.
 * `check: (value, state) => sentence or null` refuses more. A value out of range, or no number at all, leaves the last good
 * value in force and is answered by one sentence.
 */
import {number, parse, plain, rounded} from "./format.js";
import {fillHtml, plainText} from "./rich.js";

let made = 0;

function element(name, properties = {}, children = []) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** What is wrong with `value` for this control, in one sentence; null where nothing is. */
export function complaint(control, value, came, state = {}) {
  const name = plainText(control.label);
  const got = came === "" ? "nothing" : `\u201c${String(came).slice(0, 40)}\u201d`;
  if (control.kind === "choice") {
    const options = choices(control).map((option) => option.value);
    return options.includes(value) ? null : `${name}: expected one of ${options.join(", ")}; got ${got}.`;
  }
  if (control.kind === "toggle")
    return typeof value === "boolean" ? null : `${name}: expected 1 (on) or 0 (off); got ${got}.`;
  const what = control.integer ? "a whole number" : "a number";
  const whole = !control.integer || Number.isInteger(value);
  if (!Number.isFinite(value) || !whole || value < control.min || value > control.max) {
    return `${name}: expected ${what} from ${number(control.min, 6)} to ${number(control.max, 6)}; got ${got}.`;
  }
  return control.check?.(value, state) ?? null;
}

export const choices = (control) =>
  control.options.map((option) => (typeof option === "object" ? option : {value: option, label: String(option)}));

/** A value from an address: text -> number, option or boolean. */
export function fromText(control, text) {
  if (control.kind === "choice") return choices(control).find((option) => String(option.value) === text)?.value ?? text;
  if (control.kind === "toggle") return {1: true, 0: false}[text] ?? text;
  return parse(text);
}

export const toText = (control, value) =>
  control.kind === "toggle" ? (value ? "1" : "0") : typeof value === "number" ? plain(value) : String(value);

/** Number of positions of a slider, and the value at each. */
export function positions(control) {
  const {min, max, digits = 3, integer} = control;
  const whole = (value) => (integer ? Math.round(value) : value);
  const held = (value) => Math.min(max, Math.max(min, value));
  if (control.kind === "log-range") {
    const count = control.count ?? 100;
    const ratio = Math.log(max / min) / count;
    return {
      count,
      value: (i) => (i <= 0 ? min : i >= count ? max : held(whole(rounded(min * Math.exp(i * ratio), digits)))),
      position: (value) => Math.round(Math.log(value / min) / ratio),
    };
  }
  const step = control.step ?? (integer ? 1 : (max - min) / 100);
  const count = Math.round((max - min) / step);
  return {
    count,
    // 12 digits: sums such as 3 * 0.1 read 0.3.
    value: (i) => (i >= count ? max : held(whole(rounded(min + i * step, 12)))),
    position: (value) => Math.round((value - min) / step),
  };
}

/**
 * Build one control.
 * @param {object} control
 * @param {(value: any) => void} change called with every new good value
 * @param {() => object} state all values, for `check`
 * @returns {{node: HTMLElement, show: (value: any) => void, complain: (sentence: string|null) => void}}
 */
export function makeControl(control, change, state) {
  const id = `explorer-control-${(made += 1)}`;
  const trouble = element("p", {className: "explorer-complaint", id: `${id}-trouble`});
  trouble.setAttribute("role", "alert");
  const helpNode = control.help
    ? [fillHtml(element("p", {className: "explorer-help", id: `${id}-help`}), control.help)]
    : [];
  const build = {choice: makeChoice, toggle: makeToggle}[control.kind] ?? makeRange;
  const parts = build(control, id, change, state, (sentence) => complain(sentence));
  const node = element(parts.fieldset ? "fieldset" : "div", {className: "explorer-control"}, [
    ...parts.nodes,
    ...helpNode,
    trouble,
  ]);
  node.dataset.control = control.key;
  node.dataset.kind = control.kind;
  const described = [control.help ? `${id}-help` : "", `${id}-trouble`].filter(Boolean).join(" ");
  for (const input of parts.inputs) input.setAttribute("aria-describedby", described);
  function complain(sentence) {
    if (trouble.textContent !== (sentence ?? "")) trouble.textContent = sentence ?? "";
    for (const input of parts.inputs)
      if (input.type === "text") input.setAttribute("aria-invalid", String(Boolean(sentence)));
  }
  return {
    node,
    complain,
    rest: (resting) => {
      node.classList.toggle("is-resting", resting);
      for (const input of node.querySelectorAll("input, button")) input.disabled = resting;
    },
    show: (value) => {
      complain(null);
      parts.show(value);
    },
  };
}

function makeRange(control, id, change, state, complain) {
  const at = positions(control);
  const label = fillHtml(element("label", {htmlFor: id}), control.label);
  const slider = element("input", {type: "range", id, min: 0, max: at.count, step: 1});
  const field = element("input", {
    type: "text",
    id: `${id}-field`,
    inputMode: "decimal",
    autocomplete: "off",
    spellcheck: false,
    className: "explorer-field",
  });
  field.setAttribute("aria-label", `${plainText(control.label)}, exact value`);
  field.size = Math.max(
    5,
    Math.min(9, Math.max(plain(control.min).length, plain(control.max).length, control.digits ?? 3) + 1),
  );
  let good = control.value;
  const show = (value) => {
    good = value;
    slider.value = String(at.position(value));
    slider.setAttribute("aria-valuetext", number(value, 6));
    slider.style.setProperty("--filled", `${(100 * at.position(value)) / at.count}%`);
    if (document.activeElement !== field || parse(field.value) !== value) field.value = plain(value);
  };
  slider.addEventListener("input", () => {
    const value = at.value(Number(slider.value));
    const sentence = complaint(control, value, plain(value), state());
    if (sentence) complain(sentence);
    else change(value);
  });
  // While typing, a good value is taken at once; half a number is not complained about.
  field.addEventListener("input", () => {
    const value = parse(field.value);
    if (!complaint(control, value, field.value, state())) change(value);
  });
  const judge = () => {
    const sentence = complaint(control, parse(field.value), field.value.trim(), state());
    if (sentence) complain(`${sentence} ${number(good, 6)} stays in force.`);
    else show(good);
  };
  field.addEventListener("change", judge);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") judge();
    if (event.key === "Escape") {
      field.value = plain(good);
      complain(null);
    }
  });
  const row = [slider, field];
  if (control.play) row.unshift(playButton(control, slider));
  return {nodes: [label, element("div", {className: "explorer-twins"}, row)], inputs: [slider, field], show};
}

/** Moves the slider to its end by itself; only ever started by the reader. */
function playButton(control, slider) {
  const name = plainText(control.label);
  const button = element("button", {type: "button", className: "explorer-play"});
  let frame = 0;
  let timer = 0;
  const stop = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = timer = 0;
    button.textContent = "\u25b6";
    button.setAttribute("aria-label", `Play: move ${name}`);
  };
  const go = (position) => {
    slider.value = String(position);
    slider.dispatchEvent(new Event("input", {bubbles: true}));
  };
  button.addEventListener("click", () => {
    if (frame || timer) return stop();
    button.textContent = "\u275a\u275a";
    button.setAttribute("aria-label", `Pause: ${name}`);
    const count = Number(slider.max);
    const from = Number(slider.value) >= count ? 0 : Number(slider.value);
    const {seconds = 8} = control.play;
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      // ten still pictures instead of motion
      const jump = (position) => {
        go(Math.min(count, position));
        if (position >= count) stop();
        else timer = setTimeout(() => jump(position + count / 10), 900);
      };
      return jump(from);
    }
    const start = performance.now();
    const tick = (now) => {
      const position = from + (Math.max(0, now - start) / (1000 * seconds)) * count;
      go(Math.min(count, Math.floor(position)));
      if (position >= count) stop();
      else frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
    return undefined;
  });
  for (const name of ["pointerdown", "keydown"]) slider.addEventListener(name, stop);
  stop();
  return button;
}

function makeChoice(control, id, change) {
  const legend = fillHtml(element("legend"), control.label);
  const inputs = choices(control).map(({value}, i) => {
    const input = element("input", {type: "radio", name: id, id: `${id}-${i}`, value: String(value)});
    input.addEventListener("change", () => {
      if (input.checked) change(value);
    });
    return input;
  });
  const options = choices(control).map(({value, label}, i) =>
    element("span", {className: "explorer-option"}, [
      inputs[i],
      fillHtml(element("label", {htmlFor: `${id}-${i}`}), label ?? String(value)),
    ]),
  );
  const show = (value) =>
    choices(control).forEach((option, i) => {
      inputs[i].checked = option.value === value;
    });
  return {nodes: [legend, element("div", {className: "explorer-options"}, options)], inputs, show, fieldset: true};
}

function makeToggle(control, id, change) {
  const input = element("input", {type: "checkbox", id});
  input.addEventListener("change", () => change(input.checked));
  const label = fillHtml(element("label", {htmlFor: id}), control.label);
  return {
    nodes: [element("div", {className: "explorer-switch"}, [input, label])],
    inputs: [input],
    show: (value) => {
      input.checked = value;
    },
  };
}
