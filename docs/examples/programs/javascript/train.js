// Submit a job, follow it, print node and chips of each rank, cancel it, and wait for its end.
import { randomUUID } from "node:crypto";
import { connect } from "nats";

// In subjects, bytes of names other than letters, digits, - and _ are escaped.
const [url, cell, name] = process.argv.slice(2);
const nc = await connect({ servers: url });

async function ask(operation, request) {
  const answer = await nc.request(`berth.${cell}.api.${operation}`, JSON.stringify(request), { timeout: 10000 });
  const reply = answer.json();
  if (!reply.ok) throw new Error(`${reply.code}: ${reply.error}`);
  return reply;
}

const metadata = { name, namespace: "team-a", uid: randomUUID() };
const spec = { product: "module910bx8", replicas: 2, chips: 8 };
const { uid } = await ask("submit", { job: { apiVersion: "berth/v1", kind: "Job", metadata, spec } });
console.log("submitted", uid);

for (let after = 0, mark = "", over = false; !over; ) {
  const page = await ask("events", { namespace: "team-a", name, after, mark, wait_s: 5 });
  for (const { event } of page.events) {
    if (event.uid !== uid) continue; // an earlier job had the name
    console.log(event.phase, event.sentence);
    for (const { rank, node, chips } of event.ranks) console.log("rank", rank, "on", node, "chips", ...chips);
    if (event.phase === "placed") await ask("cancel", { ...metadata, reason: "example" });
    over = event.final;
  }
  ({ position: after, mark } = page);
}
await nc.close();
