/** The still marks of a plot: each function draws one kind anew from `plot.items`. */
import {contours as d3contours} from "d3-contour";
import {select} from "d3-selection";
import {area, line} from "d3-shape";
import {css} from "./colours.js";
import {fillSvg} from "./rich.js";

const DASHES = {true: "5 4", dotted: "1.5 4"};
const dash = (value) => (value ? (DASHES[value] ?? value) : null);
const finite = (...values) => values.every((value) => value !== null && Number.isFinite(value));

const join = (layer, name, items) =>
  layer
    .selectAll(`${name}.explorer-mark`)
    .data(items, (item, i) => item.key ?? i)
    .join(name)
    .attr("class", "explorer-mark");

export function drawLines({layers, items, x, y}) {
  const path = line()
    .defined(([px, py]) => finite(x(px), y(py)))
    .x(([px]) => round(x(px)))
    .y(([, py]) => round(y(py)));
  join(layers.lines, "path", items.lines)
    .attr("data-key", (item) => item.key)
    .attr("d", (item) => path(item.points))
    .attr("fill", "none")
    .attr("stroke-linecap", (item) => (item.dash === "dotted" ? "round" : "butt"))
    .attr("stroke-linejoin", "round")
    .attr("opacity", (item) => item.opacity ?? null)
    .attr("stroke-dasharray", (item) => dash(item.dash))
    .style("stroke", (item) => css(item.colour ?? "theory"))
    .style("stroke-width", (item) => item.width ?? 1.8);
}

export function drawAreas({layers, items, x, y}) {
  const path = area()
    .defined(([px, low, high]) => finite(x(px), y(low), y(high)))
    .x(([px]) => round(x(px)))
    .y0(([, low]) => round(y(low)))
    .y1(([, , high]) => round(y(high)));
  join(layers.areas, "path", items.areas)
    .attr("data-key", (item) => item.key)
    .attr("d", (item) => path(item.points))
    .attr("opacity", (item) => item.opacity ?? 0.18)
    .style("fill", (item) => css(item.colour ?? "bound"));
}

export function drawPoints({layers, items, x, y}) {
  const groups = join(layers.points, "g", items.points)
    .attr("data-key", (item) => item.key)
    .style("color", (item) => css(item.colour ?? "measured"));
  groups
    .selectAll("line")
    .data((item) => item.points.filter(([px, py, error]) => error > 0 && finite(x(px), y(py))))
    .join("line")
    .attr("x1", ([px]) => x(px))
    .attr("x2", ([px]) => x(px))
    .attr("y1", ([, py, error]) => whisker(y, py - error))
    .attr("y2", ([, py, error]) => whisker(y, py + error))
    .attr("stroke", "currentColor")
    .attr("stroke-width", 1.4);
  groups.each(function (item) {
    const circles = select(this)
      .selectAll("circle")
      .data(item.points.filter(([px, py]) => finite(x(px), y(py))))
      .join("circle");
    circles
      .attr("cx", ([px]) => round(x(px)))
      .attr("cy", ([, py]) => round(y(py)))
      .attr("r", item.radius ?? 3.6)
      .attr("stroke", "currentColor")
      .attr("stroke-width", 1.4)
      .style("fill", item.hollow ? "var(--explorer-paper)" : "currentColor");
  });
}

/** End of an error bar; on a log axis a bar that reaches below zero goes to the edge. */
function whisker(y, value) {
  const end = y(value);
  return Number.isFinite(end) ? end : y.range()[0];
}

