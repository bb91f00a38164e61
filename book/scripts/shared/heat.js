/** Heat maps, on a canvas behind the axes (thousands of cells, sharp at any resolution), and their colour bar. */
import {axisRight} from "d3-axis";
import {scaleLinear, scaleLog} from "d3-scale";
import {number} from "./format.js";
import {fillSvg} from "./rich.js";

export function drawHeat({canvas, items, x, y, width, height, margin, box}) {
  const {heat} = items;
  canvas.style.display = heat ? "block" : "none";
  if (!heat) return;
  const ratio = Math.max(1, window.devicePixelRatio || 1);
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, {width: wide, height: high});
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, wide, high);
  context.beginPath();
  context.rect(margin.left * ratio, margin.top * ratio, box.width * ratio, box.height * ratio);
  context.save();
  context.clip();
  // Cells meet on whole pixels: no seams.
  const px = heat.x.map((edge) => Math.round((margin.left + x(edge)) * ratio));
  const py = heat.y.map((edge) => Math.round((margin.top + y(edge)) * ratio));
  heat.values.forEach((row, j) => {
    for (let i = 0; i < row.length; i += 1) {
      context.fillStyle = heat.colour(row[i]);
      context.fillRect(px[i], py[j + 1], px[i + 1] - px[i], py[j] - py[j + 1]);
    }
  });
  context.restore();
}

/** The scale of the bar and its ticks as [value, text]. */
function barScale({colour, bar}, height) {
  const place = (colour.scale === "log" ? scaleLog() : scaleLinear()).domain(colour.domain).range([height, 0]);
  const text = bar.format ?? ((value) => number(value, 3));
  return {place, ticks: (bar.ticks ?? place.ticks(4)).map((value) => [value, text(value)])};
}

/** Width that the bar and its numbers take, right of the axes. */
export function barRoom(heat) {
  return 40 + Math.max(3, ...barScale(heat, 1).ticks.map(([, text]) => text.length)) * 5.8;
}

export function drawBar({layers, items, box}) {
  const {heat} = items;
  const bar = heat && heat.bar;
  layers.bar.style("display", bar ? null : "none");
  if (!bar) return;
  const {place, ticks} = barScale(heat, box.height);
  const texts = new Map(ticks);
  const slices = 60;
  const step = box.height / slices;
  layers.bar.attr("transform", `translate(${box.width + 14},0)`);
  layers.bar
    .selectAll("rect")
    .data(Array.from({length: slices}, (_, i) => i))
    .join("rect")
    .attr("width", 10)
    .attr("y", (i) => i * step)
    .attr("height", step + 0.6)
    .attr("fill", (i) => heat.colour(place.invert((i + 0.5) * step)));
  const axis = axisRight(place)
    .tickSizeOuter(0)
    .tickSizeInner(4)
    .tickPadding(3)
    .tickValues([...texts.keys()])
    .tickFormat((value) => texts.get(value));
  layers.bar
    .selectAll("g.scale")
    .data([0])
    .join("g")
    .attr("class", "scale")
    .attr("transform", "translate(10,0)")
    .call(axis);
  layers.bar
    .selectAll("text.title")
    .data([bar.label ?? ""])
    .join("text")
    .attr("class", "title explorer-axis-label")
    .attr("x", barRoom(heat) - 18)
    .attr("y", -12)
    .attr("text-anchor", "end")
    .each(function (label) {
      fillSvg(this, label);
    });
}
