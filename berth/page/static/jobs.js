// The table of jobs: which are shown, and in which order. Both are parts of the address.

import { OVER, WAITING } from "./cell.js";
import { element } from "./dom.js";
import { count, number } from "./format.js";
import { age, empty, jobLink, limited, phaseBadge, sortHead, swatch, table } from "./pieces.js";

// Jobs that recover come first, those that wait behind the others, those that are over last.
const placeOf = (job) => (job.phase === "recovering" ? 0 : job.phase === "waiting" ? 2 : OVER.has(job.phase) ? 3 : 1);
const byText = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
const momentOf = (job) => (WAITING.has(job.phase) && job.submitted_ms) || job.since_ms;
const ORDERS = {
  job: (a, b) => byText(a.namespace, b.namespace) || byText(a.name, b.name),
  state: (a, b) => placeOf(a) - placeOf(b) || byText(a.phase, b.phase),
  queue: (a, b) => byText(a.queue, b.queue),
  pods: (a, b) => a.pods - b.pods,
  chips: (a, b) => a.chips - b.chips,
  age: (a, b) => momentOf(b) - momentOf(a),
};
const COLUMNS = [["job", "Job"], ["state", "State"], ["queue", "Queue"], ["pods", "Pods"], ["chips", "Chips"], ["age", "Age"], ["", "Reason"]];
const STATES = { live: "not over", all: "all", over: "ended lately" };

// Jobs that the query of an address asks for, in its order.
export function chosenJobs(cell, query) {
  const state = query.get("state") ?? "live";
  const words = (query.get("find") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const [namespace, queue, code] = ["namespace", "queue", "code"].map((name) => query.get(name) ?? "");
  const found = [...cell.jobs.values()].filter((job) => job.name
    && (state === "all" || (state === "live" ? !OVER.has(job.phase) : state === "over" ? OVER.has(job.phase) : job.phase === state))
    && (!namespace || job.namespace === namespace) && (!queue || job.queue === queue) && (!code || (job.code || "none") === code)
    && words.every((word) => `${job.namespace}/${job.name}`.toLowerCase().includes(word)));
  const { key, sign } = sortOf(query);
  const order = ORDERS[key];
  return found.sort((a, b) => (order ? sign * order(a, b) : placeOf(a) - placeOf(b)) || b.since_ms - a.since_ms || a.n - b.n);
}

export function sortOf(query) {
  const text = query.get("sort") ?? "";
  return text.startsWith("-") ? { key: text.slice(1), sign: -1 } : { key: text, sign: 1 };
}

export function jobsView({ cell, nowMs, limits, isDark, route }) {
  const { query } = route;
  const jobs = chosenJobs(cell, query);
  const hasQueues = showsQueues(cell);
  const columns = COLUMNS.filter(([key]) => key !== "queue" || hasQueues);
  const sort = sortOf(query);
  const [rows, more] = limited(jobs, "jobs", limits, (job) => row(job, hasQueues, nowMs, isDark));
  const heads = columns.map(([key, text]) => (key ? sortHead(key, text, sort) : text));
  const chips = jobs.reduce((sum, job) => sum + job.chips, 0);
  return {
    title: "Jobs",
    content: [
      filters(cell, hasQueues),
      element("p", { class: "muted", role: "status" }, `${count(jobs.length, "job")} with ${count(chips, "chip")}`,
        query.get("code") ? [`, with the reason ${query.get("code")} `, element("button", { type: "button", "data-clear": "code" }, "Any reason")] : ""),
      jobs.length ? table("List of jobs", heads, rows, "data jobs") : empty("No job is like this."),
      more,
    ],
  };
}

// A cell without queues has one that is called default.
function showsQueues(cell) {
  if (cell.hasQueues) return true;
  let first;
  for (const job of cell.jobs.values()) if (job.queue && (first ??= job.queue) !== job.queue) return true;
  return false;
}

function filters(cell, hasQueues) {
  const [namespaces, queues, phases] = [new Set(), new Set(), new Set()];
  for (const job of cell.jobs.values()) {
    if (!job.name) continue;
    namespaces.add(job.namespace);
    if (job.queue) queues.add(job.queue);
    phases.add(job.phase);
  }
  return element("div", { class: "filters", role: "search", "aria-label": "Filter of jobs" },
    element("input", { type: "search", "data-filter": "find", placeholder: "Name", "aria-label": "Name has", autocomplete: "off", spellcheck: "false" }),
    choice("namespace", "Namespace", [["", "all namespaces"], ...named(namespaces)]),
    choice("state", "State", [...Object.entries(STATES).map(([value, text]) => [value === "live" ? "" : value, text]), ...named(phases)]),
    hasQueues ? choice("queue", "Queue", [["", "all queues"], ...named(queues)]) : null);
}

const named = (values) => [...values].sort().map((value) => [value, value]);

function choice(name, label, options) {
  return element("select", { "data-filter": name, "aria-label": label }, options.map(([value, text]) =>
    element("option", { value, "data-key": `${name} ${value}` }, text)));
}

function row(job, hasQueues, nowMs, isDark) {
  return element("tr", { "data-key": String(job.n) },
    element("th", { scope: "row" }, element("span", { class: "job-name" }, swatch(job, isDark), jobLink(job))),
    element("td", {}, phaseBadge(job.phase)),
    hasQueues ? element("td", {}, job.queue) : null,
    element("td", { class: "amount" }, number(job.pods)),
    element("td", { class: "amount" }, number(job.chips)),
    element("td", { class: "amount" }, age(momentOf(job), nowMs)),
    element("td", {}, element("span", { class: "reason", title: job.sentence || null }, job.sentence || job.warning || "")));
}
