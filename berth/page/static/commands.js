// Commands of `berth` for what is shown, to copy.

import { element, shown } from "./dom.js";
import { isOver } from "./pieces.js";

const PLAIN = /^[\w.:\/@%+=-]+$/;

// A word as a shell takes it: a name can neither end a command nor begin another one.
function word(text) {
  const seen = shown(text);
  return PLAIN.test(seen) ? seen : `'${seen.replaceAll("'", "'\\''")}'`;
}

const command = (...words) => ["berth", ...words].map(word).join(" ");

export function jobCommands(job) {
  const name = `${job.namespace}/${job.name}`;
  if (job.is_foreign) return [];
  return [command("explain", name), command("log", "--since", "1h", "--job", name), isOver(job) ? null : command("cancel", name)].filter(Boolean);
}

export function nodeCommands(name, drained) {
  return [command("node", name), command("log", "--since", "1h", "--node", name), ...placeCommands("node", name, drained)];
}

export function placeCommands(kind, name, drained) {
  const own = drained?.some((one) => one.kind === kind && one.name === name);
  return [command(own ? "undrain" : "drain", name, "--kind", kind)];
}

export const approveCommand = (kind, domain) => command("faults", "approve", kind, "--domain", domain);

export function commandsPart(commands) {
  if (commands.length === 0) return null;
  return element("details", { class: "commands", "data-key": "commands" },
    element("summary", {}, "Commands"),
    element("ul", {}, commands.map((text) => element("li", { "data-key": text },
      element("code", {}, text),
      element("button", { type: "button", "data-copy": text, "aria-label": `Copy ${text}` }, "Copy")))));
}

// Copies the command of a button, or selects it where the browser does not let a page copy. Returns what it did.
export async function copyCommand(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
    return `Copied: ${text}`;
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    return `Selected, to be copied: ${text}`;
  }
}
