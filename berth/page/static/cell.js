// The cell as the page knows it: the view that arrived last, with all changes since.

import { fullName } from "./format.js";

// Places in a row of a node.
export const LEVEL = 0;
export const FLAGS = 1;
export const DRAINED = 2;
export const OWNERS = 3;
export const UNHEALTHY = 4;
export const NETWORK_UNHEALTHY = 5;
export const RELEASING = 6;
export const WITHHELD = 7;
export const SHARED = 8;
export const RESERVED = 9;
export const ABSENT = 10;
export const SHARERS = 11;
export const UNNAMED = 12;

export const NOT_READY = 1;
export const CORDONED = 2;
export const GONE = 4;

export const OVER = new Set(["succeeded", "failed", "cancelled", "rejected"]);
export const WAITING = new Set(["waiting", "recovering", "submitted", "accepted"]);

// What keeps a node from work, the most serious first; "" if nothing does.
export function conditionOf(row) {
  if (row[FLAGS] & GONE) return "gone";
  if (row[FLAGS] & NOT_READY) return "not ready";
  if (row[LEVEL] === "evict") return "evict";
  if (row[LEVEL] === "no-new-work") return "no new work";
  if (row[DRAINED]) return "drained";
  if (row[FLAGS] & CORDONED) return "cordoned";
  if (row[LEVEL] === "sub-healthy") return "sub-healthy";
  return row[LEVEL] === "ok" ? "" : row[LEVEL];
}

// Chips of a node in use: those with an owner, and those that pods have which name none.
export function usedOn(row) {
  const owned = row[OWNERS].reduce((sum, owner) => sum + (owner !== 0), 0);
  return Math.min(row[OWNERS].length, owned + (row[UNNAMED] ?? 0));
}

// The worst first.
const CONDITIONS = ["gone", "not ready", "evict", "no new work", "drained", "cordoned", "sub-healthy"];
const SERIOUS = new Set(["gone", "not ready", "evict", "no new work"]);
export const isSerious = (condition) => SERIOUS.has(condition);

const NO_LAYOUT = { superpods: [], racks: [], leaves: [], products: [], nodes: [] };

export class Cell {
  constructor() {
    this.clear();
  }

  clear() {
    this.name = "";
    this.version = 0;
    this.atMs = 0;
    this.hasView = false;
    this.isPartial = false;
    this.hasQueues = false;
    this.layout = NO_LAYOUT;
    this.layoutCount = (this.layoutCount ?? 0) + 1; // another one means that the map is arranged anew
    this.nodes = [];
    this.jobs = new Map();
    this.queue = [];
    this.faults = [];
    this.reservations = [];
    this.positions = new Map();
    this.rowOf = new Map();
    this.used = new Uint16Array(0);
    this.main = new Int32Array(0); // of each node the owner of the most chips; 0 if none is in use
    this.condition = [];
    this.rowsByJob = new Map();
    this.byName = new Map();
  }

  setView(view) {
    // As far as possible what was there stays: another layout means that the map is arranged anew.
    const isSame = this.hasView && JSON.stringify(view.layout) === JSON.stringify(this.layout);
    const count = this.layoutCount;
    this.clear();
    if (isSame) this.layoutCount = count;
    this.hasView = true;
    this.layout = view.layout;
    this.isPartial = view.is_partial;
    this.name = view.cell;
    this.nodes = view.nodes.slice();
    this.used = new Uint16Array(view.nodes.length);
    this.main = new Int32Array(view.nodes.length);
    this.condition = new Array(view.nodes.length).fill("");
    view.layout.nodes.forEach((node, row) => this.rowOf.set(node[0], row));
    for (const job of view.jobs) this.jobs.set(job.n, job);
    view.nodes.forEach((_, row) => this.#readNode(row));
    this.#readHead(view);
    this.#indexNames();
  }

  // The view as it is now, for setView. What is in it is shared: changes replace rows and jobs.
  view() {
    const { name: cell, version, atMs: at_ms, layout, queue, faults, reservations, hasQueues: has_queues, isPartial: is_partial } = this;
    return { cell, version, at_ms, layout, nodes: this.nodes.slice(), jobs: [...this.jobs.values()], queue, faults, reservations, has_queues, is_partial };
  }

  // Applies a change, and returns what is worth telling: jobs whose phase became another one, and new faults.
  apply(change) {
    const told = { jobs: [], faults: 0 };
    for (const [row, node] of change.nodes ?? []) {
      if (row < 0 || row >= this.nodes.length) continue;
      this.#forgetNode(row);
      this.nodes[row] = node;
      this.#readNode(row);
    }
    for (const n of change.gone ?? []) this.jobs.delete(n);
    for (const job of change.jobs ?? []) {
      if (this.jobs.get(job.n)?.phase !== job.phase && !job.is_foreign) told.jobs.push(job);
      this.jobs.set(job.n, job);
    }
    if (change.faults) told.faults = Math.max(0, change.faults.length - this.faults.length);
    this.#readHead(change);
    if (change.jobs?.length || change.gone?.length) this.#indexNames();
    return told;
  }

  #readHead(message) {
    this.version = message.version;
    this.atMs = message.at_ms;
    if (message.queue) this.queue = message.queue;
    if (message.queue || message.jobs?.length) this.#countPositions();
    if (message.faults) this.faults = message.faults;
    if (message.reservations) this.reservations = message.reservations;
    if (message.has_queues !== undefined) this.hasQueues = message.has_queues;
    if (message.is_partial !== undefined) this.isPartial = message.is_partial;
  }

