// Drawing of the map. What is far away is aggregated: parts, then nodes by use, then chips by job.

import { ABSENT, CORDONED, DRAINED, FLAGS, NETWORK_UNHEALTHY, OWNERS, RELEASING, RESERVED, UNHEALTHY, WITHHELD, isSerious } from "./cell.js";
import { jobColor, useLevel } from "./colors.js";
import { shown } from "./dom.js";
import { groupTitle } from "./groups.js";

// Pixels of a node from which on nodes, chips, names and numbers are drawn.
export const NODES_FROM = 2.5;
export const CHIPS_FROM = 21;
const NAMES_FROM = 58;
const NUMBERS_FROM = 20;
const NAME_HEIGHT = 15;

export class Painter {
  constructor(context, cell) {
    this.context = context;
    this.cell = cell;
    this.colors = new Map();
    this.namespaces = new Map(); // colours of namespaces
    this.by = "use"; // what colours mean from afar: "use", "job" or "namespace"
    this.drawn = { nodes: 0, chips: 0, parts: 0 };
  }

  setPalette(palette) {
    this.palette = palette;
    this.colors.clear();
  }

  colorOf(n) {
    let color = this.colors.get(n);
    if (color === undefined) {
      if (n < 0) return this.palette.hidden;
      const job = this.cell.jobs.get(n);
      if (job === undefined) return this.palette.hidden;
      const { isDark, hidden } = this.palette;
      this.colors.set(n, (color = this.by === "namespace" ? (this.namespaces.get(job.namespace) ?? hidden) : jobColor(job, isDark)));
    }
    return color;
  }

  // `frame`: width and height in pixels, ratio of the screen, scale, and the point of the map at the upper left corner.
  paint(arranged, frame, focus) {
    const { context, palette } = this;
    this.frame = frame;
    this.focus = focus;
    this.drawn = { nodes: 0, chips: 0, parts: 0 };
    context.setTransform(frame.ratio, 0, 0, frame.ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = palette.ground;
    context.fillRect(0, 0, frame.width, frame.height);
    const labels = [];
    for (const group of arranged.groups) {
      if (!this.#isVisible(group)) continue;
      this.#paintGroup(group, labels);
      for (const part of group.parts) if (this.#isVisible(part)) this.#paintPart(part, arranged);
    }
    for (const label of labels) this.#paintLabel(label);
    if (focus.row >= 0) this.#outline(arranged, focus.row);
  }

  // One node in the middle of a small canvas, for the legend.
  paintAlone(row, side, scale, ratio, candidates = null) {
    this.frame = { width: side, height: side, ratio, scale, left: 0, top: 0 };
    this.focus = { job: 0, rows: new Set(), row: -1, candidates };
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const at = (side - scale) / 2;
    if (scale < CHIPS_FROM) this.#paintNode(row, at, at);
    else this.#paintChips(row, at, at);
  }

  #isVisible(box) {
    const { left, top, scale, width, height } = this.frame;
    return (box.x + box.width - left) * scale > 0 && (box.y + box.height - top) * scale > 0 &&
      (box.x - left) * scale < width && (box.y - top) * scale < height;
  }

  #paintGroup(group, labels) {
    const { context, palette, frame } = this;
    const x = Math.round((group.x - frame.left) * frame.scale);
    const y = Math.round((group.y - frame.top) * frame.scale);
    const width = Math.round(group.width * frame.scale);
    const height = Math.round(group.height * frame.scale);
    context.fillStyle = palette.surface;
    context.fillRect(x, y, width, height);
    context.strokeStyle = palette.border;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    const head = group.head * frame.scale;
    if (head >= 9 && width > 34) labels.push({ text: groupTitle(group), x, y, width, head });
  }

  #paintLabel({ text, x, y, width, head }) {
    const { context, palette } = this;
    const size = Math.max(9, Math.min(13, head * 0.8));
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.fillStyle = palette.muted;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(x, y, width - 3, head);
    context.clip();
    const from = Math.max(x + 5, Math.min(4, x + width - 40)); // stays in sight while its group is
    context.fillText(text, from, y + head / 2 + 1);
    context.restore();
  }

