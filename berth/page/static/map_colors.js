// What the colours of the map mean: the share of chips in use, jobs, or namespaces with their list.

import { namespaceColors } from "./colors.js";
import { element, show } from "./dom.js";

const KEY = "berth.colors";
const CHOICES = ["use", "job", "namespace"];
const SHOWN = 10;

export class MapColors {
  constructor(select, list, map) {
    this.select = select;
    this.list = list;
    this.map = map;
    select.value = stored();
    select.addEventListener("change", () => {
      store(select.value);
      if (this.cell) this.update(this.cell, this.isDark);
    });
  }

  // Takes the choice and the namespaces of now; those with the most chips are listed.
  update(cell, isDark) {
    this.cell = cell;
    this.isDark = isDark;
    const by = this.select.value;
    const chips = new Map();
    if (by === "namespace") {
      for (const job of cell.jobs.values()) {
        if (cell.rowsByJob.has(job.n)) chips.set(job.namespace, (chips.get(job.namespace) ?? 0) + job.chips);
      }
    }
    const key = JSON.stringify([by, isDark, [...chips.keys()].sort()]);
    if (key !== this.key) {
      this.key = key;
      this.colors = namespaceColors(chips.keys(), isDark);
      this.map.setColors(by, this.colors);
    }
    this.list.hidden = by !== "namespace";
    const names = [...chips].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
    const items = names.slice(0, SHOWN).map((name) => element("li", { "data-key": name }, this.#swatch(name), name));
    show(this.list, items, names.length > SHOWN ? element("li", { "data-key": "" }, `and ${names.length - SHOWN} more`) : null);
  }

  #swatch(name) {
    const made = element("span", { class: "swatch", "aria-hidden": "true" });
    made.style.backgroundColor = this.colors.get(name);
    return made;
  }
}

function stored() {
  try {
    const choice = localStorage.getItem(KEY);
    return CHOICES.includes(choice) ? choice : "use";
  } catch {
    return "use";
  }
}

function store(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // Without storage the choice ends with the page.
  }
}
