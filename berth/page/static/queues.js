// The view of the queues: their tree with what each holds, borrows, is entitled to and may hold, and who waits.

import { element } from "./dom.js";
import { amountText } from "./format.js";
import { age, badge, empty, table } from "./pieces.js";
import { addressOfJobs } from "./routes.js";

const SHARED = new Set(["cpu", "memory"]); // below the chips: they seldom bind

// `document`: the reply to `queues` with the queues of all its pages; null while it is being read.
export function queuesView({ cell, document, error, nowMs }) {
  const title = "Queues";
  if (!cell.hasQueues) return { title, content: [empty("This cell has no queues: its jobs share the whole cell.")] };
  if (!document) return { title, content: [empty(error ? `The queues are not available: ${error}.` : "Reading the queues.")] };
  const lines = linesOf(document.queues.filter((queue) => queue.is_valid));
  const broken = document.queues.filter((queue) => !queue.is_valid);
  const resources = [...new Set(lines.flatMap(({ queue }) => queue.amounts.map((amount) => amount.resource)))];
  const isShared = (resource) => SHARED.has(resource);
  const part = (resource) => [element("h3", {}, resource), amounts(lines, resource, nowMs)];
  return {
    title,
    content: [
      error ? element("p", { class: "notice" }, `The queues are old: ${error}.`) : null,
      document.are_applied ? null : element("p", { class: "callout" },
        "The cell does not apply these queues: the setting decisions.queues of the dispatcher is 0."),
      broken.length ? [element("h3", {}, "Not valid"), element("ul", { class: "cards" }, broken.map(brokenCard))] : null,
      resources.length ? resources.filter((one) => !isShared(one)).map(part) : amounts(lines, "", nowMs),
      resources.some(isShared)
        ? element("details", { class: "others" }, element("summary", {}, "CPUs and memory"), resources.filter(isShared).map(part)) : null,
      resources.length ? legend() : null,
    ],
  };
}

// Queues, each behind the one above it, with the jobs that wait there and below.
function linesOf(queues) {
  const below = Map.groupBy(queues, (queue) => queue.parent);
  const found = [];
  const take = (queue, depth) => {
    const line = { queue, depth, waiting: queue.waiting, oldestMs: queue.oldest_ms, isLeaf: !below.has(queue.name) };
    found.push(line);
    for (const child of below.get(queue.name) ?? []) {
      const { waiting, oldestMs } = take(child, depth + 1);
      line.waiting += waiting;
      if (oldestMs && (!line.oldestMs || oldestMs < line.oldestMs)) line.oldestMs = oldestMs;
    }
    return line;
  };
  for (const queue of below.get("") ?? []) take(queue, 0);
  return found;
}

function amounts(lines, resource, nowMs) {
  const heads = resource ? ["Queue", "Use", "Held", "Borrowed", "Entitled", "Limit", "Waiting", "Oldest"] : ["Queue", "Waiting", "Oldest"];
  const whole = amountOf(lines[0]?.queue, resource)?.entitled ?? 0;
  return table(resource ? `Queues ${resource}` : "Tree of queues", heads, lines.map((line) => row(line, resource, whole, nowMs)), "data");
}

function row({ queue, depth, waiting, oldestMs, isLeaf }, resource, whole, nowMs) {
  const amount = amountOf(queue, resource);
  const text = (value) => (value === null || value === undefined ? "-" : amountText(resource, value));
  const cell = (content) => element("td", { class: "amount" }, content);
  const borrowed = amount ? Math.max(0, amount.held - amount.entitled) : 0;
  const numbers = resource ? [
    element("td", {}, amount ? shareBar(amount, whole) : ""),
    cell(text(amount?.held)), cell(borrowed ? element("strong", { class: "borrowed" }, text(borrowed)) : "-"),
    cell(text(amount?.entitled)), cell(text(amount?.limit)),
  ] : [];
  return element("tr", { "data-key": queue.name }, name(queue, depth, isLeaf), numbers,
    cell(waiting ? String(waiting) : "-"), cell(oldestMs ? age(oldestMs, nowMs) : "-"));
}

function name(queue, depth, isLeaf) {
  const made = element("th", { scope: "row" },
    isLeaf ? element("a", { href: addressOfJobs({ queue: queue.name, state: "all" }), class: "name" }, queue.name) : element("span", { class: "name" }, queue.name),
    queue.is_declared || queue.name === "root" ? null : element("span", { class: "muted small" }, " (made)"),
    queue.state === "Open" ? null : [" ", badge(queue.state.toLowerCase(), "warn", "■")],
    queue.namespaces ? element("span", { class: "muted small block" }, `for ${queue.namespaces.join(", ") || "none that you may read"}`) : null);
  made.style.paddingLeft = `${Math.min(depth, 8) * 14}px`;
  return made;
}

function amountOf(queue, resource) {
  return queue?.amounts.find((amount) => amount.resource === resource);
}

// The whole bar is the limit; without one it is what the nodes have. The numbers beside it say the same.
function shareBar({ held, entitled, limit }, whole) {
  const most = Math.max(limit ?? whole, held, entitled, Number.MIN_VALUE);
  const part = (className, from, to) => {
    const made = element("span", { class: className });
    made.style.left = `${(100 * from) / most}%`;
    made.style.width = `${(100 * (to - from)) / most}%`;
    return made;
  };
  const mark = element("span", { class: "mark" });
  mark.style.left = `calc(${(100 * entitled) / most}% - 1px)`;
  return element("span", { class: "bar share", "aria-hidden": "true" },
    part("own", 0, Math.min(held, entitled)), held > entitled ? part("over", entitled, held) : null, entitled > 0 ? mark : null);
}

function legend() {
  return element("p", { class: "muted small" },
    "A bar is as long as the limit of the queue, or as the nodes have without one: what it holds, striped what it borrows, and a line at what it is entitled to. ",
    "Amounts and waiting jobs of a queue are with those below it.");
}

function brokenCard(queue) {
  return element("li", { class: "card bad", "data-key": queue.name },
    element("div", { class: "card-head" }, badge("not valid", "bad", "✕"), element("strong", {}, queue.name),
      element("span", { class: "muted small" }, queue.parent && `below ${queue.parent}`),
      queue.waiting ? element("span", { class: "card-age" }, `${queue.waiting} wait`) : null),
    element("p", { class: "sentence" }, queue.reason));
}
