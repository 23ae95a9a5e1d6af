// Tells screen readers what changed, in sums and not more often than they can be read.

import { element } from "./dom.js";
import { count, fullName } from "./format.js";

const EVERY_MS = 5000;
const LINES_MOST = 20;

export class Announcer {
  constructor(place) {
    this.place = place;
    this.phases = new Map();
    this.faults = 0;
    this.timer = null;
    this.lastMs = -EVERY_MS;
  }

  // Takes what a change of the cell tells.
  add(told) {
    for (const job of told.jobs) {
      const jobs = this.phases.get(job.phase) ?? [];
      jobs.push(job);
      this.phases.set(job.phase, jobs);
    }
    this.faults += told.faults;
    if (told.jobs.length || told.faults) this.#plan();
  }

  // Forgets what it told, and what it would tell.
  clear() {
    clearTimeout(this.timer);
    this.timer = null;
    this.phases.clear();
    this.faults = 0;
    this.place.replaceChildren();
  }

  // Says a text soon, such as the node that the keyboard reached.
  say(text) {
    this.#write(text);
  }

  #plan() {
    if (this.timer !== null) return;
    const waitMs = Math.max(300, this.lastMs + EVERY_MS - performance.now());
    this.timer = setTimeout(() => {
      this.timer = null;
      this.lastMs = performance.now();
      this.#tell();
    }, waitMs);
  }

  #tell() {
    const parts = [...this.phases].map(([phase, jobs]) =>
      jobs.length === 1 ? `${fullName(jobs[0])} is ${phase}` : `${count(jobs.length, "job")} ${phase}`);
    if (this.faults) parts.push(count(this.faults, "new fault"));
    this.phases.clear();
    this.faults = 0;
    if (parts.length) this.#write(`${parts.join(", ")}.`);
  }

  #write(text) {
    this.place.append(element("p", {}, text));
    while (this.place.childElementCount > LINES_MOST) this.place.firstChild.remove();
  }
}