  #paintPart(part, arranged) {
    const { frame, palette, context } = this;
    if (frame.scale < NODES_FROM) {
      const total = this.cell.totals(part.rows);
      const x = Math.round((part.x - frame.left) * frame.scale);
      const y = Math.round((part.y - frame.top) * frame.scale);
      const width = Math.max(1, Math.round(part.width * frame.scale));
      const height = Math.max(1, Math.round(part.height * frame.scale));
      this.#fill(x, y, width, height, total.used, total.chips, () => mainOf(this.cell, part.rows));
      if (total.serious) this.#stroke(x, y, width, height, palette.bad, 1);
      if (this.#isMarked(part.rows)) this.#stroke(x, y, width, height, palette.text, 2);
      this.drawn.parts += 1;
      return;
    }
    if (part.head * frame.scale >= 8 && part.width * frame.scale > 50) {
      context.font = `${Math.max(8, Math.min(11, part.head * frame.scale * 0.8))}px system-ui, sans-serif`;
      context.fillStyle = palette.muted;
      context.textBaseline = "middle";
      const y = (part.y + part.head / 2 - frame.top) * frame.scale;
      context.fillText(groupTitle(part).replace("Rack", "rack"), (part.x - frame.left) * frame.scale + 1, y, part.width * frame.scale);
    }
    this.#paintNodes(part, arranged);
  }

