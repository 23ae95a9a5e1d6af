// Views in the panel: group, node, queue, faults. Each returns its title and its content.

import { actionsPart, approveButton, placeButtons, placeOf } from "./actions.js";
import { ABSENT, DRAINED, NETWORK_UNHEALTHY, OWNERS, RELEASING, RESERVED, SHARERS, UNHEALTHY, UNNAMED, WITHHELD, ownersOf } from "./cell.js";
import { approveCommand, commandsPart, nodeCommands, placeCommands } from "./commands.js";
import { element } from "./dom.js";
import { bits, count, number, ranges } from "./format.js";
import { groupTitle } from "./groups.js";
import { linksPart } from "./links.js";
import { age, badge, conditionBadge, empty, jobLink, jobLinks, limited, moment, nodeLink, sizeOf, swatch, table, terms } from "./pieces.js";
import { address, addressOfGroup } from "./routes.js";

// What a view needs: the cell, the arranged map, the time, the theme, the limits of lists, and the route.
// `page`: { cell, groups, nowMs, isDark, limits, route, source }.

export function groupView({ cell, groups, limits, route, nowMs, rights, document, isRecorded }) {
  const [kind, name] = route.names;
  const group = groups.find((one) => one.kind === kind && one.name === name);
  if (!group) return { title: "Group", content: [empty(`There is no group ${kind ?? ""} ${name ?? ""} in this cell.`)] };
  const sum = cell.totals(group.rows);
  const isPlace = kind === "leaf" || kind === "superpod";
  const drained = drainsOf(document, [[kind, name]]);
  const [rows, more] = limited(group.rows, `group ${kind} ${name}`, limits, (row) => nodeRow(cell, row));
  return {
    title: groupTitle(group),
    content: [
      element("p", {}, `${count(sum.nodes, "node")}, ${number(sum.used)} of ${count(sum.chips, "chip")} in use` +
        (sum.limited ? `, ${count(sum.limited, "node")} with a limit.` : ".")),
      drained?.map((one) => drainWords(one, nowMs)),
      isPlace ? [actionsPart(placeButtons(kind, name, rights, drained)), isRecorded ? null : commandsPart(placeCommands(kind, name, drained))] : null,
      table(`Nodes of ${groupTitle(group)}`, ["Node", "In use", "Jobs", "State"], rows),
      more,
    ],
  };
}

function nodeRow(cell, row) {
  const owners = [...ownersOf(cell.nodes[row])].filter((owner) => owner > 0);
  const names = owners.map((owner) => jobLink(cell.jobs.get(owner)));
  if (cell.nodes[row][OWNERS].includes(-1)) names.push(element("span", { class: "muted" }, "not visible to you"));
  return element("tr", { "data-key": cell.nodeName(row) },
    element("th", { scope: "row" }, nodeLink(cell.nodeName(row))),
    element("td", { class: "amount" }, `${cell.used[row]} / ${cell.chipsOf(row)}`),
    element("td", {}, names.flatMap((name, index) => (index ? [", ", name] : [name]))),
    element("td", {}, cell.condition[row] ? conditionBadge(cell.condition[row]) : chipFaults(cell.nodes[row])));
}

function chipFaults(node) {
  const chips = bits(node[UNHEALTHY], node[OWNERS].length);
  return chips.length ? badge(chipsText(chips), "bad", "✕") : "ok";
}

function chipsText(chips) {
  return `${chips.length === 1 ? "chip" : "chips"} ${ranges(chips)}`;
}

// Drains that concern one of some places; undefined while they are not known.
function drainsOf(document, places) {
  return document?.drains.filter((one) => places.some(([kind, name]) => one.kind === kind && one.name === name));
}

function drainWords({ kind, name, since_ms: sinceMs, by, reason }, nowMs) {
  const what = kind === "superpod" ? "SuperPoD" : kind === "leaf" ? "Leaf switch" : "Node";
  const words = sinceMs > nowMs ? "will be drained from" : "is drained since";
  return element("p", {}, `${what} ${name} ${words} `, moment(sinceMs, nowMs), `${by ? `, by ${by}` : ""}${reason ? `: ${reason}` : "."}`);
}

