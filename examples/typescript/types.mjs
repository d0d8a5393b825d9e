// Makes made/api.ts, the types of every request and answer, of the running service's OpenAPI document.
import { mkdir, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const url = process.env.POTSTILL_URL ?? "http://127.0.0.1:8080";
const BLOB = ts.factory.createTypeReferenceNode("Blob");

const document = await openapiTS(new URL("/openapi.json", url), {
  defaultNonNullable: false, // what has a default need not be sent
  // Bodies of files: JSON Schema has no type for bytes, and the tool's own answer is `string`.
  transform: (schema) => (schema.format === "binary" ? BLOB : undefined),
});
await mkdir("made", { recursive: true });
await writeFile("made/api.ts", astToString(document));
