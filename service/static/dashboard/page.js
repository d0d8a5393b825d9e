// What all pages do: ask for what they show, follow the events that say that it is old, and ask again.

import { Lost, Problem, Stream } from "./api.js";
import { button, Component, el, section } from "./dom.js";

const EVERY = 10000; // what no event tells: ages, the disk, heartbeats of devices
const LOST = "The connection is lost: what you see may be old. Trying again …";
const REST = 400; // between two looks, so that a burst of events makes one

// A page has `stream` (path, newest), `load()`, which asks, `event(event)`, which says whether what is shown is old by it,
// `progress(jobs)`, and `view()`, which gives vnodes. Its `frame` is what stands round it: see main.js.
export class Page extends Component {
  get every() {
    return EVERY;
  }

  componentDidMount() {
    const { path, newest } = this.stream;
    const { frame } = this.props;
    this.open = true;
    this.following = new Stream(path, newest, {
      event: (event) => this.event(event) && this.refresh(),
      progress: (jobs) => this.progress(jobs),
      state: (now) => {
        frame.live(now);
        if (now === "lost") frame.old(LOST);
        if (now !== "live") return;
        this.missed();
        this.refresh();
      },
    });
    this.timer = setInterval(() => document.hidden || this.refresh(), this.every);
    this.refresh();
  }

  componentWillUnmount() {
    this.open = false;
    this.following.close();
    clearInterval(this.timer);
  }

  event() {
    return false;
  }

  progress() {}

  // After a break anything may have changed.
  missed() {}

  // Until the first look is over there is nothing to show; `view` gives what is.
  render() {
    const { error } = this;
    if (this.here) return this.view();
    if (!error) return section("waits", el("p", { role: "status", class: "quiet" }, "Asking the service …"));
    return section("waits", [
      el("h1", {}, "This page cannot be shown now"),
      el("div", { class: "fault", role: "alert" }, el("p", {}, error.title && error.title !== error.message ? `${error.title}: ${error.message}` : error.message)),
      el("p", { class: "quiet" }, "It is asked for again every few seconds; nothing is lost meanwhile."),
      button("Try again now", () => this.refresh(), { kind: "primary" }),
    ]);
  }

  // A fault of the page's own.
  componentDidCatch(error) {
    this.here = false;
    this.error = error;
    this.changed();
  }

  // What is shown changed without anybody asking.
  changed() {
    this.setState({});
  }

  // One look at a time; what comes in between makes one more.
  async refresh() {
    this.again = this.loading;
    if (this.loading) return;
    this.loading = true;
    try {
      await this.load();
      this.here = true;
      this.error = null;
      if (this.open) this.props.frame.old(null);
      this.changed();
    } catch (error) {
      if (this.open) this.failed(error);
    }
    await new Promise((done) => setTimeout(done, REST));
    this.loading = false;
    if (this.again && this.open) this.refresh();
  }

  failed(error) {
    const { frame } = this.props;
    if (error instanceof Problem && error.status === 401) return;
    if (error instanceof Problem && error.status === 404) {
      frame.missing(error);
      return;
    }
    this.error = error;
    frame.old(error instanceof Lost ? LOST : this.here ? `The service answers with an error, so what you see may be old: ${error.message}` : null);
    this.changed();
  }
}
