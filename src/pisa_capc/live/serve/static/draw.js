// Lines, scatters and lanes.

import { h, s } from "./dom.js";
import { missing } from "./words.js";

export const COLOURS = ["#3b7ddd", "#e07b39", "#3fa66b", "#b15ecb", "#d1495b", "#1aa6b7", "#a3792c", "#7a6ff0", "#6b8e23", "#d16ba5"];
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The path of a line; it is broken where a value is missing. */
function path(xs, ys, x, y) {
  let line = "", pen = false;
  xs.forEach((value, i) => {
    if (missing(ys[i])) { pen = false; return; }
    line += `${pen ? "L" : "M"}${x(value).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
    pen = true;
  });
  return line;
}

function range(values, least) {
  const known = values.filter((value) => !missing(value));
  if (!known.length) return null;
  let low = Math.min(...known), high = Math.max(...known);
  if (high - low < least) { const middle = (low + high) / 2; low = middle - least / 2; high = middle + least / 2; }
  return [low, high];
}

const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

/** A small line over time, its newest value as a dot. least: the smallest range that is worth a full height. */
export function spark(svg, steps, values, span, least) {
  const [width, height] = [120, 30];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const limits = range(values, least);
  if (!limits) { svg.replaceChildren(); return; }
  const x = scale(span, 2, width - 4), y = scale(limits, height - 4, 4), last = steps.length - 1;
  const parts = [s("path", { d: path(steps, values, x, y) })];
  if (!missing(values[last])) parts.push(s("circle", { cx: x(steps[last]), cy: y(values[last]), r: 2.4 }));
  svg.replaceChildren(...parts);
}

function nice(low, high, count, given = null) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = given ?? [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(Math.abs(value) < 1e-9 * step ? 0 : value);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

/** A plot of lines. lines: [{xs, ys, colour}]. Labels are in the caption's units. */
export function plot(title, lines, { x: xName, y: yName, xRange = null, yRange = null, least = 1e-9, height = 190, tick = null, xStep = null }) {
  const width = 560, left = 46, right = 10, top = 8, bottom = 30;
  const xs = xRange ?? range(lines.flatMap((line) => [line.xs[0], line.xs.at(-1)]), 1e-9);
  const ys = yRange ?? range(lines.flatMap((line) => line.ys), least);
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  if (!xs || !ys) return svg;
  const x = scale(xs, left, width - right), y = scale(ys, height - bottom, top);
  const across = nice(...xs, 6, xStep), up = nice(...ys, 4);
  for (const value of up.found) {
    svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(up.digits).replace("-", "−")));
  }
  for (const value of across.found) {
    svg.append(s("text", { x: x(value), y: height - bottom + 14, "text-anchor": "middle" },
      tick ? tick(value) : value.toFixed(across.digits).replace("-", "−")));
  }
  svg.append(s("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, xName),
    s("text", { x: 0, y: 0, transform: `translate(10 ${(height - bottom + top) / 2}) rotate(-90)`, "text-anchor": "middle" }, yName));
  for (const line of lines) svg.append(s("path", { d: path(line.xs, line.ys, x, y), stroke: line.colour, style: { stroke: line.colour } }));
  return svg;
}

/** Devices and some of their frames, and where a frame lies among them. */
export function scatter(title, devices, frames, place, colourOf, nameOf) {
  const width = 560, height = 380, edge = 34;
  const all = [...devices.map((d) => [d.x, d.y]), ...frames, ...(place ? [[place.x, place.y]] : [])];
  const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const spanX = range(all.map((p) => p[0]), 1e-9), spanY = range(all.map((p) => p[1]), 1e-9);
  const unit = Math.min((width - 2 * edge) / (spanX[1] - spanX[0]), (height - 2 * edge) / (spanY[1] - spanY[0]));
  const x = (value) => width / 2 + unit * (value - (spanX[0] + spanX[1]) / 2);
  const y = (value) => height / 2 - unit * (value - (spanY[0] + spanY[1]) / 2);
  for (const [px, py] of frames) {
    const near = devices.reduce((best, d) => ((d.x - px) ** 2 + (d.y - py) ** 2 < (best.x - px) ** 2 + (best.y - py) ** 2 ? d : best));
    svg.append(s("circle", { cx: x(px), cy: y(py), r: 2.2, fill: colourOf(near.device), opacity: 0.45 }));
  }
  for (const device of devices) {
    const colour = colourOf(device.device);
    svg.append(s("circle", { cx: x(device.x), cy: y(device.y), r: 6, fill: colour, stroke: token("--surface"), "stroke-width": 2 }),
      label(x(device.x), y(device.y), nameOf(device.device), width));
  }
  if (place) {
    const [px, py] = [x(place.x), y(place.y)], ink = token("--ink");
    svg.append(s("circle", { cx: px, cy: py, r: 9, fill: "none", stroke: ink, "stroke-width": 2.5 }),
      s("circle", { cx: px, cy: py, r: 2.5, fill: ink }),
      s("text", { class: "name", x: px, y: py + 24, "text-anchor": "middle", "font-weight": 700 }, "this frame"));
  }
  return svg;
}

function label(x, y, name, width) {
  const right = x > width * 0.75, short = name.length > 22 ? `${name.slice(0, 21)}…` : name;
  return s("text", { class: "name", x: right ? x - 10 : x + 10, y: y + 4, "text-anchor": right ? "end" : "start" }, short);
}

function sized(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

/** A lane of a timeline: a bar for each step with frames, the more of them the fuller. */
export function lane(canvas, steps, frames, [first, last], colour) {
  const { pen, width, height } = sized(canvas), wide = width / (last - first + 1);
  const most = Math.max(1, ...frames);
  pen.fillStyle = colour;
  steps.forEach((step, i) => {
    if (step < first) return;
    const tall = height * (0.35 + 0.65 * Math.sqrt(frames[i] / most));
    pen.fillRect((step - first) * wide, height - tall, Math.max(1, wide - 0.4), tall);
  });
}

/** A lane of marks: [step, colour]. */
export function marks(canvas, found, [first, last]) {
  const { pen, width, height } = sized(canvas);
  for (const [step, colour] of found) {
    if (step < first) continue;
    const x = ((step - first + 0.5) / (last - first + 1)) * width, r = height / 2 - 2;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(x, 2); pen.lineTo(x + r, height / 2); pen.lineTo(x, height - 2); pen.lineTo(x - r, height / 2);
    pen.fill();
  }
}

export const tokenColour = token;
export const figure = (title, note, drawing) => h("figure", {}, h("figcaption", {}, h("b", {}, title), note), drawing);
