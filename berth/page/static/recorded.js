// Data of a recording: a first view, the changes after it, and a clock that the reader moves.

import { historyOf } from "./history.js";

// Keys are whole views to go on from: one after so many changes, but not more than a recording may have.
const KEYS_EVERY = 100;
const KEYS_MOST = 200;
const DECIDED = new Set(["placed", "waiting", "failed"]); // as events with reasons; a recovery (step) has none of its own

const HOUR_MS = 3_600_000;
const POINTS_MOST = 400;
const EVENTS_MOST = 200;
const TOLD = new Set(["waiting", "placed", "succeeded", "failed", "cancelled", "rejected"]);

export class RecordedSource {
  // `on`: view(view), change(change), state(text), moved(); `taken()` returns the view that is shown.
  constructor(recordings, on) {
    this.on = on;
    this.isRecorded = true;
    this.recordings = recordings;
    this.speed = 0;
    this.isPlaying = false;
    this.atMs = 0;
  }

  hasToken() {
    return false;
  }

  nowMs() {
    return this.atMs;
  }

  start(index = 0, atMs = null) {
    this.choose(index, atMs);
    this.on.state("recording");
  }

  choose(index, atMs = null) {
    this.index = Math.max(0, Math.min(this.recordings.length - 1, index));
    this.recording = this.recordings[this.index];
    const { begin_ms: beginMs, end_ms: endMs } = this.recording;
    const minute = Math.max(1, (endMs - beginMs) / 60_000); // the whole is played in about a minute
    this.speeds = [1, 10, 60, 300, 1800, 7200, 43_200].filter((speed) => speed <= Math.max(60, 4 * minute));
    this.speed = this.speeds.findLast((speed) => speed <= Math.max(1, minute)) ?? 1;
    this.applied = -1; // changes up to this one are in the view that is shown; -1: none
    this.keysEvery = Math.max(KEYS_EVERY, Math.ceil(this.recording.changes.length / KEYS_MOST));
    this.keys = []; // { index, view }, ascending: views after so many changes, as far as they were shown
    this.#show(null);
    this.seek(atMs ?? beginMs);
  }

  // Goes to another timeline, at the same moment; if it has none such, after the same time.
  switchTo(index) {
    const { atMs, recording } = this;
    const other = this.recordings[index];
    const isIn = other.begin_ms <= atMs && atMs <= other.end_ms;
    this.choose(index, isIn ? atMs : other.begin_ms + atMs - recording.begin_ms);
  }

  #show(key) {
    this.on.view(key ? key.view : this.recording.view);
    this.applied = key ? key.index - 1 : -1;
  }

  #apply(index) {
    this.on.change(this.recording.changes[index]);
    const count = index + 1;
    if (count >= (this.keys.at(-1)?.index ?? 0) + this.keysEvery) this.keys.push({ index: count, view: this.on.taken() });
  }

  // Index of the last change up to a time; -1 before the first.
  #indexAt(ms) {
    const { changes } = this.recording;
    let [from, to] = [0, changes.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (changes[middle].at_ms <= ms) from = middle + 1;
      else to = middle;
    }
    return from - 1;
  }

  seek(ms) {
    const { begin_ms: beginMs, end_ms: endMs } = this.recording;
    this.atMs = Math.min(endMs, Math.max(beginMs, ms));
    const wanted = this.#indexAt(this.atMs);
    const key = this.keys.findLast((one) => one.index - 1 <= wanted);
    const isFar = key && key.index - this.applied > this.keysEvery;
    if (wanted < this.applied || isFar) this.#show(key ?? null);
    for (let index = this.applied + 1; index <= wanted; index += 1) this.#apply(index);
    this.applied = wanted;
    this.on.moved();
  }

  // Goes to the next change (1) or to the one before (-1).
  step(direction) {
    const { changes, begin_ms: beginMs } = this.recording;
    this.pause();
    if (direction > 0) {
      const next = changes[this.applied + 1];
      if (next) this.seek(next.at_ms);
      return;
    }
    const here = changes[this.applied]?.at_ms;
    let before = this.applied;
    while (before >= 0 && changes[before].at_ms === here) before -= 1;
    this.seek(here !== undefined && here < this.atMs ? here : (changes[before]?.at_ms ?? beginMs));
  }

  play() {
    if (this.isPlaying) return;
    if (this.atMs >= this.recording.end_ms) this.seek(this.recording.begin_ms);
    this.isPlaying = true;
    let last = performance.now();
    const tick = (now) => {
      if (!this.isPlaying) return;
      const next = this.atMs + (now - last) * this.speed;
      last = now;
      if (next >= this.recording.end_ms) this.isPlaying = false;
      this.seek(next);
      if (this.isPlaying) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    this.on.moved();
  }

  pause() {
    this.isPlaying = false;
    this.on.moved();
  }

  // What changed in the hour before the time that is shown.
  hour() {
    const { recording, atMs } = this;
    if (this.hourOf !== recording) {
      this.hourOf = recording;
      this.history = historyOf(recording);
      this.told = toldIn(recording);
    }
    const beginMs = Math.max(recording.begin_ms, atMs - HOUR_MS);
    const last = this.history.points.findLast((point) => point.atMs <= beginMs);
    const points = this.history.points.filter((point) => point.atMs > beginMs && point.atMs <= atMs);
    const every = Math.ceil(points.length / POINTS_MOST) || 1;
    const events = this.told.filter((event) => event.at_ms >= beginMs && event.at_ms <= atMs);
    const counts = {};
    for (const { what } of events) counts[what] = (counts[what] ?? 0) + 1;
    return {
      begin_ms: beginMs, at_ms: atMs, chips: this.history.chips, counts,
      points: [...(last ? [[beginMs, last.used, last.waiting]] : []),
        ...points.filter((_, index) => index % every === 0 || index === points.length - 1).map((point) => [point.atMs, point.used, point.waiting])],
      events: events.slice(-EVENTS_MOST).reverse(),
    };
  }

  // Events up to the time that is shown, with the reasons of the newest decision among them.
  async story(job) {
    const stories = this.recording.stories ?? {};
    const found = stories[`${job.namespace}/${job.name}/${job.uid}`] ?? { events: [] };
    const events = found.events.filter((event) => event.at_ms <= this.atMs);
    const decision = events.findLast((event) => DECIDED.has(event.phase) && !event.step);
    return { events, why: decision?.why ?? [] };
  }
}

// What happened to jobs, ascending.
function toldIn(recording) {
  const found = [];
  for (const [key, { events }] of Object.entries(recording.stories ?? {})) {
    const [namespace, name] = key.split("/");
    for (const { at_ms, phase, sentence } of events) {
      if (TOLD.has(phase)) found.push({ at_ms, what: phase, namespace, name, place: "", nodes: 0, level: "", sentence });
    }
  }
  return found.sort((a, b) => a.at_ms - b.at_ms);
}
