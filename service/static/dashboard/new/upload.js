// Sends a file in pieces that can be gone on with (tus 1.0), so that a link that breaks costs one piece, and tells how far it is.

import { address, pageHeaders, Problem, send } from "../api.js";

const TUS = { "Tus-Resumable": "1.0.0" };
const LEAST = 256 * 1024;
const MOST = 8 * 1024 * 1024;
const TRIES = 6;

async function asked(method, path, options) {
  const response = await send(method, path, { ...options, headers: pageHeaders({ ...TUS, ...options.headers }) });
  if (response.ok) return response;
  throw new Problem(response.status, await response.json().catch(() => ({})));
}

// Returns the id of the upload; `told(sent)` hears of the bytes that are there for good, `signal` ends it.
export async function upload(file, told, signal) {
  const opened = await asked("POST", "/v1/uploads", { headers: { "Upload-Length": String(file.size) }, signal });
  const id = new URL(opened.headers.get("Location"), `${address}/v1/uploads`).pathname.split("/").pop();
  const path = `/v1/uploads/${id}`;
  const size = Math.min(MOST, Math.max(LEAST, Math.ceil(file.size / 50)));
  try {
    let offset = 0, failed = 0;
    while (offset < file.size) {
      try {
        const headers = { "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(offset) };
        const answer = await asked("PATCH", path, { headers, body: file.slice(offset, offset + size), signal });
        offset = Number(answer.headers.get("Upload-Offset"));
        failed = 0;
      } catch (error) {
        failed += 1;
        const passing = !(error instanceof Problem) || error.status >= 500 || [409, 423, 429].includes(error.status);
        if (signal.aborted || failed >= TRIES || !passing) throw error;
        await new Promise((done) => setTimeout(done, 500 * 2 ** failed));
        offset = Number((await asked("HEAD", path, { signal })).headers.get("Upload-Offset"));
      }
      told(offset);
    }
  } catch (error) {
    asked("DELETE", path, {}).catch(() => {}); // what nobody goes on with takes no room
    throw error;
  }
  return id;
}
