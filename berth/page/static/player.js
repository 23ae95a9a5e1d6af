// Controls of a recording: slider, play, speed, and the choice between several timelines.

import { element, show } from "./dom.js";
import { clockUtc, isElapsed, momentWords, span } from "./format.js";
import { drawHistory, historyOf } from "./history.js";

export class Player {
  constructor(place, source) {
    this.place = place;
    this.source = source;
    place.hidden = false;
    this.play = element("button", { type: "button", class: "main-button play" }, "Play");
    this.back = element("button", { type: "button", "aria-label": "Change before" }, "◀ change");
    this.next = element("button", { type: "button", "aria-label": "Next change" }, "change ▶");
    this.slider = element("input", { type: "range", min: "0", max: "1000", step: "any", "aria-label": "Time" });
    this.speed = element("select", { "aria-label": "Speed" });
    this.choice = element("select", { "aria-label": "Timeline" });
    this.time = element("output", { class: "time" });
    this.title = element("span", { class: "recording-title" });
    this.history = element("canvas", { class: "history", role: "img", "aria-label": "Over time: chips in use as an area, jobs that wait as a line" });
    this.#listen();
    place.append(
      element("div", { class: "player-head" }, this.title, this.choice,
        element("span", { class: "muted small" }, "Area: chips in use. Line: jobs that wait."), this.time),
      element("div", { class: "player-row" }, this.play, this.back, element("div", { class: "slider" }, this.history, this.slider), this.next,
        element("span", { class: "speed" }, this.speed)),
    );
    this.#offerTimelines();
    new ResizeObserver(() => this.points && this.paint()).observe(this.history);
  }

  #listen() {
    const { source } = this;
    this.play.addEventListener("click", () => (source.isPlaying ? source.pause() : source.play()));
    this.back.addEventListener("click", () => source.step(-1));
    this.next.addEventListener("click", () => source.step(1));
    this.slider.addEventListener("input", () => {
      const atMs = source.recording.begin_ms + Number(this.slider.value); // before the pause shows the old time
      source.pause();
      source.seek(atMs);
    });
    this.speed.addEventListener("change", () => (source.speed = Number(this.speed.value)));
    this.choice.addEventListener("change", () => {
      source.pause();
      source.switchTo(Number(this.choice.value));
      this.renew();
    });
  }

  #offerTimelines() {
    const { recordings } = this.source;
    this.choice.hidden = recordings.length < 2;
    show(this.choice, recordings.map((one, index) =>
      element("option", { value: index }, one.title || `Timeline ${index + 1}`)));
  }

  // After another timeline was chosen.
  renew() {
    const { source } = this;
    const { begin_ms: beginMs, end_ms: endMs, title } = source.recording;
    const length = Math.max(1, endMs - beginMs);
    this.slider.max = String(length);
    show(this.speed, source.speeds.map((speed) => element("option", { value: speed }, `${speed}×`)));
    this.speed.value = String(source.speed);
    this.choice.value = String(source.index);
    this.points = historyOf(source.recording);
    this.paint();
    show(this.title, source.recordings.length < 2 ? title || "Recording" : "");
    this.update();
  }

  // Draws the history again, for another size or theme.
  paint() {
    drawHistory(this.history, this.points, this.source.recording);
  }

  update() {
    const { source } = this;
    const { begin_ms: beginMs, end_ms: endMs } = source.recording;
    const elapsed = `${span(source.atMs - beginMs)} of ${span(endMs - beginMs)}`;
    const text = isElapsed(endMs) ? elapsed : `${clockUtc(source.atMs, endMs)} (${elapsed})`;
    this.slider.value = String(source.atMs - beginMs);
    this.slider.setAttribute("aria-valuetext", text);
    this.time.title = momentWords(source.atMs);
    show(this.time, text);
    show(this.play, source.isPlaying ? "Pause" : "Play");
  }
}
