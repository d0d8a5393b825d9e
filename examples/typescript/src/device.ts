// A device: the same code in Node and in a browser.
import { client, ok, type Api, type Assignment } from "./api";
import { accuracy, train, tensors, type Plan, type Samples, type Weights } from "./network";
import { read, write } from "./safetensors";

export interface Membership {
  service: string; // "" is the page's own address
  federation: string;
  joinToken: string;
  name: string;
}

/** Enrol, train whatever is asked until the federation is over; return the final model. */
export async function takePart(member: Membership, data: Samples, say: (line: string) => void): Promise<Weights> {
  const joining = client(member.service, member.joinToken);
  const path = { federation_id: member.federation };
  const body = { name: member.name, num_samples: data.labels.length };
  const { token } = await ok(joining.POST("/v1/federations/{federation_id}/clients", { params: { path }, body }));
  const api = client(member.service, token);
  for (;;) {
    // The service holds the answer back while there is nothing to do, so this loop does not spin.
    const work = await ok(api.GET("/v1/assignment", { params: { query: { wait: 30 } } }));
    if (work.action === "wait") continue;
    if (work.action !== "train" && work.action !== "done") throw new Error(`this device cannot do ${work.action}`);
    if (!work.model) throw new Error(`the federation ended as ${work.state}, without a model`);
    const weights = read(await download(api, work.model.id));
    if (work.action === "done") return weights;

    const before = accuracy(weights, data);
    const loss = train(weights, data, plan(work.local), Math.random);
    const metadata = { num_samples: String(data.labels.length), base_model: work.model.id };
    await upload(api, work.round.id, write(tensors(weights), metadata));
    say(`${member.name}, round ${work.round.index}: loss ${loss.toFixed(3)}, own images right before ${percent(before)}`);
  }
}

async function download(api: Api, model: string): Promise<ArrayBuffer> {
  const path = { model_id: model };
  const asked = api.GET("/v1/models/{model_id}/weights", { params: { path }, parseAs: "arrayBuffer" });
  return (await ok(asked)) as ArrayBuffer;
}

async function upload(api: Api, round: string, update: Blob): Promise<void> {
  const digest = await crypto.subtle.digest("SHA-256", await update.arrayBuffer());
  const text = btoa(String.fromCharCode(...new Uint8Array(digest)));
  await ok(
    api.PUT("/v1/rounds/{round_id}/update", {
      params: { path: { round_id: round } },
      body: update,
      bodySerializer: (body) => body, // as it is: bytes, not JSON
      headers: { "Content-Type": "application/octet-stream", "Repr-Digest": `sha-256=:${text}:` },
    }),
  );
}

function plan({ epochs, batch_size, optimizer }: Assignment["local"]): Plan {
  if (optimizer?.kind !== "sgd") throw new Error(`this device trains by sgd, and not by ${optimizer?.kind}`);
  if (!epochs || !batch_size || !optimizer.lr) throw new Error("the plan lacks epochs, batch_size or the optimizer's lr");
  return { epochs, batch_size, optimizer: { lr: optimizer.lr } };
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
