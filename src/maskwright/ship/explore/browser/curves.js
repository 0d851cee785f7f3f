// Curves over one axis, of any length: each column of pixels shows the lowest and the highest value
// in it, and a line their mean, so that nothing is lost and a picture never has more points.

import { el, figure, svg, widthOf } from "./ui.js";

const MARGIN = { left: 52, right: 14, top: 12, bottom: 34 };
const SMOOTH = 160; // columns of the line where there are many points

/** [{x, low, mean, high}] of at most `number` columns between `from` and `to`; points that are not
 * finite are left out. `points` is {x, y}, two arrays. */
export function columns(points, number, from, to) {
  const width = (to - from) / number || 1;
  const all = new Map();
  for (let n = 0; n < points.x.length; n++) {
    const x = points.x[n], y = points.y[n];
    if (!Number.isFinite(x) || !Number.isFinite(y) || x < from || x > to) continue;
    const place = Math.min(number - 1, Math.floor((x - from) / width));
    const column = all.get(place);
    if (column === undefined) all.set(place, { place, sum: y, across: x, count: 1, low: y, high: y });
    else {
      column.sum += y;
      column.across += x;
      column.count++;
      if (y < column.low) column.low = y;
      if (y > column.high) column.high = y;
    }
  }
  return [...all.values()].sort((a, b) => a.place - b.place)
    .map(({ sum, across, count, low, high }) => ({ x: across / count, low, mean: sum / count, high }));
}

/** Round numbers from `low` to `high`, about `count` of them. */
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((each) => each >= rough);
  const segments = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) segments.push(n * step);
  return segments;
}

/** A count in few figures: 850, 12.4 k, 3.1 M, 3.95e-6. */
export function count(value) {
  for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size * 0.9995) return `${Number((value / size).toPrecision(3))} ${letter}`;
  }
  const figures = Number(value.toPrecision(3));
  return figures !== 0 && Math.abs(figures) < 1e-4 ? figures.toExponential() : String(figures);
}

/** lines: [{name, points: {x, y}, kind?, band?, dots?, dashed?}], references: [{name, y}].
 * Null where no point is finite. */
export function chart({ title, lines, references = [], across, say = count, fromZero = false, width = 720, height = 300, logarithmic = false, name }) {
  const drawn = lines.map((line) => ({ ...line, range: rangeOf(line.points) })).filter((line) => line.range !== null);
  if (!drawn.length) return null;
  const least = Math.min(...drawn.map((l) => l.range.x[0])), most = Math.max(...drawn.map((l) => l.range.x[1]));
  const from = !logarithmic && least < most / 2 ? Math.min(0, least) : least; // 0 where that leaves room
  const to = most > from ? most : from + 1;
  const heights = drawn.flatMap((l) => l.band ? [l.range.y[0], l.range.near] : l.range.y);
  const finiteReferences = references.filter((r) => Number.isFinite(r.y));
  let low = Math.min(...heights, ...finiteReferences.map((r) => r.y)), high = Math.max(...heights, ...finiteReferences.map((r) => r.y));
  if (fromZero && low > 0) low = 0;
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  high += room;
  if (!(fromZero && low === 0)) low -= room;
  const { left, right, top, bottom } = MARGIN;
  const scale = logarithmic ? (x) => Math.log(Math.max(x, 1e-12)) : (x) => x;
  const across0 = scale(from), across1 = scale(to) > across0 ? scale(to) : across0 + 1;
  const x = (value) => left + ((scale(value) - across0) / (across1 - across0)) * (width - left - right);
  const y = (value) => height - bottom - ((Math.max(low, Math.min(high, value)) - low) / (high - low)) * (height - bottom - top);
  const at = (n) => n.toFixed(1);
  const label = `${title}. ${drawn.map((l) => `${l.name}: from ${say(l.range.first)} to ${say(l.range.last)}`).join("; ")}` +
    finiteReferences.map((r) => `; ${r.name}: ${say(r.y)}`).join("");
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": label },
    ticks(low, high).map((value) => [
      svg("line", { class: "grid", x1: left, x2: width - right, y1: at(y(value)), y2: at(y(value)) }),
      svg("text", { class: "soft end", x: left - 6, y: at(y(value) + 4) }, say(value))]).flat(),
    placesAcross(from, to, logarithmic, width).map((value) => {
      const text = count(value), ends = x(value) + widthOf(text) / 2 > width; // at the edge, within it
      return svg("text", { class: `soft ${ends ? "end" : "middle"}`, x: ends ? width : at(x(value)), y: height - bottom + 17 }, text);
    }),
    svg("text", { class: "soft end", x: width - right, y: height - 3 }, across),
    finiteReferences.map((r) => svg("line", { class: "reference", x1: left, x2: width - right, y1: at(y(r.y)), y2: at(y(r.y)) })),
    together(finiteReferences, y).map((near) => svg("text", { class: "soft end", x: width - right, y: at(Math.min(...near.map((r) => y(r.y))) - 4) },
      near.map((r) => `${r.name} ${say(r.y)}`).join(", "))),
    drawn.map((line) => series(line, { x, y, at, say, from, to, inside: width - left - right, scale, across0, across1, logarithmic })));
  const keys = el("ul", { class: "keys" }, drawn.map((line) => el("li", { class: line.kind || null },
    svg("svg", { viewBox: "0 0 22 10", width: 22, height: 10, "aria-hidden": "true" },
      svg("line", { class: `line ${line.dashed ? "dashed" : ""}`, x1: 1, x2: 21, y1: 5, y2: 5 }),
      line.dots ? svg("circle", { class: "dot", cx: 11, cy: 5, r: 3 }) : null),
    ` ${line.name} `, el("output", {}, say(line.range.last)))));
  const box = figure(picture, title, name);
  box.insertBefore(keys, box.querySelector(".wide"));
  return box;
}