export function drawContours({layers, items, x, y}) {
  const paths = items.contours.flatMap((item) => {
    const [m, k] = [item.x.length, item.y.length];
    const flat = Float64Array.from({length: m * k}, (_, i) => item.values[Math.floor(i / m)][i % m]);
    // d3-contour counts cells: the value of index i lies at i + 1/2.
    const place = (grid, scale) => (position) => {
      const at = Math.min(grid.length - 1, Math.max(0, position - 0.5));
      const low = Math.min(grid.length - 2, Math.floor(at));
      return round(scale(grid[low]) + (at - low) * (scale(grid[low + 1]) - scale(grid[low])));
    };
    const [px, py] = [place(item.x, x), place(item.y, y)];
    const edge = (a, b) =>
      [
        [0, m, 0],
        [0, k, 1],
      ].some(
        ([low, high, i]) => (a[i] <= low + 0.5 && b[i] <= low + 0.5) || (a[i] >= high - 0.5 && b[i] >= high - 0.5),
      );
    const d = d3contours()
      .size([m, k])
      .thresholds(item.levels)(flat)
      .map((shape) =>
        shape.coordinates
          .flat()
          .map((ring) => {
            let text = "";
            let drawing = false;
            for (let i = 1; i < ring.length; i += 1) {
              // the rim of the grid is no level line
              if (edge(ring[i - 1], ring[i])) drawing = false;
              else {
                if (!drawing) text += `M${px(ring[i - 1][0])},${py(ring[i - 1][1])}`;
                text += `L${px(ring[i][0])},${py(ring[i][1])}`;
                drawing = true;
              }
            }
            return text;
          })
          .join(""),
      )
      .join("");
    return [{...item, d}];
  });
  join(layers.contours, "path", paths)
    .attr("data-key", (item) => item.key)
    .attr("d", (item) => item.d)
    .attr("fill", "none")
    .attr("stroke-dasharray", (item) => dash(item.dash))
    .style("stroke", (item) => css(item.colour ?? "theory"))
    .style("stroke-width", (item) => item.width ?? 1);
}

export function drawRules({layers, items, x, y, box}) {
  const groups = join(layers.rules, "g", items.rules).style("color", (item) => css(item.colour ?? "bound"));
  groups
    .selectAll("line")
    .data((item) => [item])
    .join("line")
    .attr("x1", (item) => (item.x === undefined ? 0 : x(item.x)))
    .attr("x2", (item) => (item.x === undefined ? box.width : x(item.x)))
    .attr("y1", (item) => (item.y === undefined ? 0 : y(item.y)))
    .attr("y2", (item) => (item.y === undefined ? box.height : y(item.y)))
    .attr("stroke", "currentColor")
    .attr("stroke-width", (item) => item.width ?? 1.1)
    .attr("stroke-dasharray", (item) => dash(item.dash ?? true));
  const taken = []; // heights of labels at the right edge: two close lines do not write over each other
  groups
    .selectAll("text")
    .data((item) => (item.label ? [item] : []))
    .join("text")
    .attr("class", "explorer-label")
    .each(function (item) {
      const upright = item.x !== undefined;
      const right = upright && x(item.x) > box.width * 0.6; // the label stays inside
      this.setAttribute("x", upright ? x(item.x) + (right ? -5 : 5) : box.width - 4);
      const above = y(item.y ?? 0) - 5;
      const fits = above > 12 && taken.every((height) => Math.abs(height - above) > 13);
      const height = upright ? 11 : fits ? above : above + 19;
      if (!upright) taken.push(height);
      this.setAttribute("y", height);
      this.setAttribute("text-anchor", upright && !right ? "start" : "end");
      fillSvg(this, item.label);
    });
}

export function drawTexts({layers, items, x, y}) {
  join(layers.texts, "text", items.texts)
    .attr("class", "explorer-mark explorer-label")
    .attr("x", (item) => x(item.x) + (item.dx ?? 0))
    .attr("y", (item) => y(item.y) + (item.dy ?? 0))
    .attr("text-anchor", (item) => item.anchor ?? "start")
    .style("fill", (item) => css(item.colour ?? "theory"))
    .each(function (item) {
      fillSvg(this, item.text);
    });
}

/** A tenth of a pixel is enough, and keeps the page small. */
const round = (value) => Math.round(value * 10) / 10;
