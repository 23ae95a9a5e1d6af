// The last hour: lines of chips in use and of jobs that wait, how often what happened, and the newest of it.

import { element, svg } from "./dom.js";
import { clock, count, isElapsed, iso, number, percent, span } from "./format.js";
import { badge, conditionBadge, empty, limited, moment, phaseBadge } from "./pieces.js";
import { addressOfJob } from "./routes.js";

const WORDS = {
  waiting: ["began to wait"], placed: ["placed"], succeeded: ["succeeded"], failed: ["failed"], cancelled: ["cancelled"], rejected: ["rejected"],
  fault: ["fault", "faults"], repaired: ["repaired"], came: ["node came", "nodes came"], left: ["node left", "nodes left"],
  drained: ["node drained", "nodes drained"], undrained: ["node undrained", "nodes undrained"],
};
const [WIDTH, HEIGHT] = [360, 44];
const FIRST = 12; // events that are shown at first

// `document`: the hour as the gateway or a recording has it; null or undefined while it is being read.
export function hourPart(document, error, cell, nowMs, limits) {
  if (!document) return empty(error ? `The last hour is not available: ${error}.` : "Reading the last hour.");
  const { points, begin_ms: beginMs, at_ms: atMs, chips, counts, events } = document;
  const now = { atMs, used: points.at(-1)?.[1] ?? 0, waiting: points.at(-1)?.[2] ?? 0 };
  const most = Math.max(1, ...points.map((point) => point[2]));
  const [rows, more] = limited(events, "events of the hour", limits, (event) => eventRow(event, nowMs), FIRST);
  const happened = Object.entries(WORDS).filter(([what]) => counts[what])
    .map(([what, [one, many = one]]) => `${number(counts[what])} ${counts[what] === 1 ? one : many}`);
  return [
    chart("Chips in use", points, 1, chips, beginMs, atMs, `${percent(now.used, chips)} now`, "area"),
    chart("Jobs that wait", points, 2, most, beginMs, atMs, `${number(now.waiting)} now, at most ${number(most === 1 && !points.some((one) => one[2]) ? 0 : most)}`, "line"),
    element("p", { class: "axis muted small" }, element("span", {}, moment(beginMs, nowMs)), element("span", {}, moment(atMs, nowMs))),
    atMs - beginMs < 3_590_000 ? element("p", { class: "muted small" }, `Known for ${span(atMs - beginMs)}.`) : null,
    element("p", { class: "small" }, happened.length ? happened.join(", ") : "Nothing happened."),
    events.length ? element("ul", { class: "feed" }, rows) : null,
    more,
  ];
}

function chart(title, points, place, most, beginMs, endMs, text, kind) {
  const x = (ms) => ((WIDTH * (ms - beginMs)) / Math.max(1, endMs - beginMs)).toFixed(1);
  const y = (value) => (HEIGHT - 2 - ((HEIGHT - 4) * value) / Math.max(1, most)).toFixed(1);
  let path = "";
  let last = null;
  for (const point of points) {
    if (last !== null) path += `L${x(point[0])} ${y(last)}`;
    path += `${last === null ? "M" : "L"}${x(point[0])} ${y(point[place])}`;
    last = point[place];
  }
  if (last !== null) path += `L${WIDTH} ${y(last)}`;
  const values = points.map((point) => point[place]);
  const words = values.length ? `${title}: from ${number(Math.min(...values))} to ${number(Math.max(...values))}, ${text}` : title;
  return element("figure", { class: `chart ${kind}` },
    element("figcaption", {}, title, element("span", { class: "muted" }, ` ${text}`)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
      path && kind === "area" ? svg("path", { class: "fill", d: `${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z` }) : null,
      path ? svg("path", { class: "stroke", d: path }) : null));
}

function eventRow(event, nowMs) {
  const key = `${event.at_ms} ${event.what} ${event.namespace}/${event.name} ${event.place}`;
  const text = clock(event.at_ms, isElapsed(nowMs) ? nowMs : event.at_ms); // within an hour the date says nothing
  return element("li", { "data-key": key }, element("time", { datetime: iso(event.at_ms) }, text),
    element("span", {}, event.namespace ? jobWords(event) : nodeWords(event)));
}

function jobWords(event) {
  return [phaseBadge(event.what), " ", element("a", { class: "name", href: addressOfJob(event) }, `${event.namespace}/${event.name}`),
    event.sentence && event.what !== "waiting" ? element("span", { class: "muted small block" }, event.sentence) : null];
}

// Nodes that came or left may be anywhere: the first of them stands for all.
function nodeWords({ what, place, nodes, level, sentence }) {
  const sign = what === "fault" ? conditionBadge(level)
    : what === "repaired" ? badge(`no longer ${level.replaceAll("-", " ")}`, "good", "●") : badge(what, "calm", "");
  const others = what === "came" || what === "left" ? ` and ${count(nodes - 1, "other")}` : `: ${count(nodes, "node")}`;
  return [sign, ` ${place}${nodes > 1 ? others : ""}`, sentence ? element("span", { class: "muted small block" }, sentence) : null];
}
