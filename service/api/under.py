"""The service under a path, `https://host/potstill/`: behind a proxy that takes the path off, or leaves it in.

A proxy that takes it off need say nothing: our pages and answers are relative. Where one leaves it in, uvicorn is told
the path (`--root-path`, UVICORN_ROOT_PATH) and puts it before each request's, whatever the proxy did.
"""

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from contract.hosts import is_this_machine

_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix")


class Under:
    """Takes the root path off, so that all within see the paths that are documented."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on without the path that we are served under."""
        root = scope.get("root_path", "").rstrip("/")
        if scope["type"] != "http" or not root:
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        for _ in range(2):  # uvicorn's, and the proxy's
            if path == root or path.startswith(f"{root}/"):
                path = path[len(root) :]
        if not path:  # links of the page are relative to its folder
            await RedirectResponse(f"{root.rpartition('/')[2]}/")(scope, receive, send)
            return
        await self._app({**scope, "path": path, "root_path": ""}, receive, send)


def address(scope: Scope, path: str) -> str:
    """Return the address of a path below `/v1/` for an answer to a request to one of `/v1/`.

    Whoever asks us directly gets the path. What comes by a proxy may have lost the path that we are under there, so the
    answer is relative to what was asked.
    """
    return f"/v1/{path}" if _is_direct(scope) else f"../v1/{path}"


def _is_direct(scope: Scope) -> bool:
    """Whether a request names this very socket as its host, and nothing says that it was passed on."""
    headers, server = Headers(scope=scope), scope.get("server")
    if server is None or scope.get("http_version") == "1.0" or any(name in headers for name in _FORWARDED):
        return False
    name, port = _split(headers.get("host", ""), 443 if scope.get("scheme") == "https" else 80)
    ours = name == server[0] or (is_this_machine(name) and is_this_machine(server[0]))
    return ours and port == server[1]


def _split(host: str, default: int) -> tuple[str, int | None]:
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        return host.strip("[]"), default
    return name.strip("[]"), int(port) if port.isascii() and port.isdecimal() else None