export function nodeView({ cell, route, nowMs, isDark, rights, links, document, isRecorded }) {
  const [name] = route.names;
  const row = cell.rowOf.get(name);
  if (row === undefined) return { title: `Node ${name ?? ""}`, content: [empty(`There is no node ${name ?? ""} in this cell.`)] };
  const node = cell.nodes[row];
  const [, , superpod, rack, leaf] = cell.layout.nodes[row];
  const length = node[OWNERS].length;
  const slots = (mask) => (mask ? chipsText(bits(mask, length)) : "");
  const faults = cell.faults.filter((fault) => fault.node === row);
  const group = superpod >= 0 ? { kind: "superpod", name: cell.layout.superpods[superpod] }
    : leaf >= 0 ? { kind: "leaf", name: cell.layout.leaves[leaf] }
    : rack >= 0 ? { kind: "rack", name: cell.layout.racks[rack] } : null;
  const places = [["node", name], ["leaf", cell.layout.leaves[leaf]], ["superpod", cell.layout.superpods[superpod]]];
  const drained = drainsOf(document, places);
  return {
    title: `Node ${name}`,
    content: [
      element("p", {}, cell.condition[row] ? conditionBadge(cell.condition[row]) : badge("ok", "good", "●")),
      drained?.map((one) => drainWords(one, nowMs)),
      actionsPart(placeButtons("node", name, rights, drained)),
      linksPart(links, { node: name }),
      isRecorded ? null : commandsPart(nodeCommands(name, drained)),
      terms(
        ["Product", cell.productOf(row)],
        ["Group", group && element("a", { href: addressOfGroup(group) }, groupTitle(group))],
        ["Rack", rack >= 0 && group.kind !== "rack" ? cell.layout.racks[rack] : ""],
        ["Leaf switch", leaf >= 0 && superpod >= 0 ? cell.layout.leaves[leaf] : ""],
        ["Chips in use", `${cell.used[row]} of ${cell.chipsOf(row)}`],
        ["In use, not named", node[UNNAMED] ? `${count(node[UNNAMED], "chip")} of those that are free below` : ""],
        ["Drained", node[DRAINED] ? ["since ", moment(node[DRAINED], nowMs)] : ""],
        ["Unhealthy", slots(node[UNHEALTHY])],
        ["Network unhealthy", slots(node[NETWORK_UNHEALTHY])],
        ["Releasing", slots(node[RELEASING])],
        ["Withheld", slots(node[WITHHELD])],
        ["Reserved", slots(node[RESERVED])],
      ),
      element("h3", {}, "Chips"),
      table(`Chips of ${name}`, ["Chips", "Used by"], chipRows(cell, node, isDark)),
      faults.length ? [element("h3", {}, "Faults"), element("ul", { class: "cards" }, faults.map((fault) => faultCard(cell, fault, nowMs)))] : null,
    ],
  };
}

function chipRows(cell, node, isDark) {
  const absent = bits(node[ABSENT] ?? 0, node[OWNERS].length);
  const reserved = bits(node[RESERVED] ?? 0, node[OWNERS].length);
  const sharers = new Map(node[SHARERS] ?? []);
  const slots = new Map(); // chips with the same owners are one line
  node[OWNERS].forEach((owner, slot) => {
    if (absent.includes(slot)) return;
    const others = (sharers.get(slot) ?? []).filter((one) => one !== owner);
    const users = reserved.includes(slot) && others.length === 0 ? [] : [owner]; // no pod uses what is reserved alone
    const key = [...users, ...(reserved.includes(slot) ? ["/", ...(users.length ? others : [owner])] : others)].join(" ");
    slots.set(key, [...(slots.get(key) ?? []), slot]);
  });
  return [...slots].map(([key, chips]) => {
    const [users, expected] = key.split("/").map((part) => part.trim().split(" ").filter(Boolean).map(Number));
    const named = (owners) => owners.map((owner, index) => [index ? ", " : "", chipUser(cell, owner, isDark)]);
    const by = [named(users), expected ? [users.length ? ", " : "", "reserved for ", named(expected)] : ""];
    return element("tr", { "data-key": key }, element("td", {}, ranges(chips)), element("td", {}, by));
  });
}

function chipUser(cell, owner, isDark) {
  if (owner === 0) return "free";
  if (owner < 0) return "a job that is not visible to you";
  const job = cell.jobs.get(owner);
  return [job && swatch(job, isDark), jobLink(job)];
}

