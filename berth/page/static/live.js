// Data of a living cell: HTTP of the gateway, with a stream of changes.

import { WAITING } from "./cell.js";

const TOKEN = "berth.token";
const QUIET_MS = 45_000; // a stream that is silent for longer is lost: the gateway sends a comment every 15 s ...
const PAUSE = "berth-keepalive-s"; // ... or after another pause, which this header names
const WAIT_FIRST_MS = 500;
const WAIT_MOST_MS = 10_000;

export class LiveSource {
  // `on`: view(view), change(change), state(text, detail), signIn(reason), me(rights, links).
  constructor(on) {
    this.on = on;
    this.isRecorded = false;
    this.token = read();
    this.waitMs = WAIT_FIRST_MS;
    this.stop = null;
    this.serverMs = 0;
    this.seenMs = 0;
    this.run = 0;
    window.addEventListener("online", () => this.retry());
  }

  // Clock of the server now: its last time, and what has passed here since.
  nowMs() {
    return this.serverMs ? this.serverMs + (performance.now() - this.seenMs) : Date.now();
  }

  hasToken() {
    return this.token !== "";
  }

  start() {
    this.isSignedOut = false;
    this.run += 1;
    this.#follow(this.run);
  }

  // Tries now what it waits for, or asks for a token again.
  retry() {
    this.waitMs = WAIT_FIRST_MS;
    if (this.isSignedOut) this.start();
    else this.wake?.();
  }

  signIn(token) {
    this.token = token;
    write(token);
    this.stop?.abort();
    this.start();
  }

  signOut() {
    this.signIn("");
  }

  async #follow(run) {
    while (run === this.run) {
      this.on.state("connecting");
      try {
        const [me, page] = await Promise.all([this.get("me"), this.get("page")]);
        if (run !== this.run) return;
        this.on.me(me, page.links);
        await this.#stream(run);
      } catch (error) {
        if (run !== this.run) return;
        if (error.status === 401 || error.status === 403) {
          this.isSignedOut = true;
          this.on.state("signed out");
          this.on.signIn(this.token ? "The gateway does not accept this token." : "The gateway asks for a token.");
          return;
        }
      }
      if (run !== this.run) return;
      const waitMs = this.waitMs * (0.75 + Math.random() / 2);
      this.on.state("lost", waitMs);
      await this.#pause(waitMs);
      this.waitMs = Math.min(WAIT_MOST_MS, this.waitMs * 2);
    }
  }

  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #stream(run) {
    const stop = (this.stop = new AbortController());
    let quietMs = QUIET_MS;
    let timer = setTimeout(() => stop.abort(), quietMs);
    try {
      const answer = await this.#fetch("view/changes", stop.signal);
      quietMs = Math.max(QUIET_MS, 3000 * (Number(answer.headers.get(PAUSE)) || 0));
      for await (const { event, data } of eventsOf(answer.body, () => {
        clearTimeout(timer);
        timer = setTimeout(() => stop.abort(), quietMs);
      })) {
        if (run !== this.run) return;
        const message = JSON.parse(data);
        if (message.at_ms) {
          this.serverMs = message.at_ms;
          this.seenMs = performance.now();
        }
        if (event === "view") {
          this.waitMs = WAIT_FIRST_MS;
          this.on.view(message);
          this.on.state("live");
        } else if (event === "change") this.on.change(message);
      }
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  async #fetch(path, signal, options = {}) {
    const headers = { ...options.headers, ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}) };
    const answer = await fetch(`api/v1/${path}`, { ...options, headers, signal, cache: "no-store" });
    if (answer.ok) return answer;
    const failure = new Error(await errorOf(answer));
    failure.status = answer.status;
    throw failure;
  }

  // A JSON document of the gateway. Throws an error with the text of the gateway.
  async get(path, signal = AbortSignal.timeout(20_000)) {
    return (await this.#fetch(path, signal)).json();
  }

  // Has something done. Throws an error with the text of the gateway.
  async send(method, path, body) {
    const data = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
    await this.#fetch(path, AbortSignal.timeout(20_000), { method, ...data });
  }

  // What changed in the last hour.
  hour() {
    return this.get("view/hour");
  }

  // A list of the cell with the entries of all its pages.
  async list(path, name) {
    const found = [];
    for (let after = ""; ;) {
      const page = await this.get(`${path}?limit=1000&after=${encodeURIComponent(after)}`);
      found.push(...page[name]);
      if (!page.next) return { ...page, [name]: found };
      after = page.next;
    }
  }

  // A job as the gateway knows it, in the form of a job of the view; its number is 0.
  async job(namespace, name) {
    const answer = await this.get(`jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
    return { n: 0, submitted_ms: 0, ...(answer.job ?? answer) };
  }

  // What is known of a job besides the view: its events, and the reasons in sentences.
  async story(job) {
    const path = `jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}`;
    const [events, why] = await Promise.allSettled([
      this.#stored(`${path}/events?follow=false`), this.get(`${path}/explain${WAITING.has(job.phase) ? "?nodes=true" : ""}`)]);
    return {
      error: events.reason?.message,
      isRefused: isRefused(events.reason),
      isWhyFailed: why.status === "rejected" && !isRefused(why.reason),
      isLate: why.reason?.status === 404, // the service behind the gateway may know the job in a moment
      events: (events.value ?? []).filter((event) => !job.uid || event.uid === job.uid),
      why: why.value?.sentences ?? [],
      expected: why.value?.explanation?.expected_start ?? null, // of a job that waits, as are the next two
      fits: why.value?.explanation?.fits ?? [],
      task: why.value?.explanation?.task ?? "",
      tasks: tasksOf(why.value?.explanation?.choices ?? []), // of one that is placed
    };
  }

  async #stored(path) {
    const answer = await this.#fetch(path, AbortSignal.timeout(20_000));
    const found = [];
    for await (const { data } of eventsOf(answer.body, () => {})) found.push(JSON.parse(data));
    return found;
  }
}

// Tasks of the pods, by rank.
function tasksOf(choices) {
  const found = [];
  for (const { rank, task } of choices) found[rank] = task;
  return found;
}

// Whether the gateway refuses a request, so that it is of no use to repeat it.
export function isRefused(error) {
  return error?.status >= 400 && error.status < 500 && error.status !== 429;
}

async function errorOf(answer) {
  try {
    return (await answer.json()).error ?? `status ${answer.status}`;
  } catch {
    return `status ${answer.status}`;
  }
}

// Events of a stream of server-sent events. `onBytes` is called whenever something arrives.
export async function* eventsOf(body, onBytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onBytes();
    if (!/[\r\n]/.test(value)) {
      rest += value;
      continue;
    }
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield { event, data: data.join("\n") };
        [event, data] = ["message", []];
      } else if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}

function read() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

function write(token) {
  try {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
  } catch {
    // Without storage the token is asked for again after a reload.
  }
}
