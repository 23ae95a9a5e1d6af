// Addresses of views: "#/job/team-a/train?map=a2-1,40". A token never becomes part of an address.

export function parseAddress(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { view: parts[0] ?? "", names: parts.slice(1), query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function address(view, ...names) {
  return "#/" + [view, ...names].filter((part) => part !== "").map(encodeURIComponent).join("/");
}

export const addressOfJob = (job) => address("job", job.namespace, job.name);
export const addressOfNode = (name) => address("node", name);
// Jobs with some filters, by the names that they have in the address.
export const addressOfJobs = (filters) => `#/jobs?${new URLSearchParams(filters)}`;
export const addressOfGroup = (group) => address("group", group.kind, group.name);

// Whether the entry of the history has its place on the map: also without one in its address, for the whole cell.
export const isPlaced = () => history.state?.isPlaced === true;

export function setPlaced() {
  if (!isPlaced()) history.replaceState({ ...history.state, isPlaced: true }, "");
}

// Replaces the query of the address without a new entry in the history.
export function setQuery(changes) {
  const [path, query = ""] = (location.hash || "#/").split("?");
  const values = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) values.delete(name);
    else values.set(name, value);
  }
  const text = values.toString().replaceAll("%2C", ",");
  const hash = path + (text ? `?${text}` : "");
  if (hash !== location.hash) history.replaceState(history.state, "", hash);
}
