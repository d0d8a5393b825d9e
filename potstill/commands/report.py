"""`potstill federation report`: what it has cost, by round, in all and to an accuracy, and who learns what."""

from typing import Annotated

import typer

from contract.wire.federations import Federation
from contract.wire.report import Bytes, Cost, FederationReport, Flops, RoundCost
from potstill.commands.federation import Ref, resolve
from potstill.connection import Token, Url, operator
from potstill.console import Json, out, percent, print_table, show_one, size
from potstill.figures import measured

_COSTS = ("down", "up", "down, wire", "up, wire", "devices s", "job s", "FLOPs devices", "FLOPs server")


def report(
    federation: Ref,
    target: Annotated[
        list[float] | None,
        typer.Option(min=0.0, max=1.0, help="What it cost to reach this test accuracy first, such as 0.8; several do."),
    ] = None,
    url: Url = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show what a federation has cost: bytes, seconds and operations, and who learns what of whose data."""
    with operator(url, token) as client:
        shown = client.federation(resolve(client, federation))
        found = client.report(shown.id, targets=target or [])
    show_one(found, as_json, lambda each: _show(each, shown))


def _show(found: FederationReport, federation: Federation) -> None:
    """Print a report."""
    metric = federation.metric
    heading = ["", metric.replace("_", " "), *_COSTS]
    rows = [["before", None, *_cost(found.before)]]
    rows += [[f"round {each.round}", _main(each, metric), *_cost(each)] for each in found.rounds]
    rows += [["in all", None, *_cost(found.total)]]
    print_table(heading, rows, title=f"{found.name} ({found.recipe}), {found.state}")
    if found.targets:
        reached = [
            [measured(each.target, metric), each.round, *_cost(each.cost)]
            for each in found.targets
            if each.cost is not None
        ]
        print_table([heading[1], "round", *_COSTS], reached, title="Until it was first reached")
        for missed in (each for each in found.targets if each.cost is None):
            out().print(f"{measured(missed.target, metric)} was not reached")
    _show_networks(found, federation)
    rows = [[each.party, each.what, each.when, each.guarded or None] for each in found.learnt]
    print_table(["who learns", "what", "when", "guarded by"], rows)


def _main(cost: RoundCost, metric: str) -> str:
    return percent(cost.accuracy) if cost.measured is None else measured(cost.measured, metric)


def _show_networks(found: FederationReport, federation: Federation) -> None:
    columns = ["network", "architecture", "parameters", "bytes", "FLOPs forward", "FLOPs training"]
    rows = [
        [
            each.name,
            each.architecture and federation.called(each.architecture),
            each.parameters,
            size(each.bytes),
            each.forward_flops,
            each.training_flops,
        ]
        for each in found.networks
    ]
    print_table(columns, rows)


def _cost(cost: Cost) -> list[object]:
    return [*_bytes(cost.files), *_bytes(cost.wire), cost.seconds.devices, cost.seconds.jobs, *_operations(cost.flops)]


def _bytes(count: Bytes | None) -> list[str | None]:
    return [None, None] if count is None else [size(count.down), size(count.up)]


def _operations(flops: Flops | None) -> list[str | None]:
    if flops is None:
        return [None, None]
    return [f"{flops.training + flops.discriminators:.3g}", f"{flops.labelling + flops.distillation:.3g}"]
