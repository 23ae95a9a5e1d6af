// A dialog that says what happens before anything does, takes a reason, and shows why it was refused.

import { byId, element, show, shown } from "./dom.js";

export class Confirmation {
  // `send(plan, reason)` carries it out; `done(plan)` is called when it was.
  constructor(send, done) {
    this.send = send;
    this.done = done;
    this.dialog = byId("confirm");
    byId("confirm-back").addEventListener("click", () => this.close());
    byId("confirm-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#confirmed();
    });
    this.dialog.addEventListener("close", () => {
      this.plan = null;
    });
  }

  ask(plan) {
    this.plan = plan;
    byId("confirm-title").textContent = shown(plan.title);
    show(byId("confirm-text"), plan.lines.map((line) => element("p", {}, line)));
    byId("confirm-reason").value = "";
    byId("confirm-reason-row").hidden = plan.hasReason === false;
    byId("confirm-do").textContent = plan.word;
    this.#setBusy(false);
    this.#fail("");
    this.dialog.showModal();
    byId("confirm-back").focus(); // Enter alone changes nothing
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  async #confirmed() {
    const { plan } = this;
    if (!plan || this.isBusy) return;
    this.#setBusy(true);
    this.#fail("");
    try {
      await this.send(plan, byId("confirm-reason").value.trim());
    } catch (error) {
      if (this.plan === plan) {
        this.#setBusy(false);
        this.#fail(`It was not done: ${error.message}.`);
      }
      return;
    }
    if (this.plan === plan) this.close();
    this.done(plan);
  }

  #setBusy(isBusy) {
    this.isBusy = isBusy;
    byId("confirm-do").disabled = isBusy;
  }

  #fail(text) {
    byId("confirm-error").textContent = shown(text);
    byId("confirm-error").hidden = text === "";
  }
}
