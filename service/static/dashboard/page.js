// What all pages do: ask for what they show, follow the events that say that it is old, and ask again.

import { Lost, Problem, Stream } from "./api.js";
import { tell } from "./dialogs.js";
import { Component } from "./dom.js";

const EVERY = 10000; // what no event tells: ages, the disk, heartbeats of devices
const REST = 400; // between two looks, so that a burst of events makes one

// A page has `stream` (path, newest), `load()`, which asks, `event(event)`, which says whether what is shown is old by it,
// `progress(jobs)`, and `render()`. Its `frame` is what stands round it: see main.js.
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
      if (this.open) this.props.frame.lost(false);
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
    if (error instanceof Lost) frame.lost(true);
    else if (error instanceof Problem && error.status === 404) frame.missing(error);
    else if (!(error instanceof Problem && error.status === 401)) tell(error.message);
  }
}
