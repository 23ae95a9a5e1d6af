// The map of the cell: what part of it is seen, and how a reader moves in it.

import { readPalette } from "./colors.js";
import { Painter, slotAt } from "./canvas.js";
import { OWNERS } from "./cell.js";
import { arrange, find, neighbour } from "./groups.js";

const SCALE_LEAST = 0.5;
const SCALE_MOST = 320;
const FIT_MOST = 132;
const MOVE_MS = 220;
const WHEEL = 0.0016;

export class CellMap {
  // `on`: opened(row, group), moved(), hovered(row, group, x, y), told(row).
  constructor(canvas, cell, on) {
    this.canvas = canvas;
    this.cell = cell;
    this.on = on;
    this.painter = new Painter(canvas.getContext("2d", { alpha: false }), cell);
    this.painter.setPalette(readPalette());
    this.focus = { job: 0, rows: new Set(), row: -1, candidates: null };
    this.scale = 20;
    this.x = 0;
    this.y = 0;
    this.arranged = null;
    this.arrangedFor = "";
    this.isFitted = true;
    this.wanted = null;
    this.pointers = new Map();
    this.isQueued = false;
    this.painted = 0;
    this.#listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  // Takes the size of the frame, if it is another one.
  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (box.width === this.width && box.height === this.height) return;
    this.width = Math.max(1, box.width);
    this.height = Math.max(1, box.height);
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    if (this.isFitted) this.fit(false);
    this.redraw();
  }

  setTheme() {
    this.painter.setPalette(readPalette());
    this.redraw();
  }

  // What colours mean: "use", "job" or "namespace", with the colours of these.
  setColors(by, namespaces) {
    this.painter.by = by;
    this.painter.namespaces = namespaces;
    this.renewed();
  }

  // After a new view: jobs may have other numbers.
  renewed() {
    this.painter.colors.clear();
    this.redraw();
  }

  // Jobs left the list; their numbers are not used again.
  left(numbers) {
    for (const n of numbers) this.painter.colors.delete(n);
  }

  // Shows a job or a node in the foreground; 0 and -1 for none.
  highlight(job, row) {
    this.focus.job = job;
    this.focus.row = row;
    this.redraw();
  }

  // Marks the nodes that could take a pod of the job in the foreground; null for none that waits.
  setCandidates(rows) {
    if (rows === this.focus.candidates) return;
    this.focus.candidates = rows;
    this.redraw();
  }

  redraw() {
    if (this.isQueued) return;
    this.isQueued = true;
    requestAnimationFrame(() => {
      this.isQueued = false;
      this.#paint();
    });
  }

  #paint() {
    this.#arrange();
    if (this.move) this.#step();
    const { focus } = this;
    focus.rows = focus.job > 0 ? (this.cell.rowsByJob.get(focus.job) ?? new Set()) : new Set();
    this.painter.paint(this.arranged, this.#frame(), focus);
    this.painted += 1;
    if (this.move) this.redraw();
  }

