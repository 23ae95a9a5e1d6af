// The first view: what waits and why, what is broken, how full the cell is, and what changed in the last hour.

import { OVER, RESERVED, UNHEALTHY, WITHHELD } from "./cell.js";
import { element } from "./dom.js";
import { faultGroups, worstBadge } from "./faults.js";
import { count, number, percent } from "./format.js";
import { groupTitle } from "./groups.js";
import { hourPart } from "./hour.js";
import { age, badge, empty, jobLinks, limited, table, useBar } from "./pieces.js";
import { waitingFor } from "./reasons.js";
import { addressOfGroup, addressOfJobs, addressOfNode } from "./routes.js";

const SHOWN = 6;

export function homeView({ cell, groups, limits, notes, nowMs, document, error }) {
  const total = cell.totals(cell.allRows());
  const running = [...cell.jobs.values()].filter((job) => !OVER.has(job.phase) && !job.is_foreign).length - cell.queue.length;
  const serious = cell.faults.length > 0;
  return {
    title: "Cell",
    content: [
      element("ul", { class: "figures" },
        figure(percent(total.used, total.chips), `${number(total.used)} of ${count(total.chips, "chip")} in use`, "#/jobs"),
        figure(number(running), running === 1 ? "job placed" : "jobs placed", "#/jobs"),
        figure(number(cell.queue.length), cell.queue.length === 1 ? "job waits" : "jobs wait", "#/queue"),
        figure(number(cell.faults.length), cell.faults.length === 1 ? "fault" : "faults", "#/faults", serious)),
      element("div", { class: "answers" },
        part("What waits, and why", waitingPart(cell, nowMs)),
        part("What is broken", brokenPart(cell, nowMs)),
        part("How full it is", fullPart(cell)),
        part("What changed in the last hour", hourPart(document, error, cell, nowMs, limits))),
      groupsPart(cell, groups, limits),
      notes?.length ? [element("h3", {}, "About this recording"), element("ul", { class: "why" }, notes.map((note) => element("li", {}, note)))] : null,
    ],
  };
}

function part(title, content) {
  return element("section", { "data-key": title, "aria-label": title }, element("h3", {}, title), content);
}

function figure(value, label, href, isBad = false) {
  return element("li", { class: isBad ? "figure bad" : "figure" },
    element("a", { href }, element("strong", {}, value), " ", element("span", {}, label)));
}

function waitingPart(cell, nowMs) {
  const found = waitingFor(cell);
  if (found.length === 0) return empty("Nothing waits.");
  const chips = found.reduce((sum, one) => sum + one.chips, 0);
  return [
    element("p", { class: "muted" }, `${count(cell.queue.length, "job waits", "jobs wait")} for ${count(chips, "chip")}.`),
    table("Reasons", ["Reason", "Jobs", "Chips", "Oldest"], found.slice(0, SHOWN).map((one) => element("tr", { "data-key": one.key },
      element("th", { scope: "row" }, element("a", { class: "reason", href: addressOfJobs({ state: "waiting", code: one.code || "none" }), title: one.text }, one.text)),
      element("td", { class: "amount" }, number(one.jobs)),
      element("td", { class: "amount" }, number(one.chips)),
      element("td", { class: "amount" }, age(one.oldestMs, nowMs)))), "tight"),
    rest(found.length - SHOWN, "reason", "#/queue"),
  ];
}

function rest(more, word, href) {
  return more > 0 ? element("p", {}, element("a", { href }, `${count(more, `more ${word}`)}`)) : null;
}

function brokenPart(cell, nowMs) {
  const found = faultGroups(cell);
  if (found.length === 0) return element("p", {}, badge("no faults", "good", "●"));
  return [
    table("Faults by place", ["Where", "What", "Since"], found.slice(0, SHOWN).map((one) => element("tr", { "data-key": one.key },
      element("th", { scope: "row" },
        element("a", { class: "name", href: one.group ? addressOfGroup(one.group) : addressOfNode(one.title) }, one.title),
        one.nodes > 1 ? element("span", { class: "muted small block" }, `${number(one.nodes)} of ${count(one.of, "node")}`) : null),
      element("td", {}, worstBadge(one.level, one.chips),
        one.jobs.length ? element("span", { class: "small block" }, jobLinks(one.jobs, 2)) : null),
      element("td", { class: "amount" }, one.sinceMs ? age(one.sinceMs, nowMs) : "unknown"))), "tight"),
    rest(found.length - SHOWN, "place", "#/faults"),
  ];
}

