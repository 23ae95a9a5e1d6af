// Submit a job over HTTP, follow it, print node and chips of each rank, cancel it, and wait for its end.
import createClient from "openapi-fetch";
import type { components, paths } from "./berth";

const [url, token, name] = process.argv.slice(2) as [string, string, string];
const berth = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });
const path = { namespace: "team-a", name };

const job: components["schemas"]["JobFile"] = {
  apiVersion: "berth/v1",
  kind: "Job",
  metadata: { ...path, uid: crypto.randomUUID() },
  spec: { product: "module910bx8", replicas: 2, chips: 8 },
};
const { data: stored, error } = await berth.POST("/api/v1/jobs", { body: job });
if (!stored) throw new Error(`${error.code}: ${error.error}`);
console.log("submitted", stored.uid);

const query = { uid: stored.uid }; // the stream ends after the last event of the job
const stream = await berth.GET("/api/v1/jobs/{namespace}/{name}/events", { params: { path, query }, parseAs: "stream" });
if (!stream.data) throw new Error(stream.error?.error);
let rest = "";
for await (const bytes of stream.data as unknown as AsyncIterable<Uint8Array>) {
  const chunks = (rest + new TextDecoder().decode(bytes)).split("\n\n");
  rest = chunks.pop() ?? "";
  for (const chunk of chunks.filter((each) => each.startsWith("id: "))) {
    const event: components["schemas"]["JobEvent"] = JSON.parse(chunk.slice(chunk.indexOf("data: ") + 6));
    console.log(event.phase, event.sentence);
    for (const { rank, node, chips } of event.ranks) console.log("rank", rank, "on", node, "chips", ...chips);
    if (event.phase === "placed") await berth.DELETE("/api/v1/jobs/{namespace}/{name}", { params: { path, query } });
  }
}
