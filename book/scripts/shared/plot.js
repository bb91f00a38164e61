/**
 * One plot: thin axes, lines, points with error bars, areas, heat maps, contours, rules and markers that can be dragged.
 *
 *     plot.axes({x: {domain, scale, label, ticks, format}, y: {...}})   what is not given stays
 *     plot.lines([{key, points: [[x, y], ...], colour, dash, width, label, opacity}])       a NaN or null y interrupts a line
 *     plot.points([{key, points: [[x, y, error?], ...], colour, label, radius, hollow}])    error: one standard error
 *     plot.areas([{key, points: [[x, low, high], ...], colour, label, opacity}])
 *     plot.heat({x: edges (m + 1), y: edges (k + 1), values: k rows of m, colour: ramp(...), bar: {label, ticks, format}}) or null
 *     plot.contours([{key, x: (m), y: (k), values: k rows of m, levels, colour, dash, width, label}])
 *     plot.rules([{x or y, label, dash, colour}])         straight lines across the plot, their label at the end
 *     plot.texts([{x, y, text, colour, anchor, dx, dy}])
 *     plot.marker({key, x, y, label, colour, draggable: true|"x"|"y"|false, onmove: ([x, y]) => ..., step: [dx, dy]})
 *     plot.remove(key)                                     a marker that is not wanted any more
 *     plot.onpoint(([x, y]) => ...)                        a click or tap in the plot
 *     plot.describe(sentence)                              what a screen reader hears after the label
 *
 * Each call replaces what the same call drew before. Colours are names of colours.js or CSS. Labels may hold <i>, <sub>, <sup>.
 * Nothing is drawn at once: the shell draws all plots when `update` has returned.
 */
import {axisBottom, axisLeft} from "d3-axis";
import {scaleLinear, scaleLog} from "d3-scale";
import {select} from "d3-selection";
import {number, superscript} from "./format.js";
import {barRoom, drawBar, drawHeat} from "./heat.js";
import {drawLegend} from "./legend.js";
import {drawAreas, drawContours, drawLines, drawPoints, drawRules, drawTexts} from "./marks.js";
import {Marker} from "./marker.js";
import {fillSvg, plainText} from "./rich.js";

const SVG = "http://www.w3.org/2000/svg";
let plotsMade = 0;

export class Plot {
  /**
   * @param {HTMLElement} holder
   * @param {object} spec {key, label, height, x, y, legend: "above"|"none", square: keep width = height}
   */
  constructor(holder, spec) {
    this.spec = spec;
    this.axis = {x: {scale: "linear", domain: [0, 1], ...spec.x}, y: {scale: "linear", domain: [0, 1], ...spec.y}};
    this.items = {lines: [], points: [], areas: [], contours: [], rules: [], texts: [], heat: null};
    this.markers = new Map();
    this.clip = `explorer-clip-${(plotsMade += 1)}`;
    this.node = holder.appendChild(document.createElement("div"));
    this.node.className = "explorer-plot";
    this.node.dataset.plot = spec.key;
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", plainText(spec.label));
    if (spec.title) {
      const title = this.node.appendChild(document.createElement("p"));
      title.className = "explorer-plot-title";
      title.textContent = plainText(spec.title);
    }
    this.legend = this.node.appendChild(document.createElement("ul"));
    this.legend.className = "explorer-legend";
    this.stage = this.node.appendChild(document.createElement("div"));
    this.stage.className = "explorer-stage";
    this.canvas = this.stage.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("aria-hidden", "true");
    this.svg = select(this.stage)
      .append("svg")
      .attr("focusable", "false")
      .attr("height", spec.height ?? 280);
    this.inner = this.svg.append("g");
    const still = this.inner.append("g").attr("aria-hidden", "true");
    const clip = still.append("clipPath").attr("id", this.clip).append("rect");
    // A point on the edge is drawn whole.
    const wideClip = still.append("clipPath").attr("id", `${this.clip}-points`).append("path");
    this.layers = {clip, wideClip, still};
    for (const name of ["areas", "contours", "rules", "lines", "points"]) {
      this.layers[name] = still
        .append("g")
        .attr("clip-path", `url(#${this.clip}${name === "points" ? "-points" : ""})`);
    }
    this.layers.xAxis = still.append("g").attr("class", "explorer-axis");
    this.layers.yAxis = still.append("g").attr("class", "explorer-axis");
    this.layers.bar = still.append("g").attr("class", "explorer-axis");
    this.layers.xLabel = still.append("text").attr("class", "explorer-axis-label").attr("text-anchor", "middle");
    this.layers.yLabel = still.append("text").attr("class", "explorer-axis-label").attr("text-anchor", "start");
    this.layers.texts = still.append("g");
    this.layers.markers = this.inner.append("g");
    this.description = this.node.appendChild(document.createElement("p"));
    this.description.className = "visually-hidden";
    this.svg.node().addEventListener("click", (event) => this.clicked(event));
    this.width = 0;
  }

