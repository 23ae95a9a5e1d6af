// Places of nodes on the map: SuperPoDs with their racks, and leaf switches with their nodes.
//
// The unit is the side of a node with its margin. A group has a head for its name; a SuperPoD holds one part for each
// rack, every other group is one part.

import { shown } from "./dom.js";

// Distances, in pixels while the whole cell is seen on a screen of a usual size. In large cells a node is small there:
// a distance is at most as large as a node.
const MARGIN = 5;
const HEAD = 16;
const GAP = 9;
const PART_HEAD = 9;
const SCREEN = 850 * 680;
const NODE_MOST = 132;

export function arrange(layout, aspect) {
  const groups = collect(layout);
  const node = Math.min(NODE_MOST, Math.sqrt(SCREEN / 1.8 / Math.max(1, layout.nodes.length)));
  const unit = (pixels, most) => Math.min(pixels / node, most);
  for (const group of groups) measure(group, unit);
  const best = pack(groups, aspect, unit(GAP, 0.7));
  const x = new Float32Array(layout.nodes.length);
  const y = new Float32Array(layout.nodes.length);
  for (const group of groups) place(group, x, y);
  return { groups, x, y, width: best.width, height: best.height, partOf: partsByRow(groups, layout.nodes.length) };
}

function collect(layout) {
  const found = new Map();
  layout.nodes.forEach(([, , superpod, rack, leaf], row) => {
    const [kind, index, name] =
      superpod >= 0 ? ["superpod", superpod, layout.superpods[superpod]]
      : leaf >= 0 ? ["leaf", leaf, layout.leaves[leaf]]
      : rack >= 0 ? ["rack", rack, layout.racks[rack]]
      : ["other", 0, "other"];
    const key = `${kind} ${index}`;
    if (!found.has(key)) found.set(key, { kind, index, name, rows: [], parts: new Map() });
    const group = found.get(key);
    group.rows.push(row);
    const [partKind, partName] =
      kind !== "superpod" ? ["", ""]
      : rack >= 0 ? ["rack", layout.racks[rack]]
      : leaf >= 0 ? ["leaf", layout.leaves[leaf]]
      : ["", ""];
    const partKey = `${partKind} ${partName}`;
    if (!group.parts.has(partKey)) group.parts.set(partKey, { kind: partKind, name: partName, rows: [] });
    group.parts.get(partKey).rows.push(row);
  });
  const order = ["superpod", "leaf", "rack", "other"];
  const groups = [...found.values()];
  groups.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.index - b.index);
  for (const group of groups) group.parts = [...group.parts.values()];
  return groups;
}

export function groupTitle(group) {
  const kinds = { superpod: "SuperPoD", leaf: "Leaf", rack: "Rack" };
  if (group.kind === "other") return "Other nodes";
  // A name that says what it is, such as leaf-3, needs no more.
  const name = shown(group.name);
  return name.toLowerCase().includes(group.kind) ? name : `${kinds[group.kind]} ${name}`;
}

// Columns for a number of nodes: full rows where possible, somewhat wider than high.
function columns(nodes) {
  for (let wide = Math.ceil(Math.sqrt(nodes)); wide <= Math.sqrt(nodes * 2.7); wide += 1) {
    if (nodes % wide === 0) return wide;
  }
  return Math.ceil(Math.sqrt(nodes * 1.5));
}

function measure(group, unit) {
  const hasParts = group.parts.length > 1;
  group.margin = unit(MARGIN, 0.35);
  group.head = unit(HEAD, 0.8);
  for (const part of group.parts) {
    part.columns = columns(part.rows.length);
    part.head = hasParts && part.name ? unit(PART_HEAD, 0.5) : 0;
    part.width = part.columns;
    part.height = Math.ceil(part.rows.length / part.columns) + part.head;
  }
  const size = pack(group.parts, 1.5, hasParts ? unit(5, 0.3) : 0);
  group.width = size.width + 2 * group.margin;
  group.height = size.height + group.margin + group.head;
}

// Puts boxes into rows of about equal width, so that the whole fits best into a frame of this aspect.
function pack(boxes, aspect, gap) {
  const area = boxes.reduce((sum, box) => sum + (box.width + gap) * (box.height + gap), 0);
  const widest = Math.max(...boxes.map((box) => box.width), 0);
  let best = null;
  for (let factor = 0.6; factor <= 1.9; factor += 0.05) {
    const tried = shelves(boxes, Math.max(widest, Math.sqrt(area * aspect) * factor), gap);
    const side = Math.max(tried.width / aspect, tried.height);
    if (best === null || side < best.side - 1e-6) best = { ...tried, side };
  }
  if (best === null) return { width: 1, height: 1 };
  best.places.forEach(([x, y], index) => {
    boxes[index].x = x;
    boxes[index].y = y;
  });
  return { width: best.width, height: best.height };
}

function shelves(boxes, limit, gap) {
  const places = [];
  let [x, y, high, width] = [0, 0, 0, 0];
  let kind = boxes[0]?.kind;
  for (const box of boxes) {
    const isOtherKind = box.kind !== kind; // SuperPoDs and leaf switches do not share a line
    kind = box.kind;
    if (x > 0 && (isOtherKind || x + box.width > limit + 1e-6)) {
      x = 0;
      y += high + gap;
      high = 0;
    }
    places.push([x, y]);
    x += box.width + gap;
    high = Math.max(high, box.height);
    width = Math.max(width, x - gap);
  }
  return { places, width, height: y + high };
}

function place(group, x, y) {
  for (const part of group.parts) {
    part.x += group.x + group.margin;
    part.y += group.y + group.head;
    part.rows.forEach((row, index) => {
      x[row] = part.x + (index % part.columns);
      y[row] = part.y + part.head + Math.floor(index / part.columns);
    });
  }
}

function partsByRow(groups, nodes) {
  const found = new Array(nodes);
  for (const group of groups) for (const part of group.parts) for (const row of part.rows) found[row] = { group, part };
  return found;
}

// Row of the node at a point of the map, and its group; -1 and null beside them.
export function find(arranged, x, y) {
  for (const group of arranged.groups) {
    if (x < group.x || y < group.y || x > group.x + group.width || y > group.y + group.height) continue;
    for (const part of group.parts) {
      const column = Math.floor(x - part.x);
      const line = Math.floor(y - part.y - part.head);
      if (column < 0 || column >= part.columns || line < 0) continue;
      const index = line * part.columns + column;
      if (index < part.rows.length) return { group, row: part.rows[index] };
    }
    return { group, row: -1 };
  }
  return { group: null, row: -1 };
}

// Row of the next node in a direction; the same row at the edge.
export function neighbour(arranged, row, dx, dy) {
  let best = row;
  let least = Infinity;
  for (let other = 0; other < arranged.x.length; other += 1) {
    const ahead = (arranged.x[other] - arranged.x[row]) * dx + (arranged.y[other] - arranged.y[row]) * dy;
    const aside = Math.abs((arranged.x[other] - arranged.x[row]) * dy) + Math.abs((arranged.y[other] - arranged.y[row]) * dx);
    if (ahead < 0.5) continue;
    const distance = ahead + 3 * aside;
    if (distance < least) [best, least] = [other, distance];
  }
  return best;
}
