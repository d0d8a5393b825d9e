"""`potstill demo`: everything real, in one command: HTTP over a socket, SQLite, a worker process, torch on devices."""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from contract.installation import install
from potstill.console import CliError, out, print_table
from potstill.demo import report
from potstill.demo.experiment import ENV, Outcome, run_methods
from potstill.demo.methods import DEMO, Setting
from potstill.demo.service import LocalService

TITLE = "Digits, ten devices, Dirichlet(0.1), four devices a round"


@dataclass
class DemoOptions:
    """What the command line says."""

    rounds: int = 10
    seed: int = 0
    report: Path = Path("demo-report")
    port: int = 0
    keep: bool = False


def _fresh(folder: Path) -> Path:
    """Return an empty report folder; only what a demo wrote is replaced."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "logs").is_dir():
            raise CliError(f"{folder} is not empty and no report of a demo; choose another with --report")
        shutil.rmtree(folder)
    (folder / "logs").mkdir(parents=True)
    return folder.absolute()


def _missing() -> None:
    try:
        import sklearn  # noqa: F401
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed; {install('worker', 'client', 'demo')}") from error


def run(options: DemoOptions) -> int:
    """Run the demo; return the exit code."""
    _missing()
    folder = _fresh(options.report)
    console = out()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="potstill-demo-") as temporary:
        home = Path(temporary) / "home"
        service = LocalService(home, folder / "logs" / "service.log", options.port, ENV)
        console.print("starting the service: API and worker, SQLite and files in a temporary folder")
        with service:
            console.print(f"service at {service.url} (API page: {service.url}/docs)")
            console.print("ten devices, each with its own skewed share of the digits; FedAvg, FedDF and FedGO in turn")
            outcomes = run_methods(
                service,
                DEMO,
                Setting(options.rounds, options.seed),
                folder=Path(temporary) / "devices",
                logs=folder / "logs",
            )
            seconds = time.monotonic() - start
            _finish(outcomes, folder, seconds, options)
            if options.keep:
                _keep(service)
    return 0


def _finish(outcomes: list[Outcome], folder: Path, seconds: float, options: DemoOptions) -> None:
    facts = {"seed": options.seed, "rounds": options.rounds, "seconds": round(seconds, 1)}
    report.write(outcomes, folder, TITLE, facts)
    heading, rows = report.table_rows(outcomes)
    console = out()
    console.print()
    print_table(heading, rows, title="test accuracy after each round, percent")
    console.print()
    console.print(f"{seconds:.0f} s in all; plot, table, numbers and logs are in {folder}")


def _keep(service: LocalService) -> None:
    console = out()
    console.print(f"the service stays: {service.url}   operator token: {service.token}")
    console.print(f"for the command line: export POTSTILL_URL={service.url} POTSTILL_TOKEN={service.token}")
    console.print("Ctrl-C stops it and removes its folder")
    try:
        service.wait()
    except KeyboardInterrupt:
        console.print("stopping")
