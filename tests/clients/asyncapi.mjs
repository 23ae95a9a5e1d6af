// Print what the parser of AsyncAPI finds wrong in a document; the argument is its path.
import { readFileSync } from "node:fs";
import asyncapi from "@asyncapi/parser";

const { document, diagnostics } = await new asyncapi.Parser().parse(readFileSync(process.argv[2], "utf8"));
const wrong = diagnostics.filter(({ severity }) => severity === 0);
for (const { message, path } of wrong) console.log(path.join("."), message);
console.log(document ? document.operations().all().length : 0, "operations");
process.exitCode = wrong.length ? 1 : 0;
