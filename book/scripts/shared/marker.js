/** A point that can be moved by mouse, touch, pen and arrow keys. */
import {select} from "d3-selection";
import {css} from "./colours.js";
import {number} from "./format.js";
import {fillSvg, plainText} from "./rich.js";

const KEYS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  PageUp: [0, -10],
  PageDown: [0, 10],
};

export class Marker {
  constructor(plot, item) {
    this.plot = plot;
    this.item = item;
    this.group = select(plot.layers.markers.node())
      .append("g")
      .attr("class", "explorer-marker")
      .attr("data-key", item.key);
    this.node = this.group.node();
    this.group.append("circle").attr("class", "grip").attr("r", 20);
    this.group.append("circle").attr("class", "ring").attr("r", 11);
    this.group.append("circle").attr("class", "dot").attr("r", 6.5);
    this.group.append("text").attr("class", "explorer-label").attr("aria-hidden", "true");
    this.node.addEventListener("pointerdown", (event) => this.press(event));
    this.node.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) this.node.addEventListener(name, () => this.release());
    // The page must not scroll away under the finger; touch-action alone is not heeded on parts of an SVG everywhere.
    this.node.addEventListener(
      "touchstart",
      (event) => {
        if (this.item.draggable) event.preventDefault();
      },
      {passive: false},
    );
    this.node.addEventListener("keydown", (event) => this.key(event));
  }

  get pixels() {
    return [this.plot.x(this.item.x), this.plot.y(this.item.y)];
  }

  draw() {
    const {item, plot} = this;
    const [px, py] = this.pixels;
    const shown = Number.isFinite(px) && Number.isFinite(py);
    const moves = Boolean(item.draggable);
    this.group
      .style("display", shown ? null : "none")
      .style("color", css(item.colour ?? "theory"))
      .classed("is-movable", moves);
    if (!shown) return;
    // Outside of the axes the marker waits at their edge.
    const [cx, cy] = [Math.min(plot.box.width, Math.max(0, px)), Math.min(plot.box.height, Math.max(0, py))];
    this.group.attr("transform", `translate(${cx},${cy})`);
    const text = this.group.select("text");
    const right = cx > plot.box.width * 0.65;
    text
      .attr("x", right ? -13 : 13)
      .attr("y", cy < 24 ? 18 : -9)
      .attr("text-anchor", right ? "end" : "start");
    fillSvg(text.node(), item.label ?? "");
    const say = (axis, value) => `${plainText(axis.label ?? "")} ${number(value, 3)}`.trim();
    const values =
      item.draggable === "x"
        ? say(plot.axis.x, item.x)
        : item.draggable === "y"
          ? say(plot.axis.y, item.y)
          : `${say(plot.axis.x, item.x)}, ${say(plot.axis.y, item.y)}`;
    const one = item.draggable === "y" ? [plot.axis.y, item.y] : [plot.axis.x, item.x];
    // Plain decimals: the exponent on a log axis (1e+26 is no number to aria); the text beside says what it is.
    const place = (value) => (one[0].scale === "log" ? Math.log10(value) : value).toFixed(4);
    if (moves) {
      this.group
        .attr("role", "slider")
        .attr("tabindex", 0)
        .attr("aria-label", plainText(item.name ?? item.label ?? item.key))
        .attr("aria-valuemin", place(Math.min(...one[0].domain)))
        .attr("aria-valuemax", place(Math.max(...one[0].domain)))
        .attr("aria-valuenow", place(one[1]))
        .attr("aria-valuetext", item.valuetext ?? values)
        .attr("aria-hidden", null);
    } else {
      this.group.attr("role", null).attr("tabindex", null).attr("aria-hidden", "true");
    }
  }

  press(event) {
    if (!this.item.draggable || event.button > 0) return;
    event.preventDefault();
    this.node.focus({preventScroll: true});
    this.node.setPointerCapture(event.pointerId);
    this.group.classed("is-held", true);
  }

  drag(event) {
    if (!this.node.classList.contains("is-held")) return;
    this.move(this.plot.locate(event, true));
  }

  release() {
    this.group.classed("is-held", false);
  }

  key(event) {
    const way = KEYS[event.key];
    const {item, plot} = this;
    if (!way || !item.draggable || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault(); // the page must not scroll
    const times = event.shiftKey ? 10 : 1;
    if (item.step) {
      this.move([item.x + way[0] * times * item.step[0], item.y - way[1] * times * item.step[1]], true);
    } else {
      const [px, py] = this.pixels;
      this.move(
        plot.invert([px + way[0] * times * plot.box.width * 0.01, py + way[1] * times * plot.box.height * 0.01]),
      );
    }
  }

  move([x, y]) {
    const {item} = this;
    const held = (value, {domain}) => Math.min(Math.max(...domain), Math.max(Math.min(...domain), value));
    const to = [
      item.draggable === "y" ? item.x : held(x, this.plot.axis.x),
      item.draggable === "x" ? item.y : held(y, this.plot.axis.y),
    ];
    item.onmove?.(to);
  }
}
