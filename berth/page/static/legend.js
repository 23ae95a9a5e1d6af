// What colours and marks of the map mean, drawn with the same painter as the map.

import { element } from "./dom.js";
import { Painter } from "./canvas.js";
import { Cell } from "./cell.js";

const SIDE = 26;
const FREE = [0, 0, 0, 0];
const HELD = [-1, -1, -1, -1];
const ok = (owners, masks = {}) => ["ok", 0, 0, owners, masks.unhealthy ?? 0, masks.network ?? 0, masks.releasing ?? 0,
  masks.withheld ?? 0, 0, masks.reserved ?? 0];

const MARKS = [
  ["Node without use", 18, ok(FREE)],
  ["Some chips in use", 18, ok([-1, -1, 0, 0])],
  ["All chips in use", 18, ok(HELD)],
  ["Zoomed in: chips; each job has a colour", 26, ok([-2, -2, -3, 0])],
  ["Not visible to you", 26, ok(HELD)],
  ["Evict, not ready or gone: cross", 18, ["evict", 0, 0, FREE, 0, 0, 0, 0, 0, 0]],
  ["No new work: lines", 18, ["no-new-work", 0, 0, FREE, 0, 0, 0, 0, 0, 0]],
  ["Drained, cordoned or sub-healthy: corner", 18, ["ok", 2, 0, FREE, 0, 0, 0, 0, 0, 0]],
  ["Unhealthy chip: cross", 26, ok(FREE, { unhealthy: 1 })],
  ["Network unhealthy: lines", 26, ok(FREE, { network: 1 })],
  ["Reserved chip: dashes", 26, ok(FREE, { reserved: 3 })],
  ["Chip of a job that leaves, or that is being released", 26, ok([-2, -2, 0, 0], { releasing: 3 })],
  ["Withheld by the node: lines", 26, ok(FREE, { withheld: 12 })],
  ["Could take a pod of the job that is shown: frame and lower corner", 18, ok(FREE), new Set([0])],
];

export function showLegend(place, palette) {
  place.replaceChildren(...MARKS.map(([text, scale, row, candidates]) =>
    element("li", {}, drawn(scale, row, palette, candidates), element("span", {}, text))));
}

function drawn(scale, row, palette, candidates) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const canvas = element("canvas", { width: SIDE * ratio, height: SIDE * ratio, "aria-hidden": "true" });
  const cell = new Cell();
  const layout = { superpods: [], racks: [], leaves: [], products: [], nodes: [["", -1, -1, -1, -1, 4]] };
  cell.setView({ cell: "", version: 0, at_ms: 0, layout, nodes: [row], jobs: [], queue: [], faults: [], reservations: [], is_partial: false });
  const painter = new Painter(canvas.getContext("2d"), cell);
  painter.setPalette(palette);
  painter.colors.set(-2, palette.isDark ? "oklch(0.68 0.115 190)" : "oklch(0.58 0.125 190)");
  painter.colors.set(-3, palette.isDark ? "oklch(0.68 0.115 310)" : "oklch(0.58 0.125 310)");
  painter.paintAlone(0, SIDE, scale, ratio, candidates);
  return canvas;
}