  #frame() {
    const { width, height, ratio, scale } = this;
    return { width, height, ratio, scale, left: this.x - width / 2 / scale, top: this.y - height / 2 / scale };
  }

  // Arranges anew when the layout is another one, or the frame became high instead of wide.
  #arrange() {
    const aspect = this.width / this.height;
    const kind = aspect > 1.5 ? 1.8 : aspect > 1.05 ? 1.25 : aspect > 0.7 ? 0.9 : 0.6;
    const wanted = `${this.cell.layoutCount} ${kind}`;
    if (wanted === this.arrangedFor) return;
    const middle = this.#middle();
    this.arrangedFor = wanted;
    this.arranged = arrange(this.cell.layout, kind);
    if (this.wanted !== null && this.cell.hasView) {
      const { node, scale } = this.wanted;
      this.wanted = null;
      const row = this.cell.rowOf.get(node);
      if (row !== undefined) {
        this.#look(this.arranged.x[row] + 0.5, this.arranged.y[row] + 0.5, scale);
        this.isFitted = false;
        return;
      }
    }
    if (this.isFitted) this.fit(false);
    else if (middle) this.#look(this.arranged.x[middle.row] + middle.x, this.arranged.y[middle.row] + middle.y, this.scale);
  }

  // The node in the middle and how far it is from there, so that it stays there in another arrangement of the same nodes.
  #middle() {
    if (this.isFitted || !this.arranged || this.cell.nodes.length === 0) return null;
    if (!this.arrangedFor.startsWith(`${this.cell.layoutCount} `)) return null;
    if (this.move) this.#look(...this.move.to);
    this.move = null;
    const row = this.#nearest(this.x, this.y);
    return { row, x: this.x - this.arranged.x[row], y: this.y - this.arranged.y[row] };
  }

  #look(x, y, scale) {
    this.x = x;
    this.y = y;
    this.scale = Math.min(SCALE_MOST, Math.max(SCALE_LEAST, scale));
  }

  // Moves to a place, at once or within a moment.
  #go(x, y, scale, isSmooth) {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (isSmooth && !isStill) this.move = { from: [this.x, this.y, this.scale], to: [x, y, scale], began: performance.now() };
    else {
      this.move = null;
      this.#look(x, y, scale);
    }
    this.on.moved();
    this.redraw();
  }

  #step() {
    const { from, to, began } = this.move;
    const part = Math.min(1, (performance.now() - began) / MOVE_MS);
    const eased = 1 - (1 - part) ** 3;
    const [x, y] = [0, 1].map((axis) => from[axis] + (to[axis] - from[axis]) * eased);
    this.#look(x, y, from[2] * (to[2] / from[2]) ** eased);
    if (part === 1) {
      this.move = null;
      this.on.moved();
    }
  }

  fit(isSmooth = true) {
    if (!this.arranged) return;
    this.isFitted = true;
    this.#goToBox({ x: 0, y: 0, width: this.arranged.width, height: this.arranged.height }, 10, isSmooth);
  }

  #goToBox(box, margin, isSmooth) {
    this.#go(box.x + box.width / 2, box.y + box.height / 2, Math.max(SCALE_LEAST, this.#scaleOf(box, margin)), isSmooth);
  }

  #scaleOf(box, margin) {
    return Math.min((this.width - 2 * margin) / box.width, (this.height - 2 * margin) / box.height, FIT_MOST);
  }

  goToGroup(kind, name) {
    this.#arrange();
    const group = this.arranged.groups.find((one) => one.kind === kind && one.name === name);
    if (!group) return;
    this.isFitted = false;
    this.#goToBox(group, 24, true);
  }

  // Brings some nodes into sight with their surroundings, unless all of them are, almost as large as then.
  goToRows(rows) {
    if (rows.length === 0) return;
    this.#arrange();
    const { left, top, scale } = this.#frame();
    const isSeen = (row) => {
      const x = (this.arranged.x[row] - left) * scale;
      const y = (this.arranged.y[row] - top) * scale;
      return x >= 0 && y >= 0 && x + scale <= this.width && y + scale <= this.height;
    };
    const box = { x: Infinity, y: Infinity, right: 0, bottom: 0 };
    for (const row of rows) {
      const [x, y] = [this.arranged.x[row], this.arranged.y[row]];
      [box.x, box.y] = [Math.min(box.x, x - 1.5), Math.min(box.y, y - 1.5)];
      [box.right, box.bottom] = [Math.max(box.right, x + 2.5), Math.max(box.bottom, y + 2.5)];
    }
    [box.width, box.height] = [box.right - box.x, box.bottom - box.y];
    if (scale >= this.#scaleOf(box, 20) / 1.4 && rows.every(isSeen)) return;
    this.isFitted = false;
    this.#goToBox(box, 20, true);
  }

  zoom(factor, screenX = this.width / 2, screenY = this.height / 2) {
    const { left, top, scale } = this.#frame();
    const next = Math.min(SCALE_MOST, Math.max(SCALE_LEAST, scale * factor));
    const x = left + screenX / scale;
    const y = top + screenY / scale;
    this.isFitted = false;
    this.#go(x + (this.width / 2 - screenX) / next, y + (this.height / 2 - screenY) / next, next, false);
  }

  pan(dx, dy) {
    this.isFitted = false;
    this.#go(this.x - dx / this.scale, this.y - dy / this.scale, this.scale, false);
  }

  // Place for an address: the node in the middle, and the scale. "" while the whole cell is seen.
  position() {
    if (this.isFitted || !this.arranged || this.cell.nodes.length === 0) return "";
    const to = this.move ? this.move.to : [this.x, this.y, this.scale];
    return `${this.cell.nodeName(this.#nearest(to[0], to[1]))},${to[2].toFixed(1)}`;
  }

  #nearest(x, y) {
    let best = 0;
    let least = Infinity;
    for (let row = 0; row < this.arranged.x.length; row += 1) {
      const distance = (this.arranged.x[row] + 0.5 - x) ** 2 + (this.arranged.y[row] + 0.5 - y) ** 2;
      if (distance < least) [best, least] = [row, distance];
    }
    return best;
  }

  // Takes a place from an address, at once or when the first view arrives.
  setPosition(text) {
    const cut = text.lastIndexOf(",");
    const scale = Number(text.slice(cut + 1));
    if (cut <= 0 || !(scale > 0)) return;
    this.wanted = { node: text.slice(0, cut), scale };
    this.move = null;
    this.arrangedFor = "";
    this.redraw();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const amount = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      this.zoom(Math.exp(-amount * (event.ctrlKey ? 4 : 1) * WHEEL), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      if (this.pointers.size === 1) this.hasMoved = false;
    });
    canvas.addEventListener("pointermove", (event) => this.#pointerMoved(event));
    canvas.addEventListener("pointerup", (event) => this.#pointerUp(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => this.on.hovered(-1, null, 0, 0));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #pointerMoved(event) {
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) {
      const { row, group } = this.#at(event.offsetX, event.offsetY);
      this.on.hovered(row, group, event.offsetX, event.offsetY);
      return;
    }
    const dx = event.offsetX - pointer.x;
    const dy = event.offsetY - pointer.y;
    if (!this.hasMoved && Math.hypot(dx, dy) < 4) return;
    this.hasMoved = true;
    this.on.hovered(-1, null, 0, 0);
    if (this.pointers.size === 2) this.#pinch(event, pointer);
    else this.pan(dx, dy);
    pointer.x = event.offsetX;
    pointer.y = event.offsetY;
  }

  #pinch(event, pointer) {
    const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)[1];
    const before = Math.hypot(pointer.x - other.x, pointer.y - other.y);
    const after = Math.hypot(event.offsetX - other.x, event.offsetY - other.y);
    if (before > 0) this.zoom(after / before, (event.offsetX + other.x) / 2, (event.offsetY + other.y) / 2);
  }

  #pointerUp(event) {
    const isClick = this.pointers.delete(event.pointerId) && !this.hasMoved && this.pointers.size === 0;
    if (!isClick) return;
    const { row, group, slot } = this.#at(event.offsetX, event.offsetY);
    this.on.opened(row, group, slot);
  }

  #at(screenX, screenY) {
    if (!this.arranged) return { row: -1, group: null, slot: -1 };
    this.#arrange(); // nodes may have come or gone since the last frame
    const { left, top, scale } = this.#frame();
    const [x, y] = [left + screenX / scale, top + screenY / scale];
    const found = find(this.arranged, x, y);
    const { row } = found;
    const slot = row < 0 ? -1
      : slotAt(this.cell.nodes[row][OWNERS].length, scale, x - this.arranged.x[row], y - this.arranged.y[row]);
    return { ...found, slot };
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.arranged) return;
    this.#arrange();
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step && event.shiftKey) this.pan(-step[0] * 60, -step[1] * 60);
    else if (step) this.#moveFocus(step);
    else if (event.key === "+" || event.key === "=") this.#zoomAtFocus(1.3);
    else if (event.key === "-") this.#zoomAtFocus(1 / 1.3);
    else if (event.key === "Home") this.fit();
    else if (event.key === "Enter" && this.focus.row >= 0) this.on.opened(this.focus.row, null);
    else return;
    event.preventDefault();
  }

  #zoomAtFocus(factor) {
    const { row } = this.focus;
    if (row < 0) return this.zoom(factor);
    const { left, top, scale } = this.#frame();
    this.zoom(factor, (this.arranged.x[row] + 0.5 - left) * scale, (this.arranged.y[row] + 0.5 - top) * scale);
  }

  #moveFocus([dx, dy]) {
    if (this.cell.nodes.length === 0) return;
    const before = this.focus.row;
    this.focus.row = before < 0 ? 0 : neighbour(this.arranged, before, dx, dy);
    const { left, top, scale } = this.#frame();
    const x = (this.arranged.x[this.focus.row] + 0.5 - left) * scale;
    const y = (this.arranged.y[this.focus.row] + 0.5 - top) * scale;
    const margin = Math.min(scale, this.width / 4, this.height / 4);
    const outX = x < margin ? x - margin : x > this.width - margin ? x - this.width + margin : 0;
    const outY = y < margin ? y - margin : y > this.height - margin ? y - this.height + margin : 0;
    if (outX || outY) this.pan(-outX, -outY);
    this.on.told(this.focus.row);
    this.redraw();
  }
}