  // Positions follow from the queue. Jobs without chips wait in a queue of their own, behind the others in the list.
  #countPositions() {
    this.positions = new Map();
    let [withChips, plain] = [0, 0];
    for (const n of this.queue) {
      const isPlain = this.jobs.get(n)?.is_plain;
      this.positions.set(n, isPlain ? (plain += 1) : (withChips += 1));
    }
  }

  #readNode(row) {
    const node = this.nodes[row];
    for (const owner of ownersOf(node)) {
      if (owner <= 0) continue;
      let rows = this.rowsByJob.get(owner);
      if (rows === undefined) this.rowsByJob.set(owner, (rows = new Set()));
      rows.add(row);
    }
    this.used[row] = usedOn(node);
    this.main[row] = mainOwner(node[OWNERS]);
    this.condition[row] = conditionOf(node);
  }

  #forgetNode(row) {
    for (const owner of ownersOf(this.nodes[row])) {
      const rows = this.rowsByJob.get(owner);
      if (rows === undefined) continue;
      rows.delete(row);
      if (rows.size === 0) this.rowsByJob.delete(owner);
    }
  }

  #indexNames() {
    this.byName = new Map();
    for (const job of this.jobs.values()) {
      if (!job.name) continue;
      const other = this.byName.get(fullName(job));
      if (other === undefined || isLater(job, other)) this.byName.set(fullName(job), job);
    }
  }

  jobNamed(namespace, name) {
    return this.byName.get(`${namespace}/${name}`);
  }

  nodeName(row) {
    return this.layout.nodes[row]?.[0] ?? "";
  }

  chipsOf(row) {
    const absent = this.nodes[row]?.[ABSENT];
    return this.layout.nodes[row][5] - (absent ? ones(absent) : 0);
  }

  productOf(row) {
    return this.layout.products[this.layout.nodes[row][1]] ?? "";
  }

  // Rows of the nodes that a job has chips on, in their order.
  rowsOf(n) {
    return [...(this.rowsByJob.get(n) ?? [])].sort((a, b) => a - b);
  }

  slotsOf(n, row) {
    const found = [];
    this.nodes[row][OWNERS].forEach((owner, slot) => {
      if (owner === n) found.push(slot);
    });
    for (const [slot, jobs] of this.nodes[row][SHARERS] ?? []) {
      if (jobs.includes(n) && !found.includes(slot)) found.push(slot);
    }
    return found;
  }

  // Chips, and nodes with a condition, of some nodes.
  totals(rows) {
    const sum = { nodes: 0, chips: 0, used: 0, unhealthy: 0, limited: 0, serious: 0, worst: "", ofWorst: 0 };
    for (const row of rows) {
      sum.nodes += 1;
      sum.chips += this.chipsOf(row);
      sum.used += this.used[row];
      const unhealthy = this.nodes[row][UNHEALTHY];
      if (unhealthy) sum.unhealthy += ones(unhealthy);
      if (this.condition[row]) {
        sum.limited += 1;
        countWorst(sum, this.condition[row]);
      }
      if (isSerious(this.condition[row])) sum.serious += 1;
    }
    return sum;
  }

  allRows() {
    return this.nodes.keys();
  }
}

// Numbers of all jobs on a node, those that share a chip included; 0 and -1 may be among them.
export function ownersOf(node) {
  const found = new Set(node[OWNERS]);
  for (const [, jobs] of node[SHARERS] ?? []) for (const n of jobs) found.add(n);
  return found;
}

function mainOwner(owners) {
  let [best, most] = [0, 0];
  for (let slot = 0; slot < owners.length; slot += 1) {
    const owner = owners[slot];
    if (owner === 0 || owner === best) continue;
    let chips = 0;
    for (const other of owners) if (other === owner) chips += 1;
    if (chips > most) [best, most] = [owner, chips];
  }
  return best;
}

function countWorst(sum, condition) {
  const [before, now] = [CONDITIONS.indexOf(sum.worst), CONDITIONS.indexOf(condition)];
  if (condition === sum.worst) sum.ofWorst += 1;
  else if (!sum.worst || (now >= 0 && (before < 0 || now < before))) [sum.worst, sum.ofWorst] = [condition, 1];
}

function ones(mask) {
  let found = 0;
  for (let rest = mask; rest > 0; rest = Math.floor(rest / 2)) found += rest % 2;
  return found;
}

function isLater(job, other) {
  const isOver = OVER.has(job.phase);
  if (isOver !== OVER.has(other.phase)) return !isOver;
  return job.n > other.n;
}
