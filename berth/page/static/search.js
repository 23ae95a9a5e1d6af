// Search for jobs and nodes: a text field with a list of what was found.

import { isOver, phaseBadge } from "./pieces.js";
import { element, show } from "./dom.js";
import { fullName } from "./format.js";
import { addressOfJob, addressOfNode } from "./routes.js";

const MOST = 12;

// Jobs and nodes whose names contain all words: those that begin with the text first, then active jobs.
export function search(cell, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  const rank = (name, late) => (name.startsWith(words[0]) ? 0 : 2) + late;
  for (const job of cell.jobs.values()) {
    if (!job.name) continue;
    const name = fullName(job).toLowerCase();
    if (!words.every((word) => name.includes(word) || job.uid.toLowerCase() === word)) continue;
    if (cell.jobNamed(job.namespace, job.name) !== job) continue;
    const isFirst = job.name.toLowerCase().startsWith(words[0]);
    found.push({ rank: isFirst ? Number(isOver(job)) : rank(name, Number(isOver(job))), job, text: fullName(job), href: addressOfJob(job) });
  }
  for (const name of cell.rowOf.keys()) {
    const low = name.toLowerCase();
    if (words.every((word) => low.includes(word))) found.push({ rank: rank(low, 0), node: name, text: name, href: addressOfNode(name) });
  }
  found.sort((a, b) => a.rank - b.rank || a.text.length - b.text.length || (a.text < b.text ? -1 : 1));
  return found.slice(0, MOST);
}

export class SearchBox {
  constructor(input, list, cell) {
    this.input = input;
    this.list = list;
    this.cell = cell;
    this.found = [];
    this.chosen = -1;
    input.addEventListener("input", () => this.update());
    input.addEventListener("focus", () => this.update());
    input.addEventListener("blur", () => this.close());
    input.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("pointerdown", (event) => {
      const option = event.target.closest("[data-index]");
      event.preventDefault(); // the field keeps the focus until the choice is made
      if (option) this.#open(Number(option.dataset.index));
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest?.("input, textarea, select, dialog");
      if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.focus();
      input.select();
    });
  }

  update() {
    this.found = search(this.cell, this.input.value);
    this.chosen = Math.min(this.chosen, this.found.length - 1);
    this.#show();
  }

  close() {
    this.found = [];
    this.chosen = -1;
    this.#show();
  }

  #show() {
    const { found, chosen, input, list } = this;
    const isAsked = input.value.trim() !== "" && document.activeElement === input;
    list.hidden = !isAsked;
    input.setAttribute("aria-expanded", String(isAsked));
    if (chosen >= 0) input.setAttribute("aria-activedescendant", `found-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
    const options = found.map((one, index) =>
      element("li", { id: `found-${index}`, role: "option", "data-index": index, "aria-selected": String(index === chosen) },
        element("span", {}, one.text), one.job ? phaseBadge(one.job.phase) : element("span", { class: "badge calm" }, "node")));
    show(list, options.length || !isAsked ? options
      : element("li", { role: "option", "aria-disabled": "true", "aria-selected": "false", class: "muted" }, "Nothing found"));
  }

  #key(event) {
    const { found } = this;
    if (event.key === "ArrowDown") this.chosen = Math.min(found.length - 1, this.chosen + 1);
    else if (event.key === "ArrowUp") this.chosen = Math.max(-1, this.chosen - 1);
    else if (event.key === "Enter" && found.length) return this.#open(Math.max(0, this.chosen));
    else if (event.key === "Escape") {
      this.input.value = "";
      this.close();
    } else return;
    event.preventDefault();
    this.#show();
  }

  #open(index) {
    const one = this.found[index];
    this.input.value = "";
    this.input.blur();
    this.close();
    if (one) location.hash = one.href;
  }
}
