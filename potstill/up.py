"""`potstill up`: API and worker as supervised children of one command, everything in one folder."""

import errno
import ipaddress
import os
import socket
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from contract.installation import install
from contract.programs import LEAN, ROOT, python
from potstill.commands.config import load_settings, warn_of_unread
from potstill.console import CliError, out
from potstill.home import Home
from potstill.standing import Plan, Program, become


@dataclass
class UpOptions:
    """What the command line says; None leaves it to the settings."""

    host: str | None = None
    port: int | None = None
    home: Path | None = None
    open_browser: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_http: bool = False


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Connections queue in it while the API starts, and while it restarts.

    Raises:
        CliError: the port is taken (the message proposes a free one) or the address is not ours.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise CliError(
            f"{host!r} is not an address of this machine ({error.strerror}); try --host 127.0.0.1"
        ) from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit it: no answer waits
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            other = _free(host, port)
            raise CliError(
                f"port {port} is already in use on {host}; stop what uses it, or try: potstill up --port {other}"
            ) from error
        if error.errno == errno.EACCES:
            raise CliError(f"port {port} needs more rights; try: potstill up --port 8080") from error
        raise CliError(f"cannot listen on {host} port {port}: {error.strerror}; try --host 127.0.0.1") from error
    return listener


def _free(host: str, near: int) -> int:
    """Return the next free port after `near`, or any free one."""
    for port in [*range(near + 1, min(near + 20, 65536)), 0]:
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return near + 1


def check_system() -> None:
    """Refuse a system on which the service does not run.

    Raises:
        CliError: on Windows.
    """
    if sys.platform == "win32" or find_spec("fcntl") is None:
        raise CliError(
            "the service runs on Linux and macOS; on Windows take WSL or a container (docs/deploy.md). Devices and all "
            "other commands run here"
        )


def check_private(settings: Any, host: str) -> None:
    """Refuse to be reached from other machines over a connection that can be read on the way.

    Raises:
        CliError: with the three ways out.
    """
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = host == "localhost" or host.endswith(".localhost")
    if inside or settings.tls_cert or settings.proxies or settings.insecure_http:
        return
    raise CliError(
        f"{host} can be reached from other machines, and over plain HTTP tokens and weights can be read on the way. "
        "Give --tls-cert and --tls-key; or set POTSTILL_TRUSTED_PROXIES to the proxy that does TLS; or, on a network "
        "that is safe by itself, --insecure-http"
    )


def programs(listener: socket.socket, settings: Any) -> list[Program]:
    """Return the two programs of an embedded installation."""
    from service.infra.connections import MAX_CONNECTIONS

    api = python("-m", "uvicorn", "service.app:create_app", "--factory", "--fd", str(listener.fileno()))
    api += ["--app-dir", str(ROOT)]  # it would else put the current folder first
    api += ["--timeout-graceful-shutdown", "10", "--timeout-keep-alive", "65", "--no-access-log"]
    api += ["--log-level", settings.log_level]
    api += ["--http", "service.infra.protocol:BoundedHttp", "--no-server-header", "--no-proxy-headers"]
    api += ["--limit-concurrency", str(MAX_CONNECTIONS)]
    if settings.tls_cert:
        api += ["--ssl-certfile", str(settings.tls_cert), "--ssl-keyfile", str(settings.tls_key)]
    return [Program("api", api, [listener.fileno()]), Program("worker", _worker(settings), [], probed=True)]


def _worker(settings: Any) -> list[str]:
    """Return the command line of the worker: Celery's where a broker is named, else one that goes without."""
    if settings.broker_url is None:
        return python("-m", "worker", "alone")
    celery = python("-m", "worker", "--quiet", "worker", "--pool=threads", "--concurrency=1")
    celery += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [*celery, f"--loglevel={settings.log_level.upper()}"]


def _address(listener: socket.socket, host: str, scheme: str) -> tuple[str, int]:
    """Return the URL under which this machine reaches the listener, and its port."""
    port = int(listener.getsockname()[1])
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{reachable}:{port}", port


def _first_token(settings: Any, home: Home) -> None:
    """Bring the database to the newest schema; show and keep the operator's token if it had none."""
    from potstill.storage.acts import bring_up
    from service.operations.access import tokens

    bring_up(settings)
    token = tokens.ensure_operator_token(settings)
    if token:
        home.write(home.token_file, token)
        console = out()
        console.print(f"operator token (shown this once): {token}", style="yellow")
        console.print(
            f"  kept for commands on this machine in {home.token_file} (only you can read it); "
            "elsewhere: export POTSTILL_TOKEN=..."
        )


def _hand_on(options: UpOptions) -> None:
    """Give the children what the command line says, as settings, and an allocator that keeps little.

    Raises:
        CliError: a file of the certificate is not there.
    """
    for name, path in (("TLS_CERT", options.tls_cert), ("TLS_KEY", options.tls_key)):
        if path is not None:
            if not path.is_file():
                raise CliError(f"--{name.lower().replace('_', '-')}: there is no file {path}")
            os.environ[f"POTSTILL_{name}"] = str(path.resolve())
    for name, value in LEAN.items():
        os.environ.setdefault(name, value)
    if options.insecure_http:
        os.environ["POTSTILL_INSECURE_HTTP"] = "1"


def run(options: UpOptions) -> NoReturn:
    """Prepare everything, and become the program that starts it and stays until Ctrl-C.

    Raises:
        CliError: port or folder taken, or the service's packages are not installed.
    """
    check_system()
    for package in ("pydantic_settings", "sqlalchemy", "celery", "torch"):
        if find_spec(package) is None:
            raise CliError(f"{package} is not installed; {install('worker')}")
    home = Home(options.home)
    home.make()
    home.lock()
    try:
        _serve(options, home)
    finally:
        home.unlock()


def _serve(options: UpOptions, home: Home) -> NoReturn:
    os.environ["POTSTILL_HOME"] = str(home.path)
    _hand_on(options)
    settings = load_settings()
    warn_of_unread()
    host = options.host or settings.host
    check_private(settings, host)
    with bind(host, settings.port if options.port is None else options.port) as listener:
        url, port = _address(listener, host, "https" if settings.tls_cert else "http")
        out().print(f"potstill  {url}   API page: {url}/docs   folder: {home.path}", style="bold")
        os.environ.update(POTSTILL_HOST=host, POTSTILL_PORT=str(port))
        settings = load_settings()
        _first_token(settings, home)
        home.write(home.url_file, url)
        made = programs(listener, settings)
        encoding, form = sys.stdout.encoding, settings.log_format
        plan = Plan(url, str(home.url_file), made, options.open_browser, encoding, form)
        become(plan, [listener.fileno(), home.lock_handle])
