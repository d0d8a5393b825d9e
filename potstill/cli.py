"""The command line: one Typer application, a file per group of commands."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

import contract
from potstill.console import CliError, speak_plainly
from potstill.lazy import Lazy

app = typer.Typer(
    name="potstill",
    cls=Lazy,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Distil many devices' models into one. `potstill demo` shows it, `potstill up` starts it.",
)


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


def main() -> None:
    """Run the command line."""
    speak_plainly()
    app()
