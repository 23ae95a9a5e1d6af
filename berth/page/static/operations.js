// Views for operators: services with their lag, and dead letters.

import { element } from "./dom.js";
import { count, number, span } from "./format.js";
import { age, badge, empty, limited, table, terms } from "./pieces.js";

// `document`: as `berth status --json` prints it; null while it is being read.
export function servicesView({ document, error, nowMs }) {
  const title = "Services";
  if (!document) return { title, content: [empty(error ? `The status is not available: ${error}.` : "Reading the status.")] };
  const status = document.status ?? document;
  const problems = document.problems ?? status.problems ?? [];
  return {
    title,
    content: [
      error ? element("p", { class: "notice" }, `The status is old: ${error}.`) : null,
      problems.length
        ? [element("h3", {}, "Problems"), element("ul", { class: "cards" }, problems.map((text) => element("li", { class: "card bad" }, text)))]
        : element("p", {}, badge("no problems", "good", "●")),
      element("h3", {}, "Decisions"),
      terms(
        ["Leader", leader(status.leader)],
        ["Jobs that wait", status.leader?.process ? number(status.leader.waiting) : ""],
        ["Scorers", scorers(status.scorers)],
        ["Last decision", status.decision ? [`record ${number(status.decision.sequence)}, `, age(status.decision.at_ms, nowMs, " ago")] : "none yet"],
        ["Dead letters", status.dead_letters ? element("a", { href: "#/dead" }, `${number(status.dead_letters.open)} open`) : ""],
      ),
      element("h3", {}, "Processes"),
      table("Processes", ["Service", "Release", "Behind", "State"], (status.processes ?? []).map((one) => [
        [element("strong", {}, one.service), one.shard === null || one.shard === undefined ? "" : ` shard ${one.shard}`,
          element("span", { class: "small muted block" }, one.id)],
        one.release,
        behind(one.behind ?? {}),
        one.not_ready?.length ? badge(`not ready: ${[one.not_ready].flat().join(", ")}`, "bad", "✕")
          : one.is_leader ? badge("leader", "good", "★") : badge("ready", "good", "●"),
      ])),
      nats(status.nats),
    ],
  };
}

// The lease names its holder also when that is gone: only a process that says so leads.
function leader(state) {
  if (state?.process) return state.process;
  return state?.holder ? `nobody leads; the lease is that of ${state.holder}` : "nobody leads";
}

function scorers(state) {
  if (!state) return "";
  if (state.expected === 0) return "none: the dispatcher scores in its own process";
  const expected = state.expected === null || state.expected === undefined ? "" : ` of ${state.expected}`;
  return `${(state.answering ?? []).length}${expected} answer` + (state.missing?.length ? `, missing: ${state.missing.join(", ")}` : "");
}

function behind(streams) {
  const late = Object.entries(streams).filter(([, messages]) => messages > 0);
  if (late.length === 0) return "0";
  return late.map(([stream, messages]) => `${stream} ${number(messages)}`).join(", ");
}

function nats(state) {
  if (!state) return null;
  return [
    element("h3", {}, "NATS"),
    terms(["Server", `${state.server ?? ""} ${state.release ?? ""}`.trim()], ["Cluster", state.cluster ?? ""],
      ["Round trip", state.round_trip_ms === undefined ? "" : `${Number(state.round_trip_ms).toFixed(1)} ms`],
      ["Missing streams", (state.missing ?? []).join(", ")]),
    table("Streams", ["Stream", "Messages", "Size", "Late"], (state.streams ?? []).map((stream) => [
      stream.name, number(stream.messages), size(stream.bytes),
      stream.late?.length ? badge(stream.late.join(", "), "warn", "▲") : "no"])),
  ];
}

function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [bytes / 1024, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${value.toFixed(1)} ${units[unit]}`;
}

// `document`: as `berth dead list --json` prints it.
export function deadView({ document, error, nowMs, limits }) {
  const title = "Dead letters";
  if (!document) return { title, content: [empty(error ? `The letters are not available: ${error}.` : "Reading the letters.")] };
  const letters = Array.isArray(document) ? document : (document.letters ?? []);
  const old = error ? element("p", { class: "notice" }, `The letters are old: ${error}.`) : null;
  if (letters.length === 0) return { title, content: [old, empty("There are no dead letters.")] };
  const [cards, more] = limited(letters, "letters", limits, (letter) => element("li", { class: "card", "data-key": letter.id },
    element("div", { class: "card-head" }, badge(letter.code || "other", "warn", "▲"), element("code", {}, letter.id),
      element("span", { class: "card-age" }, age(letter.at_ms, nowMs))),
    element("p", { class: "sentence" }, letter.reason),
    element("p", { class: "small muted" }, `${letter.subject} · ${size(letter.size_bytes ?? 0)} · ${letter.state ?? "open"}`)));
  return {
    title,
    content: [
      old,
      element("p", { class: "muted" }, `${count(letters.length, "message")} that can never be handled; the newest is ${span(nowMs - letters[0].at_ms)} old. `,
        element("code", {}, "berth dead show"), " prints one."),
      element("ul", { class: "cards" }, cards),
      more,
    ],
  };
}
