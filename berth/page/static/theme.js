// Light or dark: as the system, unless the reader chose one.

import { element, show } from "./dom.js";

const KEY = "berth.theme";
const NEXT = { system: "dark", dark: "light", light: "system" };

export class Theme {
  constructor(button, changed) {
    this.button = button;
    this.changed = changed;
    this.choice = stored();
    button.addEventListener("click", () => this.#choose(NEXT[this.choice]));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.changed());
    this.#apply();
  }

  get isDark() {
    return this.choice === "dark" || (this.choice === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  }

  #choose(choice) {
    this.choice = choice;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // Without storage the choice ends with the page.
    }
    this.#apply();
    this.changed();
  }

  #apply() {
    if (this.choice === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = this.choice;
    show(this.button, element("span", { class: "word" }, "Theme: "), this.choice);
  }
}

function stored() {
  try {
    const choice = localStorage.getItem(KEY);
    return choice in NEXT ? choice : "system";
  } catch {
    return "system";
  }
}
