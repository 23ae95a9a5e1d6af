// The story of a job: what it requested, what it waited for, where it was placed and why.

import { actionsPart, jobButtons } from "./actions.js";
import { candidatesPart } from "./candidates.js";
import { WAITING } from "./cell.js";
import { commandsPart, jobCommands } from "./commands.js";
import { element } from "./dom.js";
import { clock, count, isElapsed, ranges, span } from "./format.js";
import { linksOf, linksPart, podName } from "./links.js";
import { empty, isOver, moment, nodeLink, phaseBadge, sizeOf, swatch, table, terms } from "./pieces.js";

const WORDS = {
  accepted: "Request accepted", rejected: "Request rejected", waiting: "Waits", recovering: "Recovers from a fault",
  backup: "Backup pods have places", placed: "Placed", bound: "Pods are bound", running: "Runs", ending: "Pods are being deleted",
  succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled",
};

// `story`: { events, why } if it is known, with its job if the view has none, or { error }; null while it is being read.
export function jobView({ cell, route, nowMs, isDark, story, rights, links, isRecorded }) {
  const [namespace, name] = route.names;
  const title = `Job ${namespace}/${name}`;
  const job = cell.jobNamed(namespace, name) ?? story?.job;
  if (job === undefined) {
    const text = story === null ? "Reading the job."
      : story.error ? `The job is not available: ${story.error}.`
      : `There is no job ${namespace}/${name} in this cell.`;
    return { title, content: [empty(text)] };
  }
  const events = story?.events ?? [];
  return {
    title,
    content: [
      element("p", { class: "job-head" }, swatch(job, isDark), phaseBadge(job.phase),
        sinceWords(job, nowMs)),
      job.sentence && element("p", { class: "callout" }, job.sentence),
      job.warning ? element("p", { class: "callout" }, job.warning) : null,
      actionsPart(jobButtons(job, rights)),
      linksPart(links, { namespace: job.namespace, job: job.name }),
      isRecorded ? null : commandsPart(jobCommands(job)),
      requested(cell, job, nowMs, WAITING.has(job.phase) ? story?.expected : null),
      element("h3", {}, isElapsed(nowMs) ? "What happened" : "What happened (UTC)"),
      story === null ? empty("Reading the events.")
        : story.error ? empty(`The events are not available: ${story.error}.`)
        : timeline(events, job, nowMs),
      why(story, job),
      WAITING.has(job.phase) ? candidatesPart(cell, job, story) : null,
      element("h3", {}, "Places"),
      places(cell, job, events, { links, tasks: story?.tasks ?? [] }),
    ],
  };
}

// The newest decision on a job that waits is its last refusal, which does not say how long it waits.
function sinceWords(job, nowMs) {
  if (WAITING.has(job.phase) && job.submitted_ms) return element("span", { class: "muted" }, ", submitted ", span(nowMs - job.submitted_ms), " ago");
  return job.since_ms ? element("span", { class: "muted" }, " for ", span(nowMs - job.since_ms)) : null;
}

// Run times that were learned give a range; the sentences say what holds the place, or why there is no answer.
function startWords(job, expected, nowMs) {
  if (expected?.not_before_ms) return ["not before ", moment(expected.not_before_ms, nowMs)];
  if (!expected?.earliest_ms) return job.expected_start_ms ? moment(job.expected_start_ms, nowMs) : "";
  const first = expected.earliest_ms <= nowMs ? "now" : moment(expected.earliest_ms, nowMs);
  if (!expected.latest_ms) return [first, " at the earliest"];
  return expected.latest_ms > Math.max(expected.earliest_ms, nowMs) ? [first, " to ", moment(expected.latest_ms, nowMs)] : first;
}

function requested(cell, job, nowMs, expected) {
  const position = cell.positions.get(job.n);
  const inQueue = expected?.queue_position ? `, ${expected.queue_position} in ${expected.queue}` : "";
  return terms(
    ["Requested", sizeOf(job)],
    ["Queue", job.queue ? `${job.queue}, priority ${job.priority}` : ""],
    ["Position", position ? `${position} in the queue${inQueue}` : ""],
    ["Submitted", job.submitted_ms ? [moment(job.submitted_ms, nowMs), isOver(job) ? "" : `, ${span(nowMs - job.submitted_ms)} ago`] : ""],
    ["Expected start", startWords(job, expected, nowMs)],
    ["Attempt", job.attempt > 1 || job.step > 0 ? `${job.attempt}${job.step ? `, step ${job.step}` : ""}` : ""],
    ["Code", job.code ?? ""],
    ["Scheduler", job.is_foreign ? "another one" : ""],
    ["UID", job.uid],
  );
}

