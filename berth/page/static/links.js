// Links to logs, dashboards and the like, whose templates the gateway has in its settings.

import { element, shown } from "./dom.js";

const NAME = /\{(namespace|job|pod|node)\}/g;
const SCHEMES = new Set(["http:", "https:"]);

const namesIn = (link) => new Set([...link.url.matchAll(NAME)].map((found) => found[1]));

// Address of a link with names in it, each as one part of a path or query; "" if it would lead elsewhere.
function addressOf(link, names) {
  const values = [...namesIn(link)].map((name) => names[name]);
  if (values.some((value) => !value || value === "." || value === "..")) return "";
  const text = link.url.replace(NAME, (_, name) => encodeURIComponent(names[name].toWellFormed()));
  const [address, template] = [parsed(text), parsed(link.url.replace(NAME, "x"))];
  return address && template && SCHEMES.has(address.protocol) && address.origin === template.origin ? address.href : "";
}

function parsed(text) {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

// Links of a place of the page, which has some names. `needed`: one of these must be in the template, so that a link of
// the whole job is not beside each of its pods.
export function linksOf(links, names, needed = Object.keys(names)) {
  const found = (links ?? []).filter((link) => [...namesIn(link)].some((name) => needed.includes(name)));
  return found.map((link) => ({ link, href: addressOf(link, names) })).filter((one) => one.href).map(({ link, href }) =>
    element("a", { href, target: "_blank", rel: "noopener noreferrer", class: "outside" }, link.name,
      element("span", { class: "unseen" }, ` of ${shown(needed.map((name) => names[name]).join(" "))}, in a new tab`)));
}

// The same in a line; nothing without any.
export function linksPart(links, names) {
  const found = linksOf(links, names);
  return found.length ? element("p", { class: "links", "data-key": "links" }, found) : null;
}

// Name of a pod as Volcano and the operators of Ascend and Kubeflow give it; "" if its task is not known.
export function podName(job, tasks, rank) {
  const task = tasks[rank];
  return task ? `${job.name}-${task}-${rank - tasks.indexOf(task)}` : "";
}
