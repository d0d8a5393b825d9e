// The frame of the page: who looks, at what, and whether the line is alive.

import { get, Lost, Problem, Stream, token, whenSignedOut } from "./api.js";
import { ComparePage } from "./compare.js";
import { tell } from "./dialogs.js";
import { button, el } from "./dom.js";
import { FederationPage } from "./federation.js";
import { ago, seconds, sofar } from "./format.js";
import { Overview } from "./overview.js";

const main = document.getElementById("main");
const state = { role: null, view: null, stream: null, timer: null, loading: false, again: false };
const EVERY = 10000; // what no event tells: ages, the disk, heartbeats of devices

function signIn(why = "") {
  leave();
  document.title = "Potstill: sign in";
  document.getElementById("who").replaceChildren();
  document.getElementById("crumbs").replaceChildren();
  live("");
  const input = el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const said = el("p", { class: "remedy", role: "alert", hidden: !why }, why);
  const form = el("form", { class: "panel signin" },
    el("h1", {}, "Sign in"),
    el("label", { for: "token" }, "Operator or viewer token"),
    input,
    said,
    el("button", { type: "submit", class: "primary" }, "Sign in"),
    el("p", { class: "quiet" }, el("code", {}, "potstill up"), " printed the operator's token at its first start and keeps it in ",
      el("code", {}, ".potstill/operator.token"), ". Another one, which can look and not touch: ",
      el("code", {}, "potstill token create --name me --role viewer"), ". It stays in this tab only."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    input.value = "";
    await begin();
  });
  main.replaceChildren(form);
  input.focus();
}

async function begin() {
  if (!token.get()) return signIn();
  try {
    const status = await get("/v1/status");
    state.role = status.role;
  } catch (error) {
    if (error instanceof Problem && error.status === 403) {
      token.forget();
      return signIn("This is a device's or a join token; the page needs an operator's or a viewer's.");
    }
    if (error instanceof Problem && error.status === 401) return undefined; // said already
    lost(true);
    setTimeout(begin, 3000);
    return undefined;
  }
  lost(false);
  document.getElementById("who").replaceChildren(
    el("span", { class: "quiet" }, state.role), " ",
    button("Sign out", () => {
      token.forget();
      signIn();
    }, { kind: "small", key: "signout" }));
  return route();
}

whenSignedOut((why) => {
  token.forget();
  signIn(why ? `This token is not valid any more, or never was: ${why}` : "");
});

function leave() {
  state.stream?.close();
  clearInterval(state.timer);
  state.stream = state.view = null;
}

function route() {
  if (!token.get() || !state.role) return;
  leave();
  const [place, asked] = location.hash.replace(/^#/, "").split("?");
  const [, kind, id] = place.split("/").map(decodeURIComponent);
  const may = state.role === "operator";
  if (kind === "compare") state.view = new ComparePage(main, [...new Set(new URLSearchParams(asked).getAll("of"))]);
  else state.view = kind === "federations" && id ? new FederationPage(main, may, id, crumbs) : new Overview(main, may);
  crumbs(kind === "compare" ? "compare" : kind ? id : "");
  const { view } = state;
  state.stream = new Stream(view.stream.path, view.stream.newest, {
    event: (event) => view === state.view && view.event(event) && refresh(),
    progress: (jobs) => view === state.view && view.progress(jobs),
    state: (now) => {
      live(now);
      lost(now === "lost");
      if (now === "live") {
        view.missed?.();
        refresh();
      }
    },
  });
  state.timer = setInterval(() => document.hidden || refresh(), view.every ?? EVERY);
  refresh();
}

function crumbs(name) {
  document.getElementById("crumbs").replaceChildren(...(name ? [el("a", { href: "#/" }, "federations"), " / ", el("span", {}, name)] : []));
}

// One look at a time; what comes in between makes one more.
async function refresh() {
  if (state.loading) {
    state.again = true;
    return;
  }
  state.loading = true;
  const { view } = state;
  try {
    await view?.load();
    lost(false);
  } catch (error) {
    if (view !== state.view) return;
    if (error instanceof Lost) lost(true);
    else if (error instanceof Problem && error.status === 404) missing(error);
    else if (!(error instanceof Problem && error.status === 401)) tell(error.message);
  } finally {
    await new Promise((done) => setTimeout(done, 400));
    state.loading = false;
    if (state.again || view !== state.view) {
      state.again = false;
      if (state.view) refresh();
    }
  }
}

function missing(error) {
  leave();
  main.replaceChildren(el("section", { class: "panel" }, el("h1", {}, "There is no such page"), el("p", {}, error.message), el("a", { href: "#/" }, "All federations")));
}

function live(now) {
  const mark = document.getElementById("live");
  mark.className = `live ${now === "live" ? "alive" : now}`;
  mark.textContent = now === "live" ? "live" : now === "lost" ? "not connected" : "";
}

const lost = (is) => (document.getElementById("lost").hidden = !is);

// Ages and deadlines go on without anybody asking the service.
setInterval(() => {
  for (const node of document.querySelectorAll("[data-since]")) node.textContent = ago(node.dataset.since);
  for (const node of document.querySelectorAll("[data-running]")) node.textContent = sofar(node.dataset.running);
  for (const node of document.querySelectorAll("[data-until]")) {
    const left = (Date.parse(node.dataset.until) - Date.now()) / 1000;
    node.textContent = left > 0 ? `${seconds(Math.ceil(left))} left` : "the deadline has passed";
  }
}, 1000);

addEventListener("hashchange", route);
begin();
