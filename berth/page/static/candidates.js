// Nodes that could take a pod of a job that waits, and why the others cannot, as the gateway explains it.

import { element } from "./dom.js";
import { count, number } from "./format.js";
import { nodeLink, table } from "./pieces.js";

const NAMED = 3;

// Rows that could take a pod, and of each other row why not. `fits`: groups of nodes, as `explain` has them.
export function candidatesOf(cell, fits) {
  const rows = new Set();
  const why = new Map();
  for (const { reason, words, nodes } of fits) {
    for (const name of nodes) {
      const row = cell.rowOf.get(name);
      if (row === undefined) continue;
      if (reason === "fits") rows.add(row);
      else why.set(row, words);
    }
  }
  return { rows, why };
}

// What the map marks, as a list.
export function candidatesPart(cell, job, story) {
  const fits = story?.fits ?? [];
  if (fits.length === 0) return null;
  const able = fits.find((one) => one.reason === "fits")?.nodes ?? [];
  const all = fits.reduce((sum, one) => sum + one.nodes.length, 0);
  const pod = job.pods > 1 ? `a pod of task ${story.task}` : "its pod";
  const rest = fits.filter((one) => one.reason !== "fits");
  return [
    element("h3", {}, "Nodes for it now"),
    element("p", {}, `${number(able.length)} of ${count(all, "node")} could take ${pod} now`, able.length ? [", marked on the map: ", named(cell, able)] : "", "."),
    job.pods > 1 && able.length ? element("p", { class: "muted small" }, "Each of them for itself; all pods must find places at once.") : null,
    rest.length ? table("Nodes that cannot take a pod", ["Why not", "Nodes"], rest.map((one) => element("tr", { "data-key": one.reason },
      element("th", { scope: "row" }, one.words),
      element("td", {}, `${number(one.nodes.length)}: `, named(cell, one.nodes))))) : null,
  ];
}

function named(cell, names) {
  const links = names.slice(0, NAMED).flatMap((name, index) => [index ? ", " : "", cell.rowOf.has(name) ? nodeLink(name) : name]);
  return names.length > NAMED ? [links, ` and ${number(names.length - NAMED)} more`] : links;
}
