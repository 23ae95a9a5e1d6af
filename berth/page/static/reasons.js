// Why jobs wait, in groups: reasons that differ in numbers alone are one, with the span of each number.

const NUMBER = /((?<![\w.-])\d[\d,]*(?![\w-]))/;
const known = new WeakMap(); // of the jobs that are shown: a job that changes is another object

// Texts between the numbers at even places, the numbers at odd ones.
function partsOf(job) {
  let parts = known.get(job);
  if (parts === undefined) known.set(job, (parts = (job.sentence || job.code || "no decision yet").split(NUMBER)));
  return parts;
}

// Reasons by chips, the most first: { key, code, text, jobs, chips, oldestMs }.
export function waitingFor(cell) {
  const found = new Map();
  for (const n of cell.queue) {
    const job = cell.jobs.get(n);
    if (!job) continue;
    const parts = partsOf(job);
    const key = `${job.code} ${parts.map((part, index) => (index % 2 ? "#" : part)).join("")}`;
    let one = found.get(key);
    if (one === undefined) found.set(key, (one = { key, code: job.code, parts, spans: parts.map(() => null), jobs: 0, chips: 0, oldestMs: 0 }));
    one.jobs += 1;
    one.chips += job.chips;
    if (job.submitted_ms && (!one.oldestMs || job.submitted_ms < one.oldestMs)) one.oldestMs = job.submitted_ms;
    for (let index = 1; index < parts.length; index += 2) {
      const value = Number(parts[index].replaceAll(",", ""));
      const span = (one.spans[index] ??= [value, value]);
      if (value < span[0]) span[0] = value;
      if (value > span[1]) span[1] = value;
    }
  }
  const groups = [...found.values()].sort((a, b) => b.chips - a.chips || b.jobs - a.jobs || (a.key < b.key ? -1 : 1));
  return groups.map(({ parts, spans, ...one }) => ({ ...one, text: parts.map((part, index) => (index % 2 ? spanText(spans[index]) : part)).join("") }));
}

function spanText([least, most]) {
  const text = (value) => value.toLocaleString("en-US");
  return least === most ? text(least) : `${text(least)} to ${text(most)}`;
}
