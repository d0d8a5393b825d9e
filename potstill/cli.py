"""The command line: one Typer application, a file per group of commands."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

import contract
from potstill.commands import (
    audit,
    catalogue,
    client,
    config,
    dataset,
    demo,
    federation,
    job,
    keeping,
    model,
    replay,
    simulate,
    spec,
    status,
    steer,
    storage,
    token,
)
from potstill.commands import round as rounds
from potstill.console import CliError, Group

app = typer.Typer(
    name="potstill",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Distil many devices' models into one. `potstill demo` shows it, `potstill up` starts it.",
)
for verb in (
    steer.start,
    steer.pause,
    steer.resume,
    steer.cancel,
    steer.rollback,
    keeping.retention,
    keeping.delete,
    spec.spec,
):
    federation.app.command()(verb)
client.app.command()(keeping.forget)
rounds.app.command()(replay.export)
app.add_typer(federation.app, name="federation")
app.add_typer(rounds.app, name="round")
app.add_typer(model.app, name="model")
app.add_typer(job.app, name="job")
app.add_typer(job.worker_app, name="worker")
app.add_typer(dataset.app, name="dataset")
app.add_typer(catalogue.recipe_app, name="recipe")
app.add_typer(catalogue.architecture_app, name="architecture")
app.add_typer(client.app, name="client")
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.command("status")(status.status)
app.command("replay")(replay.replay)
app.command("gc")(storage.gc)
app.command("verify")(storage.verify)
app.command("backup")(storage.backup)
app.command("restore")(storage.restore)
app.command("config")(config.config)
app.command("migrate")(config.migrate)
app.command("worker-health")(config.worker_health)
app.command("demo")(demo.demo)
app.command("simulate")(simulate.simulate)


def _version(asked: bool) -> None:
    if asked:
        print(f"potstill {contract.__version__}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options before the command."""
    _alone()


def _alone() -> None:
    """Refuse an environment in which a device's wheel has overwritten, or shadows, the packages that both hold."""
    try:
        device = version("potstill-device")
    except PackageNotFoundError:
        return
    here, shared = Path(__file__).parents[1], Path(contract.__file__).parents[1]
    try:
        same = version("potstill") == device and here == shared
    except PackageNotFoundError:  # a checkout that was not installed
        same = here == shared
    if not same:
        raise CliError(
            f"potstill-device {device} is installed in this environment too; both hold contract and client_sdk, "
            "and one overwrote the other's. Give devices an environment of their own (docs/devices.md)"
        )


@app.command("up")
def up(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; 0.0.0.0 for the network.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder for everything; default .potstill")] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain, PEM; the service then speaks HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None,
    insecure_http: Annotated[
        bool,
        typer.Option("--insecure-http", help="Take plain HTTP from other machines: tokens can be read on the way."),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the API page in a browser.")] = False,
) -> None:
    """Start the API and a worker; Ctrl-C stops both."""
    from potstill.up import UpOptions, run

    raise typer.Exit(
        run(
            UpOptions(
                host=host,
                port=port,
                home=home,
                open_browser=open_browser,
                tls_cert=tls_cert,
                tls_key=tls_key,
                insecure_http=insecure_http,
            )
        )
    )


def main() -> None:
    """Run the command line."""
    app()
