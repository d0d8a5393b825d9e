"""`potstill round`: look at rounds and close them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from contract.wire.explanations import ExplainedClient, Explanation
from contract.wire.rounds import Participant, RoundDetail
from potstill import exits
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import CliError, Group, Json, out, percent, print_table, show_list, show_one
from potstill.figures import main_figure

if TYPE_CHECKING:
    from client_sdk import OperatorClient

app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at rounds and close them.")


RoundRef = Annotated[str, typer.Argument(metavar="ROUND", help="A round's id, or FEDERATION:NUMBER such as wards:3.")]


def round_id(client: "OperatorClient", ref: str) -> str:
    """Return the id of the round that is meant.

    Raises:
        CliError: the federation has no such round.
    """
    federation, sign, number = ref.rpartition(":")
    if not sign:
        return ref
    for item in client.each(client.rounds, resolve(client, federation)):
        if str(item.index) == number:
            return item.id
    raise CliError(f"{federation} has no round {number}; see: potstill round list {federation}", exits.MISSING)


def _progress(person: Participant) -> str | None:
    told = {} if person.seconds is not None else person.progress or {}  # what it said last before it answered
    if "step" in told and "of" in told:
        return f"step {told['step']} of {told['of']}"
    return f"epoch {told['epoch']}" if "epoch" in told else None


def _digits(value: float | None, places: int = 4) -> str | None:
    """Return a number as people read it; what is smaller than its last place keeps three digits."""
    if value is None or value == 0 or abs(value) >= 10**-places:
        return None if value is None else f"{value:.{places}f}"
    return f"{value:.2e}"


def _tell_participants(found: RoundDetail) -> None:
    ages = [p.staleness for p in found.participants if p.staleness is not None]
    if found.buffered:
        told = f", staleness {min(ages)} to {max(ages)}" if ages else ""
        out().print(f"buffered: {found.answered} of {found.needed} updates are here{told}")
    print_table(
        [
            "client",
            "state",
            "seconds",
            "bytes",
            "samples",
            "distance",
            "norm",
            "weight",
            "teacher",
            *(["staleness", "factor"] if found.buffered else []),
            "last heard",
            "progress",
        ],
        [
            [
                p.label or p.name,
                p.state,
                _digits(p.seconds, 1),
                p.size,
                p.num_samples,
                _digits(p.distance),
                _digits(p.norm_ratio),
                _digits(p.weight),
                _digits(p.teacher_weight),
                *([p.staleness, _digits(p.factor)] if found.buffered else []),
                p.heard_at,
                _progress(p),
            ]
            for p in found.participants
        ],
    )


def _tell(found: RoundDetail) -> None:
    out().print(f"round {found.index}: {found.state}" + (f" ({found.reason})" if found.reason else ""))
    out().print(f"{found.answered} of {found.asked} answered, {found.needed} wanted, {found.min_updates} needed")
    if found.secure is not None:
        said = found.secure
        counts = f"{said.keys} sent keys, {said.shares} shares, {said.masked} masked updates, {said.signed} signatures"
        out().print(f"secure: phase {said.phase}; {counts}, {said.revealed} have revealed")
    _tell_participants(found)
    for name, told in found.metrics.get("evaluation", {}).items():
        figures = told["figures"].get(told["metric"])
        if figures is not None:
            show = percent if told["is_share"] else _digits
            out().print(
                f"{told['devices']} devices measured {name} as it was sent, on {told['samples']} samples: "
                f"{told['metric'].replace('_', ' ')} {show(figures['median'])} in the middle, "
                f"{show(figures['worst_decile'])} for the worst tenth"
            )
        for kind, count in told.get("further", {}).items():
            beside = told["figures"].get(kind)
            shown = "too few to show it"
            if beside is not None:
                middle, worst = _digits(beside["median"]), _digits(beside["worst_decile"])
                shown = f"{middle} in the middle, {worst} for the worst tenth"
            out().print(f"{count} of {told['devices']} devices measured {kind} of {name}: {shown}")
    for p in found.participants:
        if p.outlier is not None:
            out().print(f"{p.name} stands out: {p.outlier}")


@app.command("list")
def list_(federation: Ref, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """List a federation's rounds with the reasons of those that published nothing."""
    with operator(url, token) as client:
        items = list(client.each(client.rounds, resolve(client, federation)))
    show_list(
        items,
        as_json,
        ["round", "id", "state", "answered", "lost", "measured", "reason"],
        lambda r: [
            r.index, r.id, r.state, f"{r.answered}/{r.asked}", r.lost, main_figure(r.metrics), r.reason
        ],
    )  # fmt: skip


@app.command()
def show(round_ref: RoundRef, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Show a round: who was asked, who answered, each client's weight."""
    with operator(url, token) as client:
        show_one(client.round(round_id(client, round_ref)), as_json, _tell)


def _tell_explanation(found: Explanation) -> None:
    votes, without = found.votes, found.without
    if votes is not None:
        whose = "the labels" if votes.compared_with == "labels" else "what the others say together"
        out().print(f"votes on {votes.samples} samples of the {votes.set} set, compared with {whose}")
    if without is not None:
        out().print(f"the {without.model} of all is right on {percent(without.accuracy)} of them")
    columns: dict[str, Callable[[ExplainedClient], str | None]] = {
        "weight": lambda c: _digits(c.weight),
        "cosine": lambda c: _digits(c.cosine, 2),
        "pull": lambda c: _digits(c.pull, 2),
        "agrees": lambda c: percent(c.accuracy),
        "beyond chance": lambda c: _digits(c.beyond_chance, 2),
        "decides": lambda c: percent(c.decides),
        "relabels": lambda c: percent(c.relabels),
        "without it": lambda c: percent(c.accuracy_without),
    }
    known = {name: show for name, show in columns.items() if any(show(client) is not None for client in found.clients)}
    print_table(["client", *known], [[c.name, *(show(c) for show in known.values())] for c in found.clients])
    for client in found.clients:
        for flag in client.flags:
            again = "" if flag.seen == 1 else f" (in {flag.seen} of its last 3 rounds)"
            out().print(f"{client.name}: {flag.detail}{again}")


@app.command()
def explain(round_ref: RoundRef, url: Url = None, token: Token = None, as_json: Json = False) -> None:
    """Say why a round came out as it did: where updates point to, what the models say, who is not like the others."""
    with operator(url, token) as client:
        show_one(client.explanation(round_id(client, round_ref)), as_json, _tell_explanation)


@app.command()
def close(
    round_ref: RoundRef,
    force: Annotated[bool, typer.Option("--force", help="Also with fewer than min_updates.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Fuse a round now with the updates that are here."""
    with operator(url, token) as client:
        show_one(client.close_round(round_id(client, round_ref), force=force), as_json, _tell)
