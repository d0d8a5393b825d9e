// Talks to the service: JSON by the cookie that signing in sets, and the event stream. No script holds a token.

// Where the service is, with the path that a proxy may serve it under: this page is at its root.
export const address = new URL("./", document.baseURI).href.replace(/\/$/, "");

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the service answered ${status}`);
    this.status = status;
    this.kind = (body.type ?? "").replace("urn:potstill:problem:", "");
    this.title = body.title ?? "";
    this.instance = body.instance ?? "";
    this.faults = body.errors ?? (body.field === undefined ? [] : [{ field: body.field, message: body.detail }]);
  }
}

export class Lost extends Error {}

let onSignedOut = () => {};
export const whenSignedOut = (act) => (onSignedOut = act);

export const pageHeaders = (more) => ({ "Potstill-Page": "1", ...more }); // which no form and no other site can send

async function answered(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  if (response.status === 401) onSignedOut(body.detail);
  throw new Problem(response.status, body);
}

export async function send(method, path, options) {
  try {
    return await fetch(address + path, { method, cache: "no-store", credentials: "same-origin", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Lost("the service does not answer");
  }
}

export async function get(path) {
  const response = await answered(await send("GET", path, { headers: pageHeaders({ Accept: "application/json" }) }));
  return response.json();
}

// Without a body where `body` is null.
export async function post(path, body = {}) {
  const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const more = { "Idempotency-Key": key, ...(body === null ? {} : { "Content-Type": "application/json" }) };
  const response = await answered(await send("POST", path, { headers: pageHeaders(more), body: body === null ? undefined : JSON.stringify(body) }));
  return response.status === 204 ? null : response.json();
}

// Who is signed in in this browser: `who` gives null where nobody is.
export const session = {
  async who() {
    const response = await answered(await send("GET", "/v1/session", { headers: pageHeaders({}) }));
    return response.status === 204 ? null : response.json();
  },
  async begin(token) {
    const body = JSON.stringify({ at_root: new URL(address).pathname === "/" });
    const more = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
    return (await answered(await send("POST", "/v1/session", { headers: pageHeaders(more), body }))).json();
  },
  end: () => remove("/v1/session"),
};

export async function patch(path, body) {
  const more = { "Content-Type": "application/json" };
  return (await answered(await send("PATCH", path, { headers: pageHeaders(more), body: JSON.stringify(body) }))).json();
}

export async function remove(path) {
  await answered(await send("DELETE", path, { headers: pageHeaders({}) }));
}

export async function all(path, most = 2000) {
  const items = [];
  let after = "";
  do {
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}limit=500${after}`);
    items.push(...page.items);
    after = page.next === null ? null : `&after=${encodeURIComponent(page.next)}`;
  } while (after !== null && items.length < most);
  return items;
}

export async function download(path, name) {
  const response = await answered(await send("GET", path, { headers: pageHeaders({}) }));
  save(await response.blob(), name);
}

// Hands something to the browser as a file.
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

const SILENCE = 45000; // three of the service's heartbeats

const RESTS = 60000; // a tab that nobody sees lets its stream go: a browser has six connections to a host, for all of its tabs

// Follows an event stream for as long as it is open; goes on by the last id after a break.
export class Stream {
  constructor(path, newest, { event, progress, state }) {
    Object.assign(this, { path, newest, event, progress, state, last: null, open: true, tries: 0 });
    this.looked = () => this.look();
    document.addEventListener("visibilitychange", this.looked);
    this.look();
    this.follow();
  }

  close() {
    this.open = false;
    document.removeEventListener("visibilitychange", this.looked);
    clearTimeout(this.hidden);
    this.abort?.abort();
    this.wake?.();
  }

  // Rests a while after the tab was hidden, and goes on when somebody looks.
  look() {
    clearTimeout(this.hidden);
    this.resting &&= document.hidden;
    if (!document.hidden) this.wake?.();
    else this.hidden = setTimeout(() => {
      this.resting = true;
      this.abort?.abort();
    }, RESTS);
  }

  async follow() {
    while (this.open) {
      if (this.resting) {
        await new Promise((wake) => (this.wake = wake));
        this.tries = 0;
        continue;
      }
      try {
        await this.once();
      } catch (error) {
        if (!this.open) return;
        if (this.resting) continue;
        if (error instanceof Problem && error.status < 500 && error.status !== 429) return;
        this.state("lost");
      }
      if (!this.open) return;
      await new Promise((done) => setTimeout(done, Math.min(8000, 300 * 2 ** this.tries)));
      this.tries += 1;
    }
  }

  async once() {
    this.abort = new AbortController();
    const more = { Accept: "text/event-stream", ...(this.last === null ? {} : { "Last-Event-ID": this.last }) };
    const path = this.last === null ? `${this.path}?newest=${this.newest}` : this.path;
    const response = await answered(await send("GET", path, { headers: pageHeaders(more), signal: this.abort.signal }));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const watch = setTimeout(() => this.abort.abort(), SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(watch));
      if (done || !this.open) return;
      if (this.tries !== -1) this.state("live");
      this.tries = -1;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      frames.forEach((frame) => this.take(frame));
    }
  }

  take(frame) {
    let name = "message", data = "";
    for (const line of frame.split("\n")) {
      if (line.startsWith("id: ")) this.last = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    if (name === "progress") this.progress(JSON.parse(data));
    else if (name !== "missed") this.event(JSON.parse(data));
  }
}
