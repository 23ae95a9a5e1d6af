// What a reader may do to the cell, with words that say what happens. A plan is
// { title, lines, word, danger, method, path, body, done }: what is asked, and what is sent after it was confirmed.

import { WAITING, ownersOf } from "./cell.js";
import { element } from "./dom.js";
import { count, fullName } from "./format.js";
import { isOver } from "./pieces.js";

const APPROVED_MS = 600_000;
const NAMED = 4;
const KINDS = { node: "node", leaf: "leaf switch", superpod: "SuperPoD" };

// `rights`: as the gateway says; null while they are not known, and in a recording.
const maySubmit = (rights, namespace) => Boolean(rights?.submit?.some((one) => one === "*" || one === namespace));
const mayOperate = (rights) => rights?.operate === true;

function button(action, text, data = {}) {
  const names = Object.fromEntries(Object.entries(data).map(([name, value]) => [`data-${name}`, value]));
  return element("button", { type: "button", "data-action": action, "data-key": `${action} ${Object.values(data).join(" ")}`, ...names }, text);
}

// Buttons in a row; nothing without any.
export function actionsPart(...buttons) {
  const found = buttons.flat().filter(Boolean);
  return found.length ? element("div", { class: "actions", role: "group", "aria-label": "Actions", "data-key": "actions" }, found) : null;
}

export function jobButtons(job, rights) {
  return job.uid && !isOver(job) && !job.is_foreign && maySubmit(rights, job.namespace) ? [button("cancel", "Cancel the job …")] : [];
}

// `drained`: drains that concern the place, if they are known.
export function placeButtons(kind, name, rights, drained) {
  if (!mayOperate(rights)) return [];
  const isDrained = drained?.some((one) => one.kind === kind && one.name === name);
  return [
    isDrained ? null : button("drain", `Drain the ${KINDS[kind]} …`, { kind, name }),
    (drained ?? []).map((one) => button("undrain", `Return ${KINDS[one.kind]} ${one.name} to service …`, { kind: one.kind, name: one.name })),
  ].flat();
}

export function approveButton(kind, domain, rights) {
  return mayOperate(rights) ? button("approve", "Approve …", { kind, name: domain }) : null;
}

// Plan of the button that was pressed; undefined if what it was about has changed meanwhile.
export function planOf({ action, kind, name }, { cell, job, groups, faults }) {
  if (action === "cancel") return job && !isOver(job) ? cancelPlan(cell, job) : undefined;
  if (action === "drain") return drainPlan(cell, kind, name, groups);
  if (action === "undrain") return undrainPlan(kind, name);
  if (action === "approve") return approvePlan(kind, name, faults);
  return undefined;
}

function cancelPlan(cell, job) {
  const nodes = cell.rowsOf(job.n).length;
  const path = `jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`;
  return {
    title: `Cancel ${fullName(job)}?`,
    lines: [
      WAITING.has(job.phase) && nodes === 0 ? "It leaves the queue and does not start."
        : `All its pods are deleted (${count(job.pods, "pod")} on ${count(nodes, "node")}), and its chips are given back (${count(job.chips, "chip")}).`,
      "This cannot be undone: to run it again, submit it again.",
    ],
    word: "Cancel the job",
    method: "DELETE",
    path: (reason) => `${path}?${new URLSearchParams({ uid: job.uid, reason })}`,
    done: `The cancellation of ${fullName(job)} is stored.`,
  };
}

function drainPlan(cell, kind, name, groups) {
  const rows = kind === "node" ? [cell.rowOf.get(name)].filter((row) => row !== undefined)
    : (groups.find((one) => one.kind === kind && one.name === name)?.rows ?? []);
  const what = kind === "node" ? "It accepts" : `Its ${count(rows.length, "node")} accept`;
  return {
    title: `Drain ${KINDS[kind]} ${name}?`,
    lines: [
      `${what} no new work from now on, until the drain is withdrawn.`,
      jobsThere(cell, rows),
      "A job whose pods no controller makes anew stays.",
    ],
    word: "Drain",
    method: "POST",
    path: () => "drains",
    body: (reason) => ({ kind, name, reason }),
    done: `The drain of ${KINDS[kind]} ${name} is stored.`,
  };
}

function jobsThere(cell, rows) {
  const numbers = new Set(rows.flatMap((row) => [...ownersOf(cell.nodes[row])]));
  const jobs = [...numbers].map((n) => cell.jobs.get(n)).filter((job) => job?.name);
  const hidden = numbers.has(-1) ? " Jobs that are not visible to you are there, too." : "";
  if (jobs.length === 0) return `No job of yours to see is there.${hidden}`;
  return `${count(jobs.length, "job is", "jobs are")} there and moved to other nodes, or started anew: ${named(jobs)}.${hidden}`;
}

// The first names of jobs, and how many more there are.
function named(jobs) {
  const more = jobs.length > NAMED ? ` and ${count(jobs.length - NAMED, "other")}` : "";
  return `${jobs.slice(0, NAMED).map(fullName).join(", ")}${more}`;
}

function undrainPlan(kind, name) {
  return {
    title: `Return ${KINDS[kind]} ${name} to service?`,
    lines: [
      kind === "node" ? "It accepts new work again, unless another drain concerns it." : "Its nodes accept new work again, unless other drains concern them.",
      "Jobs that are being moved already move all the same.",
    ],
    word: "Return to service",
    hasReason: false,
    method: "DELETE",
    path: () => `drains/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`,
    done: `The end of the drain of ${KINDS[kind]} ${name} is stored.`,
  };
}

function approvePlan(kind, domain, faults) {
  const held = (faults?.held ?? []).filter((one) => one.kind === kind && one.domain === domain && one.approvable);
  if (held.length === 0) return undefined;
  return {
    title: `Approve restarts for ${kind} ${placeOf(domain)}?`,
    lines: [
      `${count(held.length, "job restarts", "jobs restart")}, as many at a time as the settings permit: ${named(held)}.`,
      `So do other jobs for such faults there in the next ${APPROVED_MS / 60_000} minutes, although one source reports them alone.`,
    ],
    word: "Approve",
    method: "POST",
    path: () => "approvals",
    body: (reason) => ({ kind, domain, lasts_ms: APPROVED_MS, reason }),
    done: `The approval for ${kind} ${placeOf(domain)} is stored.`,
  };
}

export const placeOf = (domain) => (domain ? `in domain ${domain}` : "on nodes that are gone");
