// A list of the service that may be long: its first part is asked for anew, further parts when somebody wants them.

import { get } from "./api.js";

const MOST = 500; // that the service gives at once

export class Listing {
  items = [];
  next = null; // where the next part begins; null where all is here
  turn = Promise.resolve();

  constructor(path, size = 100) {
    Object.assign(this, { path, size });
  }

  async part(limit, after) {
    const more = new URLSearchParams({ limit, ...(after === null ? {} : { after }) });
    return get(`${this.path}${this.path.includes("?") ? "&" : "?"}${more}`);
  }

  // One after the other, so that neither undoes what the other found.
  load() {
    return this.after(() => this.again());
  }

  more() {
    return this.after(() => this.further());
  }

  after(act) {
    const done = this.turn.then(act);
    this.turn = done.catch(() => {});
    return done;
  }

  // As many as are here, anew.
  async again() {
    const wanted = Math.max(this.size, this.items.length);
    const items = [];
    let next = null;
    do {
      const found = await this.part(Math.min(MOST, wanted - items.length), next);
      items.push(...found.items);
      next = found.next;
    } while (next !== null && items.length < wanted);
    Object.assign(this, { items, next });
  }

  async further() {
    if (this.next === null) return;
    const found = await this.part(this.size, this.next);
    Object.assign(this, { items: [...this.items, ...found.items], next: found.next });
  }
}
