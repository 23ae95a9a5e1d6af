// Pieces that several views show: links, badges, lists with a limit.

import { OVER } from "./cell.js";
import { jobColor } from "./colors.js";
import { element } from "./dom.js";
import { clockUtc, count, iso, momentWords, number, span } from "./format.js";
import { addressOfJob, addressOfNode } from "./routes.js";

const PHASES = {
  waiting: "◔", recovering: "↻", placed: "◑", bound: "◕", running: "●", ending: "◌", succeeded: "✓", failed: "✕",
  cancelled: "–", rejected: "✕", accepted: "◔", submitted: "◔", backup: "◑",
};
const BAD = new Set(["failed", "rejected"]);
const CALM = new Set(["succeeded", "cancelled", "ending"]);

export function phaseBadge(phase) {
  const kind = BAD.has(phase) ? "bad" : phase === "waiting" || phase === "recovering" ? "warn" : CALM.has(phase) ? "calm" : "good";
  return badge(phase, kind, PHASES[phase] ?? "●");
}

export function badge(text, kind, sign = "") {
  return element("span", { class: `badge ${kind}` }, sign && element("span", { "aria-hidden": "true" }, `${sign} `), text);
}

const LEVELS = new Map([
  ["evict", ["bad", "✕"]], ["unhealthy", ["bad", "✕"]], ["not ready", ["bad", "✕"]], ["gone", ["bad", "✕"]],
  ["no new work", ["warn", "▲"]], ["recovering", ["warn", "↻"]],
]);

const levelOf = (condition) => (condition === "sub-healthy" ? condition : condition.replaceAll("-", " "));

export function conditionKind(condition) {
  return LEVELS.get(levelOf(condition))?.[0] ?? "warn";
}

export function conditionBadge(condition) {
  const text = levelOf(condition);
  const [kind, sign] = LEVELS.get(text) ?? ["warn", "◥"];
  return badge(text, kind, sign);
}

export function swatch(job, isDark) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.backgroundColor = jobColor(job, isDark);
  return made;
}

// Name of a job as a link; a job that the reader may not see, or of another scheduler, has no story.
export function jobLink(job) {
  if (job === undefined) return element("span", { class: "muted" }, "unknown job");
  if (!job.name) return element("span", { class: "muted" }, "job of another namespace");
  const name = [element("span", { class: "namespace" }, `${job.namespace}/`), job.name];
  return element("a", { href: addressOfJob(job), class: "name" }, name, job.is_foreign && " (other scheduler)");
}

// The first of some jobs, and how many others.
export function jobLinks(jobs, most) {
  const links = jobs.slice(0, most).flatMap((job, index) => (index ? [", ", jobLink(job)] : [jobLink(job)]));
  return jobs.length > most ? [links, ` and ${number(jobs.length - most)} more`] : links;
}

export function nodeLink(name) {
  return element("a", { href: addressOfNode(name), class: "name" }, name);
}

// Time since a moment, with the moment as its title. 0: unknown.
export function age(ms, nowMs, words = "") {
  if (!ms) return null;
  return element("time", { datetime: iso(ms), title: momentWords(ms) }, span(nowMs - ms) + words);
}

export function moment(ms, nowMs) {
  return element("time", { datetime: iso(ms), title: momentWords(ms) }, clockUtc(ms, nowMs));
}

// Terms with their descriptions; rows without a description are left out.
export function terms(...rows) {
  return element("dl", {}, rows
    .filter(([, description]) => description !== null && description !== undefined && description !== "")
    .map(([term, description]) => element("div", {}, element("dt", {}, term), element("dd", {}, description))));
}

export function empty(text) {
  return element("p", { class: "empty" }, text);
}

// The first items of a list, and a button for more. `limits` remembers how many a reader wants.
export function limited(items, name, limits, make, first = 100) {
  const limit = limits.get(name) ?? first;
  const shown = items.slice(0, limit).map(make);
  if (items.length <= limit) return [shown, null];
  const rest = items.length - limit;
  const more = element("button", { type: "button", "data-more": name, "data-first": String(first), class: "more" },
    `Show ${Math.min(200, rest)} more of ${number(rest)}`);
  return [shown, more];
}

export function sizeOf(job) {
  return `${count(job.pods, "pod")}, ${count(job.chips, "chip")}`;
}

export function isOver(job) {
  return OVER.has(job.phase);
}

// Share of chips in use, as a bar. The numbers beside it say the same.
export function useBar(used, chips) {
  const inner = element("span", {});
  inner.style.width = `${chips ? (100 * used) / chips : 0}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, inner);
}

// Head of a column by which a reader can sort: one press ascending, the next one descending.
export function sortHead(key, text, sort) {
  const isBy = sort.key === key;
  const next = isBy && sort.sign > 0 ? `-${key}` : key;
  return element("th", { scope: "col", "aria-sort": isBy ? (sort.sign > 0 ? "ascending" : "descending") : null },
    element("button", { type: "button", class: "sort", "data-sort": next }, text,
      element("span", { "aria-hidden": "true" }, isBy ? (sort.sign > 0 ? " ▲" : " ▼") : "")));
}

// A table that scrolls within itself where it is too wide. A row is a list of cells, or a made row.
export function table(caption, heads, rows, className = null) {
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, element("table", { class: className },
    element("caption", { class: "unseen" }, caption),
    element("thead", {}, element("tr", {}, heads.map((head) => (head instanceof Node ? head : element("th", { scope: "col" }, head))))),
    element("tbody", {}, rows.map((cells) => (cells instanceof Node ? cells : element("tr", {}, cells.map((one) => element("td", {}, one))))))));
}