function why(story, job) {
  const sentences = (story?.why ?? []).map((sentence) => sentence.trim()).filter((sentence) => sentence && sentence !== job.sentence);
  if (sentences.length === 0) return null;
  return [
    element("h3", {}, "Why"),
    element("ul", { class: "why" }, sentences.map((sentence) => element("li", {}, sentence))),
  ];
}

// Places of the pods: those of its newest placement, otherwise what the map knows.
function places(cell, job, events, { links, tasks }) {
  const placed = isOver(job) ? undefined : events.findLast((event) => event.phase === "placed" && event.ranks?.length);
  const rows = cell.rowsOf(job.n);
  if (placed && (rows.length || !job.n)) {
    const shown = placed.ranks.slice(0, 500);
    const outside = shown.map(({ rank, node }) => {
      const names = { namespace: job.namespace, job: job.name, pod: podName(job, tasks, rank), node };
      return [...linksOf(links, names, ["pod"]), ...linksOf(links.filter((link) => !link.url.includes("{pod}")), names, ["node"])];
    });
    const hasLinks = outside.some((found) => found.length);
    const heads = ["Pod", "Node", "Chips", hasLinks && "Links"].filter(Boolean);
    return table(`Places of ${job.name}`, heads, shown.map((rank, index) => [
      String(rank.rank), cell.rowOf.has(rank.node) ? nodeLink(rank.node) : rank.node, ranges(rank.chips),
      ...(hasLinks ? [outside[index]] : [])]));
  }
  if (rows.length) {
    return table(`Places of ${job.name}`, ["Node", "Chips"], rows.slice(0, 500).map((row) =>
      [nodeLink(cell.nodeName(row)), ranges(cell.slotsOf(job.n, row))]));
  }
  return empty(isOver(job) ? "It has given its chips back." : "It has no chips yet.");
}

// Facts of pods may arrive before the binder's outcome: what happened within a second is shown in the order of phases.
function inOrder(events) {
  const ordered = [...events];
  for (let index = 1; index < ordered.length; index += 1) {
    const [before, event] = [ordered[index - 1], ordered[index]];
    const isSame = before.uid === event.uid && before.attempt === event.attempt && before.step === event.step;
    if (isSame && before.phase === "running" && event.phase === "bound" && event.at_ms - before.at_ms < 1000) {
      [ordered[index - 1], ordered[index]] = [event, before];
    }
  }
  return ordered;
}

function timeline(events, job, nowMs) {
  if (events.length === 0) return empty("No events are stored.");
  const ordered = inOrder(events);
  return element("ol", { class: "timeline" }, ordered.map((event, index) => {
    const next = ordered[index + 1];
    const isOpen = next === undefined && !event.final && !isOver(job);
    // The last event of a job that is over may not be stored yet.
    const endMs = next?.at_ms ?? (isOver(job) ? job.since_ms : nowMs);
    const lasted = event.final ? null : endMs - event.at_ms;
    return element("li", { "data-key": event.id, class: isOpen ? "open" : null },
      element("div", { class: "event-head" },
        element("time", { datetime: new Date(event.at_ms).toISOString() }, clock(event.at_ms, nowMs)),
        element("strong", {}, WORDS[event.phase] ?? event.phase),
        lasted !== null && lasted >= 1000 ? element("span", { class: "muted" }, isOpen ? `for ${span(lasted)} so far` : `for ${span(lasted)}`) : null),
      event.sentence && event.sentence !== (isOpen ? job.sentence : "") ? element("p", { class: "sentence" }, event.sentence) : null,
      event.ranks?.length ? element("p", { class: "small muted" }, where(event)) : null);
  }));
}

function where(event) {
  const nodes = [...new Set(event.ranks.map((rank) => rank.node))];
  const shown = nodes.slice(0, 4).join(", ");
  return `${count(event.ranks.length, "pod")} on ${count(nodes.length, "node")}: ${shown}${nodes.length > 4 ? " …" : ""}`;
}