function fullPart(cell) {
  const { products, namespaces, free } = fullness(cell);
  const shown = [free.nodes && count(free.nodes, "node"), free.leaves && count(free.leaves, "leaf switch", "leaf switches"),
    free.superpods && count(free.superpods, "SuperPoD")].filter(Boolean).join(", ");
  const line = (key, href, name, used, chips) => element("tr", { "data-key": key },
    element("th", { scope: "row" }, href ? element("a", { class: "name", href }, name) : element("span", { class: "name" }, name)),
    element("td", { class: "amount" }, useBar(used, chips), ` ${number(used)} / ${number(chips)}`));
  const all = products.reduce((sum, [, one]) => sum + one.chips, 0);
  return [
    element("p", {}, "Free as a whole: ", element("strong", {}, shown || "nothing"), "."),
    table("Chips in use by product", ["Product", "Chips in use"], products.map(([name, { used, chips }]) => line(name, "", name || "other", used, chips)), "tight bars"),
    namespaces.length ? table("Chips in use by namespace", ["Namespace", "Chips in use"], namespaces.slice(0, SHOWN).map(([name, used]) =>
      line(name, name && addressOfJobs({ namespace: name }), name || "not visible to you", used, all)), "tight bars") : null,
    rest(namespaces.length - SHOWN, "namespace", "#/jobs"),
  ];
}

// Chips in use by product and by namespace, and what is free as a whole: all chips free, and nothing keeps new work away.
export function fullness(cell) {
  const products = new Map();
  const busy = { leaves: new Set(), superpods: new Set() };
  const known = { leaves: new Set(), superpods: new Set() };
  let nodes = 0;
  let used = 0;
  cell.layout.nodes.forEach(([, product, superpod, , leaf], row) => {
    const sum = products.get(product) ?? { used: 0, chips: 0 };
    products.set(product, sum);
    sum.used += cell.used[row];
    sum.chips += cell.chipsOf(row);
    used += cell.used[row];
    const node = cell.nodes[row];
    const isFree = !cell.used[row] && !cell.condition[row] && !node[UNHEALTHY] && !node[WITHHELD] && !node[RESERVED];
    if (isFree) nodes += 1;
    for (const [kind, index] of [["leaves", leaf], ["superpods", superpod]]) {
      if (index < 0) continue;
      known[kind].add(index);
      if (!isFree) busy[kind].add(index);
    }
  });
  const namespaces = new Map();
  for (const job of cell.jobs.values()) {
    if (!cell.rowsByJob.has(job.n) || !job.name) continue;
    namespaces.set(job.namespace, (namespaces.get(job.namespace) ?? 0) + job.chips);
  }
  if (cell.isPartial) namespaces.set("", Math.max(0, used - [...namespaces.values()].reduce((sum, one) => sum + one, 0)));
  const free = { nodes, leaves: known.leaves.size - busy.leaves.size, superpods: known.superpods.size - busy.superpods.size };
  return {
    products: [...products].map(([index, sum]) => [cell.layout.products[index] ?? "", sum]),
    namespaces: [...namespaces].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)),
    free,
  };
}

function groupsPart(cell, groups, limits) {
  const [rows, more] = limited(groups, "groups", limits, (group) => groupRow(cell, group));
  return [
    element("h3", {}, "SuperPoDs and leaf switches"),
    groups.length === 0 ? empty("The cell has no nodes.") : table("Groups of nodes", ["Group", "Nodes", "Chips in use", "State"], rows),
    more,
  ];
}

function groupRow(cell, group) {
  const sum = cell.totals(group.rows);
  return element("tr", { "data-key": `${group.kind} ${group.name}` },
    element("th", { scope: "row" }, element("a", { href: addressOfGroup(group), class: "name" }, groupTitle(group))),
    element("td", { class: "amount" }, number(sum.nodes)),
    element("td", { class: "amount" }, useBar(sum.used, sum.chips), ` ${number(sum.used)} / ${number(sum.chips)}`),
    element("td", {}, groupState(sum)));
}

// The worst state of its nodes, and how many have it.
function groupState(sum) {
  const nodes = sum.worst ? worstBadge(sum.worst, 0, sum.ofWorst > 1 ? `${number(sum.ofWorst)} nodes ` : "") : null;
  const chips = sum.unhealthy ? badge(count(sum.unhealthy, "chip"), "bad", "✕") : null;
  return nodes || chips ? [nodes, nodes && chips ? " " : "", chips] : "ok";
}
