// The frame of the page: who looks, at what, and whether the line is alive.

import { session, whenSignedOut } from "./api.js";
import { ComparePage } from "./compare.js";
import { attempt } from "./dialogs.js";
import { button, Component, createRef, el, render } from "./dom.js";
import { FederationPage } from "./federation.js";
import { NewPage } from "./new/page.js";
import { Overview } from "./overview.js";

const main = document.getElementById("main");
const at = (id) => document.getElementById(id);
let role = null;

// What a page says of itself and of its line.
const frame = {
  crumbs: (name) => render(name ? [el("a", { href: "#/" }, "federations"), " / ", el("span", {}, name)] : null, at("crumbs")),
  live(now) {
    at("live").className = `live ${now === "live" ? "alive" : now}`;
    at("live").textContent = now === "live" ? "live" : now === "lost" ? "not connected" : "";
  },
  // Why what is shown may be old; null where it is not.
  old(why) {
    at("lost").hidden = !why;
    at("lost").textContent = why && !navigator.onLine ? "This machine is offline: what you see may be old." : why ?? "";
  },
  missing: (error) => render(el("section", { class: "panel" }, el("h1", {}, "There is no such page"), el("p", {}, error.message), el("a", { href: "#/" }, "All federations")), main),
};

class SignIn extends Component {
  input = createRef();

  componentDidMount() {
    this.input.current.focus();
  }

  async send(event) {
    event.preventDefault();
    const token = this.input.current.value.trim();
    this.input.current.value = "";
    try {
      if (!/^[\w-]+$/.test(token)) throw new Error("A token has letters, digits, - and _ only.");
      await session.begin(token);
      tabs.postMessage("signed in");
      await begin();
    } catch (error) {
      const wrong = "This is a device's or a join token; the page needs an operator's or a viewer's.";
      if (error.status !== 401) signIn(error.status === 403 ? wrong : error.message); // 401 is said already
    }
  }

  render({ why }) {
    return el("form", { class: "panel signin", onsubmit: (event) => this.send(event) },
      el("h1", {}, "Sign in"),
      el("label", { for: "token" }, "Operator or viewer token"),
      el("input", { id: "token", ref: this.input, type: "password", autocomplete: "off", spellcheck: false, required: true }),
      why && el("p", { class: "remedy", role: "alert" }, why),
      el("button", { type: "submit", class: "primary" }, "Sign in"),
      el("p", { class: "quiet" }, el("code", {}, "potstill up"), " printed the operator's token at its first start and keeps it in ",
        el("code", {}, ".potstill/operator.token"), ". Another one, which can look and not touch: ",
        el("code", {}, "potstill token create --name me --role viewer"), ". This browser is signed in until you sign out, or for a week; the token itself is not kept."));
  }
}

function signIn(why = "") {
  role = null;
  document.title = "Potstill: sign in";
  render(null, at("who"));
  frame.crumbs("");
  render(el(SignIn, { why }), main);
  frame.live("");
}

// What one tab of a browser does, the others see.
const tabs = new BroadcastChannel("potstill");
tabs.onmessage = ({ data }) => (data === "signed in" ? role === null && begin() : signIn());

async function begin() {
  try {
    const who = await session.who();
    if (who === null) return signIn();
    role = who.role;
  } catch {
    frame.old("The service does not answer. Trying again …");
    setTimeout(begin, 3000);
    return undefined;
  }
  frame.old(null);
  const out = async () => {
    if (!(await attempt(session.end))) return;
    tabs.postMessage("signed out");
    signIn();
  };
  render([el("span", { class: "quiet" }, role), " ", button("Sign out", out, { kind: "small" })], at("who"));
  return route();
}

whenSignedOut((why) => signIn(why ?? ""));

// Each address is a page of its own: what the one before showed and followed is gone.
function route() {
  if (role === null) return;
  const key = location.hash;
  const [place, asked] = key.replace(/^#/, "").split("?");
  const [, kind, id] = place.split("/").map(decodeURIComponent);
  const all = { key, frame, may: role === "operator" };
  frame.crumbs({ compare: "compare", new: "new federation" }[kind] ?? (kind ? id : ""));
  if (kind === "compare") render(el(ComparePage, { ...all, ids: [...new Set(new URLSearchParams(asked).getAll("of"))] }), main);
  else if (kind === "new") render(el(NewPage, all), main);
  else if (kind === "federations" && id) render(el(FederationPage, { ...all, id }), main);
  else render(el(Overview, all), main);
}

addEventListener("hashchange", route);
begin();
