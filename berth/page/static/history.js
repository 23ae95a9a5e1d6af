// The course of a recording: chips in use, and jobs that wait, at each change.

import { OWNERS, usedOn } from "./cell.js";
import { readPalette } from "./colors.js";

// Points { atMs, used, waiting } in the order of the time, and the largest values.
export function historyOf(recording) {
  let rows = [];
  let used = 0;
  let chips = 0;
  let waiting = 0;
  const points = [];
  const take = (message) => {
    if (message.layout) {
      rows = message.nodes.map(usedOn);
      used = rows.reduce((sum, one) => sum + one, 0);
      chips = Math.max(chips, message.nodes.reduce((sum, node) => sum + node[OWNERS].length, 0));
    } else {
      for (const [row, node] of message.nodes ?? []) {
        const now = usedOn(node);
        used += now - (rows[row] ?? 0);
        rows[row] = now;
      }
    }
    if (message.queue) waiting = message.queue.length;
    points.push({ atMs: message.at_ms, used, waiting });
  };
  take(recording.view);
  recording.changes.forEach(take);
  return { points, chips, waiting: points.reduce((most, point) => Math.max(most, point.waiting), 1) };
}

export function drawHistory(canvas, history, { begin_ms: beginMs, end_ms: endMs }) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const palette = readPalette();
  const x = (point) => (width * (point.atMs - beginMs)) / Math.max(1, endMs - beginMs);
  const line = (value, most) => {
    context.beginPath();
    let y = height;
    context.moveTo(0, height);
    for (const point of history.points) {
      context.lineTo(x(point), y);
      y = height - ((height - 2) * value(point)) / Math.max(1, most);
      context.lineTo(x(point), y);
    }
    context.lineTo(width, y);
  };
  line((point) => point.used, history.chips);
  context.lineTo(width, height);
  context.fillStyle = palette["use-1"];
  context.fill();
  line((point) => point.waiting, history.waiting);
  context.strokeStyle = palette.warn;
  context.lineWidth = 1.5;
  context.stroke();
}