export function queueView({ cell, nowMs, limits }) {
  const jobs = cell.queue.map((n) => cell.jobs.get(n)).filter(Boolean);
  if (jobs.length === 0) return { title: "Queue", content: [empty("No job waits.")] };
  const [cards, more] = limited(jobs, "queue", limits, (job) => queueCard(cell, job, nowMs));
  return {
    title: "Queue",
    content: [
      element("p", { class: "muted" }, `${count(jobs.length, "job waits", "jobs wait")}, in the order of the queue. The age counts from the submission.`),
      element("ol", { class: "cards" }, cards),
      more,
    ],
  };
}

function queueCard(cell, job, nowMs) {
  return element("li", { class: "card", "data-key": String(job.n) },
    element("div", { class: "card-head" },
      element("span", { class: "position" }, element("span", { class: "unseen" }, "Position "), String(cell.positions.get(job.n))),
      jobLink(job),
      element("span", { class: "card-age" }, age(job.submitted_ms, nowMs))),
    job.sentence && element("p", { class: "sentence" }, job.sentence),
    job.warning ? element("p", { class: "small" }, badge("warning", "warn", "▲"), ` ${job.warning}`) : null,
    element("p", { class: "muted small" }, [sizeOf(job), job.is_plain && "queue of jobs without chips",
      job.queue && `queue ${job.queue}`, `priority ${job.priority}`, job.code].filter(Boolean).join(" · ")),
    job.expected_start_ms ? element("p", { class: "small" }, "expected start: ", moment(job.expected_start_ms, nowMs)) : null);
}

export function faultsView({ cell, nowMs, limits, rights, document }) {
  if (cell.faults.length === 0) return { title: "Faults", content: [empty("There are no faults.")] };
  const [cards, more] = limited(cell.faults, "faults", limits, (fault) => faultCard(cell, fault, nowMs));
  return {
    title: "Faults",
    content: [
      element("p", { class: "muted" }, `${count(cell.faults.length, "fault")} of nodes and chips, as the cell knows them now.`),
      heldPart(cell, document?.held ?? [], document?.more_held ?? 0, rights),
      element("ul", { class: "cards" }, cards),
      more,
    ],
  };
}

// Jobs that a fault does not restart yet, by cause.
function heldPart(cell, held, others, rights) {
  if (held.length + others === 0) return null;
  const causes = new Map();
  for (const one of held) {
    const key = `${one.kind} ${one.domain} ${one.reason}`;
    causes.set(key, [...(causes.get(key) ?? []), one]);
  }
  return element("section", { class: "held", "data-key": "held", "aria-label": "Not restarted yet" },
    element("h3", {}, "Not restarted yet"),
    element("ul", { class: "cards" }, [...causes].map(([key, jobs]) => {
      const [{ kind, domain, reason, approvable }] = jobs;
      return element("li", { class: "card", "data-key": key },
        element("p", {}, element("strong", {}, kind), ` ${placeOf(domain)}: `, jobLinks(jobs.map((one) => cell.jobNamed(one.namespace, one.name) ?? { ...one, is_foreign: false }), 4)),
        element("p", { class: "sentence" }, `${reason}.`),
        approvable ? [actionsPart(approveButton(kind, domain, rights)), commandsPart([approveCommand(kind, domain)])] : null);
    })),
    others ? element("p", { class: "muted" }, `${count(others, "job")} of other namespaces as well.`) : null);
}

function faultCard(cell, fault, nowMs) {
  const name = fault.node >= 0 ? cell.nodeName(fault.node) : "";
  const rest = name && fault.place.startsWith(name) ? fault.place.slice(name.length) : "";
  const jobs = (fault.jobs ?? []).map((n) => cell.jobs.get(n)).filter(Boolean);
  return element("li", { class: "card" },
    element("div", { class: "card-head" },
      conditionBadge(fault.level),
      name ? element("span", {}, nodeLink(name), rest) : element("span", {}, fault.place),
      element("span", { class: "card-age" }, age(fault.at_ms, nowMs, " ago"))),
    fault.sentence && element("p", { class: "sentence" }, fault.sentence),
    fault.kind && element("p", { class: "small muted" }, fault.kind),
    jobs.length ? element("p", { class: "small" }, "Jobs: ", jobs.flatMap((job, index) => (index ? [", ", jobLink(job)] : [jobLink(job)]))) : null);
}

export function unknownView({ route }) {
  return { title: "Not found", content: [empty(`There is no view ${route.view}.`), element("p", {}, element("a", { href: address("") }, "Show the cell"))] };
}
