// The frame of the page: who looks, at what, and whether the line is alive.

import { get, Problem, token, whenSignedOut } from "./api.js";
import { ComparePage } from "./compare.js";
import { button, Component, createRef, el, render } from "./dom.js";
import { FederationPage } from "./federation.js";
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
    frame.lost(now === "lost");
  },
  lost: (is) => (at("lost").hidden = !is),
  missing: (error) => render(el("section", { class: "panel" }, el("h1", {}, "There is no such page"), el("p", {}, error.message), el("a", { href: "#/" }, "All federations")), main),
};

class SignIn extends Component {
  input = createRef();

  componentDidMount() {
    this.input.current.focus();
  }

  async send(event) {
    event.preventDefault();
    token.set(this.input.current.value.trim());
    this.input.current.value = "";
    await begin();
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
        el("code", {}, "potstill token create --name me --role viewer"), ". It stays in this tab only."));
  }
}

function signIn(why = "") {
  document.title = "Potstill: sign in";
  render(null, at("who"));
  frame.crumbs("");
  render(el(SignIn, { why }), main);
  frame.live("");
}

async function begin() {
  if (!token.get()) return signIn();
  try {
    role = (await get("/v1/status")).role;
  } catch (error) {
    if (error instanceof Problem && error.status === 403) {
      token.forget();
      return signIn("This is a device's or a join token; the page needs an operator's or a viewer's.");
    }
    if (error instanceof Problem && error.status === 401) return undefined; // said already
    frame.lost(true);
    setTimeout(begin, 3000);
    return undefined;
  }
  frame.lost(false);
  const out = () => {
    token.forget();
    signIn();
  };
  render([el("span", { class: "quiet" }, role), " ", button("Sign out", out, { kind: "small" })], at("who"));
  return route();
}

whenSignedOut((why) => {
  token.forget();
  signIn(why ? `This token is not valid any more, or never was: ${why}` : "");
});

// Each address is a page of its own: what the one before showed and followed is gone.
function route() {
  if (!token.get() || !role) return;
  const key = location.hash;
  const [place, asked] = key.replace(/^#/, "").split("?");
  const [, kind, id] = place.split("/").map(decodeURIComponent);
  const all = { key, frame, may: role === "operator" };
  frame.crumbs(kind === "compare" ? "compare" : kind ? id : "");
  if (kind === "compare") render(el(ComparePage, { ...all, ids: [...new Set(new URLSearchParams(asked).getAll("of"))] }), main);
  else if (kind === "federations" && id) render(el(FederationPage, { ...all, id }), main);
  else render(el(Overview, all), main);
}

addEventListener("hashchange", route);
begin();
