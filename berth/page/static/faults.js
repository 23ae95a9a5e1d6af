// Faults in groups: of one kind at one place, which is a leaf switch, a SuperPoD or a node.

import { count } from "./format.js";
import { groupTitle } from "./groups.js";
import { badge, conditionBadge, conditionKind } from "./pieces.js";

const LEVELS = ["gone", "not ready", "evict", "unhealthy", "no new work", "recovering", "network-unhealthy", "sub-healthy"];
const plain = (level) => (level === "sub-healthy" || level === "network-unhealthy" ? level : level.replaceAll("-", " "));
const rankOf = (level) => LEVELS.indexOf(plain(level)) + (LEVELS.includes(plain(level)) ? 0 : LEVELS.length + 1);

// Groups with the worst first: { key, level, title, group, nodes, of, chips, sinceMs, jobs }.
export function faultGroups(cell) {
  const sizes = new Map();
  const placeOf = (row) => {
    const [, , superpod, , leaf] = cell.layout.nodes[row];
    return leaf >= 0 ? `leaf ${leaf}` : superpod >= 0 ? `superpod ${superpod}` : `node ${row}`;
  };
  const found = new Map();
  for (const fault of cell.faults) {
    const place = fault.node >= 0 ? placeOf(fault.node) : `node ${fault.place}`;
    const key = `${fault.level} ${fault.kind ?? ""} ${place}`;
    if (!found.has(key)) found.set(key, { key, level: fault.level, place, faults: [] });
    found.get(key).faults.push(fault);
  }
  if (found.size) cell.layout.nodes.forEach((_, row) => sizes.set(placeOf(row), (sizes.get(placeOf(row)) ?? 0) + 1));
  const groups = [...found.values()].map((one) => ({ ...one, ...about(cell, one, sizes) }));
  return groups.sort((a, b) => rankOf(a.level) - rankOf(b.level) || b.nodes - a.nodes || (a.title < b.title ? -1 : 1));
}

function about(cell, { place, faults }, sizes) {
  const rows = new Set(faults.map((fault) => fault.node));
  const [kind, index] = place.split(" ");
  const isGroup = rows.size > 1 && kind !== "node";
  const names = kind === "leaf" ? cell.layout.leaves : cell.layout.superpods;
  const group = isGroup ? { kind, name: names[Number(index)] } : null;
  const jobs = new Set(faults.flatMap((fault) => fault.jobs ?? []));
  return {
    group,
    title: group ? groupTitle(group) : cell.nodeName(faults[0].node) || faults[0].place,
    nodes: rows.size,
    of: sizes.get(place) ?? rows.size,
    chips: faults.reduce((sum, fault) => sum + (fault.chips?.length ?? 0), 0),
    sinceMs: faults.reduce((least, { since_ms: ms }) => (ms && (!least || ms < least) ? ms : least), 0),
    jobs: [...jobs].map((n) => cell.jobs.get(n)).filter(Boolean),
  };
}

// What is worst among the faults of a cell: "bad", "warn", or "" without faults.
export function worstKind(faults) {
  const kinds = faults.map((fault) => conditionKind(fault.level));
  return kinds.includes("bad") ? "bad" : kinds.length ? "warn" : "";
}

export function worstBadge(level, chips, prefix = "") {
  if (!prefix && !chips) return conditionBadge(level);
  const [kind, sign] = [conditionKind(level), conditionBadge(level).firstChild.textContent.trim()];
  return badge(`${prefix}${plain(level)}${chips ? `: ${count(chips, "chip")}` : ""}`, kind, sign);
}
