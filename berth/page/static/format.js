// Texts of times, amounts and states.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// A span of time with its two largest units, such as "4 min 10 s".
export function span(ms) {
  const whole = Math.max(0, Math.floor(ms / SECOND)) * SECOND;
  if (whole < MINUTE) return `${whole / SECOND} s`;
  const [large, largeName, small, smallName] =
    whole < HOUR ? [MINUTE, "min", SECOND, "s"] : whole < DAY ? [HOUR, "h", MINUTE, "min"] : [DAY, "d", HOUR, "h"];
  const rest = Math.floor((whole % large) / small);
  return `${Math.floor(whole / large)} ${largeName}` + (rest ? ` ${rest} ${smallName}` : "");
}

// A simulation may count its time from 0: such a moment is a time since the start, not one in 1970.
export function isElapsed(ms) {
  return ms < 366 * DAY;
}

// Time of the day in UTC, as sentences of the services and the command line have it; with the date if it is another day
// than that of `now`.
export function clock(ms, now = ms) {
  if (isElapsed(now)) return span(ms);
  const [date, time] = iso(ms).split("T");
  return iso(now).startsWith(date) ? time.slice(0, 8) : `${date} ${time.slice(0, 8)}`;
}

// The same with the name of the zone, where it stands alone.
export function clockUtc(ms, now = ms) {
  return isElapsed(now) ? clock(ms, now) : `${clock(ms, now)} UTC`;
}

export function iso(ms) {
  return new Date(ms).toISOString();
}

// A moment in full, for a title.
export function momentWords(ms) {
  return isElapsed(ms) ? `${span(ms)} after the start` : iso(ms);
}

export function number(value) {
  return value.toLocaleString("en-US");
}

export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

// An amount of a resource: MiB of memory, otherwise a number.
export function amountText(resource, value) {
  if (resource !== "memory") return number(value);
  return value < 1024 ? `${number(value)} MiB` : `${number(Math.round((10 * value) / 1024) / 10)} GiB`;
}

export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "0 %";
}

// Ids as ranges: 0-3, 6.
export function ranges(ids) {
  const sorted = [...ids].sort((a, b) => a - b);
  const parts = [];
  for (let from = 0; from < sorted.length; ) {
    let to = from;
    while (to + 1 < sorted.length && sorted[to + 1] === sorted[to] + 1) to += 1;
    parts.push(from === to ? `${sorted[from]}` : `${sorted[from]}-${sorted[to]}`);
    from = to + 1;
  }
  return parts.join(", ");
}

export function bits(mask, length) {
  const found = [];
  // Slots can be more than the 31 of a signed shift.
  for (let bit = 0, rest = mask; bit < length && rest > 0; bit += 1, rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) found.push(bit);
  }
  return found;
}

export function fullName(job) {
  return job.name ? `${job.namespace}/${job.name}` : "job without a name";
}
