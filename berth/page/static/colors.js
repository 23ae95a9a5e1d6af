// Colours of the map. They come from the style sheet, but for those of jobs, which follow from the name of the job.

const NAMES = ["surface", "ground", "border", "text", "muted", "accent", "free", "use-1", "use-2", "use-3", "use-4",
  "hidden", "bad", "warn", "mark", "reserved"];

export function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const palette = {};
  for (const name of NAMES) palette[name] = style.getPropertyValue(`--${name}`).trim();
  palette.isDark = style.getPropertyValue("--is-dark").trim() === "1";
  palette.use = [palette.free, palette["use-1"], palette["use-2"], palette["use-3"], palette["use-4"]];
  return palette;
}

function hash(text) {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193) >>> 0;
  }
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d) >>> 0;
  return (value ^ (value >>> 13)) >>> 0;
}

// The same job has the same colour on every screen and after every reload. Red is left out: faults have it. In OKLCH,
// colours of equal lightness look equally light.
export function jobColor(job, isDark) {
  const value = hash(job.name ? `${job.namespace}/${job.name}` : `#${job.n}`);
  return okColor(45 + (value % 61) * 5, Math.floor(value / 61) % 3, isDark);
}

const HUES = 12;

// Colours of namespaces, by name: that of a name, or the next one that none before it in the alphabet has.
export function namespaceColors(names, isDark) {
  const found = new Map();
  const taken = new Set();
  for (const name of [...names].sort()) {
    const first = hash(name) % HUES;
    const places = Array.from({ length: 3 * HUES }, (_, index) => HUES * Math.floor(index / HUES) + ((first + 5 * index) % HUES));
    const place = places.find((one) => !taken.has(one)) ?? first;
    taken.add(place);
    found.set(name, okColor(45 + (place % HUES) * 25, Math.floor(place / HUES), isDark));
  }
  return found;
}

function okColor(hue, step, isDark) {
  const lightness = (isDark ? [0.7, 0.62, 0.78] : [0.54, 0.47, 0.61])[step];
  return `oklch(${lightness} ${isDark ? 0.115 : 0.125} ${hue})`;
}

// Colour of the share of chips in use: 0 only if none is used, the last one only if all are.
export function useLevel(used, chips) {
  if (used <= 0 || chips <= 0) return 0;
  if (used >= chips) return 4;
  return 1 + Math.min(2, Math.floor((3 * used) / chips));
}