  // Whether some nodes have places of the job that is shown, or could take a pod of it.
  #isMarked(rows) {
    const marked = this.focus.candidates ?? this.focus.rows;
    return marked.size > 0 && rows.some((row) => marked.has(row));
  }

  #paintNodes(part, arranged) {
    const { frame } = this;
    const first = Math.max(0, Math.floor(frame.top - part.y - part.head));
    const last = Math.floor(frame.top + frame.height / frame.scale - part.y - part.head);
    const from = first * part.columns;
    const to = Math.min(part.rows.length, (last + 1) * part.columns);
    for (let index = from; index < to; index += 1) {
      const row = part.rows[index];
      const x = (arranged.x[row] - frame.left) * frame.scale;
      if (x + frame.scale < 0 || x > frame.width) continue;
      const y = (arranged.y[row] - frame.top) * frame.scale;
      if (frame.scale < CHIPS_FROM) this.#paintNode(row, x, y);
      else this.#paintChips(row, x, y);
    }
  }

  #paintNode(row, x, y) {
    const { context, palette, cell, focus, frame } = this;
    const margin = frame.scale >= 6 ? 1 : 0.5;
    const left = Math.round(x + margin);
    const top = Math.round(y + margin);
    const side = Math.max(1, Math.round(frame.scale - 2 * margin));
    const holds = focus.job > 0 && focus.rows.has(row);
    const fits = focus.candidates?.has(row) ?? false;
    if (focus.candidates ? !fits : focus.rows.size > 0 && !holds) context.globalAlpha = 0.3;
    if (holds) {
      context.fillStyle = this.colorOf(focus.job);
      context.fillRect(left, top, side, side);
    } else this.#fill(left, top, side, side, cell.used[row], cell.chipsOf(row), () => cell.main[row]);
    context.globalAlpha = 1;
    if (cell.condition[row]) this.#markNode(row, left, top, side);
    else if (cell.nodes[row][UNHEALTHY]) this.#corner(left, top, side, palette.bad);
    if (holds) this.#stroke(left, top, side, side, palette.text, side > 8 ? 2 : 1);
    if (fits) this.#markCandidate(left, top, side);
    this.drawn.nodes += 1;
  }

  // Colour of the share of chips in use, or that of whoever has the most of them, as high as the share.
  #fill(x, y, width, height, used, chips, owner) {
    const { context, palette } = this;
    if (this.by === "use") {
      context.fillStyle = palette.use[useLevel(used, chips)];
      context.fillRect(x, y, width, height);
      return;
    }
    const share = chips > 0 && used > 0 ? Math.max(1, Math.min(height, Math.round((height * used) / chips))) : 0;
    context.fillStyle = palette.free;
    if (share < height) context.fillRect(x, y, width, height - share);
    if (share === 0) return;
    context.fillStyle = this.colorOf(owner() || -1);
    context.fillRect(x, y + height - share, width, share);
  }

  // A condition is a shape, not only a colour: a cross, diagonal lines, or a corner.
  #markNode(row, x, y, side) {
    const { palette, cell } = this;
    const condition = cell.condition[row];
    const isBad = condition === "evict" || condition === "not ready" || condition === "gone";
    const color = isBad ? palette.bad : palette.warn;
    if (isSerious(condition)) {
      this.#stroke(x, y, side, side, color, side > 12 ? 2 : 1);
      this.#lines(x, y, side, side, color, isBad);
    } else this.#corner(x, y, side, color);
  }

  #paintChips(row, x, y) {
    const { context, palette, cell, focus, frame } = this;
    const node = cell.nodes[row];
    const owners = node[OWNERS];
    const chips = owners.length;
    const hasName = frame.scale >= NAMES_FROM;
    const head = hasName ? NAME_HEIGHT : 0;
    const margin = Math.max(1, Math.round(frame.scale * 0.05));
    const left = Math.round(x) + margin;
    const top = Math.round(y) + margin;
    const side = Math.round(frame.scale) - 2 * margin;
    context.fillStyle = palette.ground;
    context.fillRect(left, top, side, side);
    const wide = chipColumns(chips);
    const lines = Math.ceil(chips / Math.max(1, wide));
    const inset = Math.max(1, Math.round(frame.scale * 0.02));
    const chipWidth = (side - 2 * inset) / wide;
    const chipHeight = (side - 2 * inset - head) / lines;
    const gap = chipWidth > 10 ? 2 : 1;
    for (let slot = 0; slot < chips; slot += 1) {
      if (node[ABSENT] && has(node[ABSENT], slot)) continue;
      const [column, line] = [slot % wide, Math.floor(slot / wide)];
      const chipLeft = Math.round(left + inset + column * chipWidth);
      const chipTop = Math.round(top + inset + head + line * chipHeight);
      // To the next chip, so that all gaps are equal; none behind the last one.
      const width = Math.max(1, Math.round(left + inset + (column + 1) * chipWidth) - chipLeft - (column + 1 < wide ? gap : 0));
      const height = Math.max(1, Math.round(top + inset + head + (line + 1) * chipHeight) - chipTop - (line + 1 < lines ? gap : 0));
      this.#paintChip(node, slot, [chipLeft, chipTop, width, height], focus.candidates ? !focus.candidates.has(row) : false);
      this.drawn.chips += 1;
    }
    this.drawn.nodes += 1;
    if (hasName) this.#paintName(row, left + inset + 1, top + 1, side - 2 * inset);
    this.#frameNode(row, left, top, side, focus);
  }

  #paintChip(node, slot, [x, y, width, height], isOther) {
    const { context, palette, focus } = this;
    const owner = node[OWNERS][slot];
    const isDim = isOther || (focus.rows.size > 0 && owner !== focus.job);
    if (isDim) context.globalAlpha = 0.28;
    context.fillStyle = owner === 0 ? palette.free : this.colorOf(owner);
    context.fillRect(x, y, width, height);
    if (has(node[RELEASING], slot)) {
      const inset = Math.max(1, Math.round(width * 0.25));
      context.fillStyle = palette.surface;
      context.fillRect(x + inset, y + inset, width - 2 * inset, height - 2 * inset);
    }
    context.globalAlpha = 1;
    if (has(node[WITHHELD], slot)) this.#lines(x, y, width, height, palette.muted, false);
    if (has(node[RESERVED], slot)) this.#dashed(x, y, width, height, palette.reserved);
    if (has(node[UNHEALTHY], slot)) {
      this.#stroke(x, y, width, height, palette.bad, width > 9 ? 2 : 1);
      this.#lines(x, y, width, height, palette.bad, true);
    } else if (has(node[NETWORK_UNHEALTHY], slot)) {
      this.#stroke(x, y, width, height, palette.warn, width > 9 ? 2 : 1);
      this.#lines(x, y, width, height, palette.warn, false);
    }
    if (width >= NUMBERS_FROM && height >= 14) {
      context.font = "10px system-ui, sans-serif";
      context.textBaseline = "top";
      context.fillStyle = owner === 0 || isDim ? palette.muted : palette.mark;
      context.fillText(String(slot), x + 3, y + 3);
    }
  }

  #paintName(row, x, y, width) {
    const { context, palette, cell } = this;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "top";
    context.fillStyle = palette.text;
    context.fillText(shortened(context, shown(cell.nodeName(row)), width), x, y + 2);
  }

  #frameNode(row, x, y, side, focus) {
    const { palette, cell } = this;
    const condition = cell.condition[row];
    if (isSerious(condition)) this.#markNode(row, x, y, side);
    else {
      this.#stroke(x, y, side, side, condition ? palette.warn : palette.border, condition ? 2 : 1);
      const node = cell.nodes[row];
      if (node[DRAINED] || node[FLAGS] & CORDONED || condition) this.#corner(x, y, side, palette.warn);
    }
    const out = side > 50 ? 2 : 0; // around the name, where there is one
    if (focus.job > 0 && focus.rows.has(row)) this.#stroke(x - out, y - out, side + 2 * out, side + 2 * out, palette.text, out || 2);
    if (focus.candidates?.has(row)) this.#markCandidate(x, y, side);
  }

  // A frame, and the lower left corner: conditions have the upper right one.
  #markCandidate(x, y, side) {
    const { context, palette } = this;
    this.#stroke(x, y, side, side, palette.accent, side > 60 ? 3 : side > 8 ? 2 : 1);
    const size = Math.min(14, Math.max(3, side * 0.4));
    for (const [edge, color] of [[size + 3, palette.surface], [size, palette.accent]]) {
      const length = Math.min(side, edge);
      context.fillStyle = color;
      context.beginPath();
      context.moveTo(x, y + side - length);
      context.lineTo(x + length, y + side);
      context.lineTo(x, y + side);
      context.fill();
    }
  }

  #stroke(x, y, width, height, color, line) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = line;
    context.strokeRect(x + line / 2, y + line / 2, width - line, height - line);
  }

  #dashed(x, y, width, height, color) {
    const { context } = this;
    context.setLineDash([3, 2]);
    this.#stroke(x, y, width, height, color, 2);
    context.setLineDash([]);
  }

  #lines(x, y, width, height, color, isCross) {
    const { context, palette } = this;
    context.beginPath();
    context.moveTo(x, y + height);
    context.lineTo(x + width, y);
    if (isCross) {
      context.moveTo(x, y);
      context.lineTo(x + width, y + height);
    } else {
      context.moveTo(x, y + height / 2);
      context.lineTo(x + width / 2, y);
      context.moveTo(x + width / 2, y + height);
      context.lineTo(x + width, y + height / 2);
    }
    const line = width > 30 ? 2 : 1;
    context.strokeStyle = palette.surface; // so that the mark is seen on every colour of a job and of use
    context.lineWidth = width > 12 ? line + 3 : line + 2;
    context.stroke();
    context.strokeStyle = color;
    context.lineWidth = line;
    context.stroke();
  }

  // With an edge, so that it is seen on every colour of use.
  #corner(x, y, side, color) {
    const { palette } = this;
    const size = Math.min(12, Math.max(3, side * 0.4));
    this.#triangle(x + side, y, Math.min(side, size + 3), palette.surface);
    this.#triangle(x + side, y, size, color);
  }

  #triangle(right, top, size, color) {
    const { context } = this;
    context.fillStyle = color;
    context.beginPath();
    context.moveTo(right - size, top);
    context.lineTo(right, top);
    context.lineTo(right, top + size);
    context.fill();
  }

  #outline(arranged, row) {
    const { frame, palette } = this;
    const x = Math.round((arranged.x[row] - frame.left) * frame.scale);
    const y = Math.round((arranged.y[row] - frame.top) * frame.scale);
    const side = Math.max(6, Math.round(frame.scale));
    this.#stroke(x - 3, y - 3, side + 6, side + 6, palette.surface, 5);
    this.#stroke(x - 2, y - 2, side + 4, side + 4, palette.accent, 3);
  }
}