/** Reference lines whose names would lie on one another, together. */
function together(lines, y) {
  const groups = [];
  for (const line of [...lines].sort((a, b) => a.y - b.y)) {
    const last = groups.at(-1);
    if (last !== undefined && Math.abs(y(line.y) - y(last[0].y)) < 15) last.push(line);
    else groups.push([line]);
  }
  return groups;
}

/** Lowest and highest x and y, first and last y of points; `near` leaves out the highest half per
 * cent, which may be a spike. */
function rangeOf({ x, y }) {
  const finite = [...x.keys()].filter((n) => Number.isFinite(x[n]) && Number.isFinite(y[n]));
  if (!finite.length) return null;
  const [xs, ys] = [x, y].map((values) => Float64Array.from(finite, (n) => values[n]).sort());
  return {
    x: [xs[0], xs.at(-1)], y: [ys[0], ys.at(-1)], near: ys[Math.ceil(0.995 * ys.length) - 1],
    first: y[finite[0]], last: y[finite.at(-1)],
  };
}

function placesAcross(from, to, logarithmic, width) {
  const few = Math.max(2, Math.round(width / 130));
  if (!logarithmic) return ticks(from, to, few);
  const powers = [];
  for (let power = Math.ceil(Math.log10(Math.max(from, 1e-12)) - 1e-9); 10 ** power <= to; power++) powers.push(10 ** power);
  return powers.length > 1 ? powers : [from, to];
}

function series(line, { x, y, at, say, from, to, inside, scale, across0, across1, logarithmic }) {
  const points = logarithmic ? { x: line.points.x.map(scale), y: line.points.y } : line.points;
  const [begin, end] = logarithmic ? [across0, across1] : [from, to];
  const back = logarithmic ? (value) => Math.exp(value) : (value) => value;
  const many = line.points.x.length > 2 * SMOOTH;
  const middle = columns(points, many ? SMOOTH : Math.max(line.points.x.length, 1) * 4, begin, end);
  const parts = [];
  if (line.band && many) {
    const edges = columns(points, Math.floor(inside), begin, end);
    parts.push(svg("path", { class: "band", d: `M${edges.map((c) => `${at(x(back(c.x)))},${at(y(c.high))}`).join("L")}` +
      `L${edges.reverse().map((c) => `${at(x(back(c.x)))},${at(y(c.low))}`).join("L")}Z` }));
  }
  parts.push(svg("polyline", { class: `line ${line.dashed ? "dashed" : ""}`, points: middle.map((c) => `${at(x(back(c.x)))},${at(y(c.mean))}`).join(" ") }));
  if (line.dots && middle.length <= 60) {
    parts.push(...middle.map((c) => svg("circle", { class: "dot", cx: at(x(back(c.x))), cy: at(y(c.mean)), r: 3 },
      svg("title", {}, `${count(back(c.x))}: ${say(c.mean)}`))));
  }
  return svg("g", { class: line.kind || null }, parts);
}