  axes({x, y} = {}) {
    if (x) Object.assign(this.axis.x, x);
    if (y) Object.assign(this.axis.y, y);
  }

  lines(items) {
    this.items.lines = items;
  }
  points(items) {
    this.items.points = items;
  }
  areas(items) {
    this.items.areas = items;
  }
  contours(items) {
    this.items.contours = items;
  }
  rules(items) {
    this.items.rules = items;
  }
  texts(items) {
    this.items.texts = items;
  }
  heat(item) {
    this.items.heat = item;
  }
  onpoint(handler) {
    this.handler = handler;
  }
  describe(sentence) {
    if (this.description.textContent !== sentence) this.description.textContent = sentence;
  }

  marker(item) {
    if (!this.markers.has(item.key)) this.markers.set(item.key, new Marker(this, item));
    this.markers.get(item.key).item = item;
  }

  remove(key) {
    this.markers.get(key)?.node.remove();
    this.markers.delete(key);
  }

  /** Draw what was asked for. */
  draw() {
    // Measured when the room changes only: a measurement after every change would lay the page out again and again.
    if (!this.width) {
      this.width = this.stage.clientWidth || 320;
      this.stretch = Number.parseFloat(getComputedStyle(this.node).getPropertyValue("--plot-stretch")) || 1;
    }
    const {width} = this;
    const asked = (this.spec.height ?? (this.spec.square ? 360 : 280)) * this.stretch;
    const height = this.spec.square ? Math.min(asked, width) : asked;
    const bar = this.items.heat?.bar;
    this.margin = {
      top: this.axis.y.label ? 26 : 10,
      right: bar ? barRoom(this.items.heat) : 14,
      bottom: this.axis.x.label ? 44 : 26,
      left: this.leftMargin(height),
    };
    this.height = height;
    const {top, right, bottom, left} = this.margin;
    this.box = {width: Math.max(40, width - left - right), height: Math.max(40, height - top - bottom)};
    this.x = makeScale(this.axis.x, [0, this.box.width]);
    this.y = makeScale(this.axis.y, [this.box.height, 0]);
    this.svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`);
    this.inner.attr("transform", `translate(${left},${top})`);
    this.layers.clip
      .attr("x", -1)
      .attr("y", -1)
      .attr("width", this.box.width + 2)
      .attr("height", this.box.height + 2);
    this.layers.wideClip.attr("d", `M-5,-5H${this.box.width + 5}V${this.box.height + 5}H-5Z`);
    this.drawAxes();
    drawHeat(this);
    drawBar(this);
    drawAreas(this);
    drawContours(this);
    drawRules(this);
    drawLines(this);
    drawPoints(this);
    drawTexts(this);
    for (const marker of this.markers.values()) marker.draw();
    drawLegend(this);
    this.svg.classed("is-pointable", Boolean(this.handler));
    for (const name of ["areas", "contours", "rules", "lines", "points", "texts", "markers"]) {
      this.layers[name].classed("explorer-over-heat", Boolean(this.items.heat));
    }
  }

  leftMargin(height) {
    const scale = makeScale(this.axis.y, [height, 0]);
    const longest = Math.max(
      ...tickValues(this.axis.y, scale, height / 45).map((v) => tickText(this.axis.y, v).length),
      1,
    );
    return 18 + 6.6 * longest;
  }

  drawAxes() {
    const {width, height} = this.box;
    const make = (axis, scale, room, factory) =>
      factory(scale)
        .tickValues(tickValues(axis, scale, room))
        .tickFormat((value) => tickText(axis, value))
        .tickSizeOuter(0)
        .tickSizeInner(5)
        .tickPadding(4);
    this.layers.xAxis
      .attr("transform", `translate(0,${height})`)
      .call(make(this.axis.x, this.x, width / 70, axisBottom));
    this.layers.yAxis.call(make(this.axis.y, this.y, height / 45, axisLeft));
    this.layers.xLabel.attr("x", width / 2).attr("y", height + 38);
    fillSvg(this.layers.xLabel.node(), this.axis.x.label ?? "");
    this.layers.yLabel.attr("x", -this.margin.left + 4).attr("y", -12);
    fillSvg(this.layers.yLabel.node(), this.axis.y.label ?? "");
  }

  /** Data coordinates of a pointer event, or null outside of the axes (`near`: the closest point of the axes instead). */
  locate(event, near = false) {
    const frame = this.svg.node().getBoundingClientRect();
    const px = event.clientX - frame.left - this.margin.left;
    const py = event.clientY - frame.top - this.margin.top;
    const inside = px >= -4 && px <= this.box.width + 4 && py >= -4 && py <= this.box.height + 4;
    return inside || near ? this.invert([px, py]) : null;
  }

  /** Pixels inside the axes -> data coordinates, held within the axes. */
  invert([px, py]) {
    return [
      this.x.invert(Math.min(this.box.width, Math.max(0, px))),
      this.y.invert(Math.min(this.box.height, Math.max(0, py))),
    ];
  }

  clicked(event) {
    if (!this.handler || event.target.closest?.("[role=slider]")) return;
    const point = this.locate(event);
    if (point) this.handler(point);
  }
}

function makeScale({scale, domain}, range) {
  return (scale === "log" ? scaleLog() : scaleLinear()).domain(domain).range(range);
}

function tickValues(axis, scale, room) {
  if (axis.ticks) return axis.ticks;
  if (axis.scale !== "log") return scale.ticks(Math.max(2, Math.min(10, room)));
  const [low, high] = axis.domain.map(Math.log10);
  const decades = high - low;
  const within = (values) => values.filter((v) => v >= axis.domain[0] * (1 - 1e-9) && v <= axis.domain[1] * (1 + 1e-9));
  const powers = (stride) => {
    const list = [];
    for (let p = Math.ceil(low - 1e-9); p <= Math.floor(high + 1e-9); p += 1)
      if (p % stride === 0) list.push(Number(`1e${p}`));
    return list;
  };
  if (decades <= 2.5) {
    const steps = decades > 1.2 ? [1, 2, 5] : [1, 2, 3, 5, 7];
    const list = [];
    for (let p = Math.floor(low); p <= Math.ceil(high); p += 1) for (const m of steps) list.push(Number(`${m}e${p}`));
    if (within(list).length >= 2) return within(list);
    return scale.ticks(room);
  }
  return within(powers(Math.max(1, Math.ceil(decades / Math.max(2, room)))));
}

function tickText(axis, value) {
  if (axis.format) return axis.format(value);
  if (axis.scale === "log") {
    const power = Math.log10(value);
    const far = Math.max(...axis.domain) > 9999 || Math.min(...axis.domain) < 9e-4;
    if (far && Math.abs(power - Math.round(power)) < 1e-9) return `10${superscript(Math.round(power))}`;
  }
  return number(value, 6);
}

export const svgNode = (name) => document.createElementNS(SVG, name);