// Owner that stands for some nodes: that of the most chips of nodes on which it has the most.
function mainOf(cell, rows) {
  const counts = new Map();
  let best = 0;
  for (const row of rows) {
    const owner = cell.main[row];
    if (owner === 0) continue;
    counts.set(owner, (counts.get(owner) ?? 0) + cell.used[row]);
    if (best === 0 || counts.get(owner) > counts.get(best)) best = owner;
  }
  return best;
}

function chipColumns(chips) {
  return chips <= 4 ? Math.min(2, chips) : chips <= 8 ? 4 : Math.ceil(Math.sqrt(chips));
}

// Chip slot at a point within a node, as shares of its side from 0 to 1; -1 on its name or while no chips are drawn.
export function slotAt(chips, scale, x, y) {
  const head = scale >= NAMES_FROM ? NAME_HEIGHT / scale : 0;
  const wide = chipColumns(chips);
  if (scale < CHIPS_FROM || chips === 0 || y < head) return -1;
  const line = Math.floor(((y - head) / (1 - head)) * Math.ceil(chips / wide));
  const slot = line * wide + Math.min(wide - 1, Math.floor(x * wide));
  return slot < chips ? slot : -1;
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  // The end of a name differs more often than its beginning.
  let from = 1;
  while (from < text.length && context.measureText("…" + text.slice(from)).width > width) from += 1;
  return "…" + text.slice(from);
}

export function has(mask, bit) {
  return mask > 0 && (bit < 31 ? (mask >> bit) & 1 : Math.floor(mask / 2 ** bit) % 2) === 1;
}
