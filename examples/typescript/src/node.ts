// In Node: the operator, and three devices; with --page the third is whoever opens the page.
import { existsSync, readFileSync } from "node:fs";
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { parseArgs } from "node:util";
import type { AddressInfo } from "node:net";
import { client, ok } from "./api";
import { shareOf, testOf, type Digits } from "./data";
import { percent, takePart } from "./device";
import { accuracy, HIDDEN, PIXELS } from "./network";
import { write } from "./safetensors";

const DEVICES = 3;
const SERVICE = process.env.POTSTILL_URL ?? "http://127.0.0.1:8080";
const here = new URL(".", import.meta.url); // made/, where the bundles are
const digits = JSON.parse(readFileSync(new URL("digits.json", here), "utf8")) as Digits;

function operatorToken(): string {
  const file = ["../../.potstill/operator.token", ".potstill/operator.token"].find(existsSync);
  const token = process.env.POTSTILL_TOKEN ?? (file && readFileSync(file, "utf8").trim());
  if (!token) throw new Error("no operator token: set POTSTILL_TOKEN, or run this where `potstill up` runs");
  return token;
}

async function create(operator: ReturnType<typeof client>, rounds: number) {
  const test = testOf(digits);
  const labels = BigInt64Array.from(test.labels, BigInt);
  const file = write({
    inputs: { shape: [test.labels.length, PIXELS], values: test.inputs },
    labels: { shape: [test.labels.length], values: labels },
  });
  const dataset = await ok(
    operator.POST("/v1/datasets", {
      params: { query: { name: "typescript-test" } },
      body: file,
      bodySerializer: (body) => body,
      headers: { "Content-Type": "application/octet-stream" },
    }),
  );
  const stamp = new Date().toTimeString().slice(0, 8).replaceAll(":", ""); // names are unique: it can be run again
  const federation = await ok(
    operator.POST("/v1/federations", {
      body: {
        name: `typescript-${stamp}`,
        task: { num_classes: 10, input: { shape: [PIXELS] } },
        prototypes: [{ architecture: "mlp", options: { hidden: [HIDDEN] } }],
        recipe: { name: "fedavg" },
        local: { optimizer: { kind: "sgd", lr: 0.1 }, epochs: 5, batch_size: 16 },
        rounds: { total: rounds, min_clients: DEVICES, min_updates: DEVICES },
        datasets: { test: dataset.id },
      },
    }),
  );
  await ok(operator.POST("/v1/federations/{federation_id}/start", { params: { path: { federation_id: federation.id } } }));
  return federation;
}

/** Serve the page, and hand its calls of the API on, so that both have one address: the service allows no other one. */
function serve(port: number): Promise<Server> {
  const files: Record<string, [URL, string]> = {
    "/": [new URL("../index.html", here), "text/html; charset=utf-8"],
    "/browser.js": [new URL("browser.js", here), "text/javascript"],
    "/digits.json": [new URL("digits.json", here), "application/json"],
  };
  const server = createServer((asked: IncomingMessage, answer: ServerResponse) => {
    const path = (asked.url ?? "/").split("?")[0];
    if (path.startsWith("/v1/")) {
      const onward = request(SERVICE + asked.url, { method: asked.method, headers: asked.headers }, (got) => {
        answer.writeHead(got.statusCode ?? 502, got.headers);
        got.pipe(answer);
      });
      onward.on("error", () => answer.writeHead(502).end());
      asked.pipe(onward);
    } else if (files[path]) {
      answer.writeHead(200, { "Content-Type": files[path][1] }).end(readFileSync(files[path][0]));
    } else answer.writeHead(404).end();
  });
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "6" }, page: { type: "boolean", default: false }, port: { type: "string", default: "0" } },
});
const operator = client(SERVICE, operatorToken());
const federation = await create(operator, Number(values.rounds));
let server: Server | undefined;
if (values.page) {
  server = await serve(Number(values.port));
  const { port } = server.address() as AddressInfo;
  const told = new URLSearchParams({ federation: federation.id, join: federation.join_token, share: String(DEVICES - 1), of: String(DEVICES) });
  console.log(`open http://127.0.0.1:${port}/#${told}`); // behind the #: never sent to a server
}
const inNode = values.page ? DEVICES - 1 : DEVICES;
const devices = Array.from({ length: inNode }, (_, number) =>
  takePart(
    { service: SERVICE, federation: federation.id, joinToken: federation.join_token, name: `node-${number}` },
    shareOf(digits, number, DEVICES),
    console.log,
  ),
);
const [final] = await Promise.all(devices);
const path = { federation_id: federation.id };
const { items } = await ok(operator.GET("/v1/federations/{federation_id}/rounds", { params: { path } }));
for (const round of items.sort((a, b) => a.index - b.index)) {
  console.log(`round ${round.index}: accuracy ${Number(round.metrics?.accuracy).toFixed(3)}`);
}
console.log(`the final model, measured here: ${percent(accuracy(final, testOf(digits)))}`);
if (server) {
  await new Promise((resolve) => setTimeout(resolve, 2000)); // the page fetches its final model, too
  server.close();
  server.closeAllConnections();
}
