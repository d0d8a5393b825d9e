"""The app in this process, called as a server would call it."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any
from urllib.parse import unquote

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp, Message


class Site:
    """The app, called as a server would call it, from an event loop in a thread of its own."""

    def __init__(self, app: FastAPI):
        self.app: ASGIApp = app
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="site")
        self._thread.start()
        self._life = app.router.lifespan_context(app)
        self.call(self._life.__aenter__())

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine in the app's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def close(self) -> None:
        """Shut the app down."""
        self.call(self._life.__aexit__(None, None, None))
        self.call(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def begin(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        json: Any = None,
        body: bytes | Iterable[bytes] = b"",
        headers: dict[str, str] | None = None,
        hang_up: bool = False,
        stall: bool = False,
        fail: bool = False,
        heard: Callable[[bytes], None] = lambda piece: None,
    ) -> "Future[httpx.Response]":
        """Start a request. A body that is not bytes is sent in these chunks without a Content-Length; `hang_up` ends
        the connection after them, `stall` keeps it open and sends no more.
        `heard` is told each piece of the answer as it comes.
        """
        request = httpx.Request(method, "http://site" + url, json=json, headers=headers)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        chunks = [request.read()] if json is not None else [body] if isinstance(body, bytes) else list(body)
        if json is None:
            request.headers.pop("Content-Length", None)  # httpx counts the body, which it has not got
            if isinstance(body, bytes) and method not in ("GET", "HEAD"):
                request.headers["Content-Length"] = (headers or {}).get("Content-Length", str(len(body)))
        exchange = self._exchange(request, chunks, hang_up, stall, fail, heard)
        return asyncio.run_coroutine_threadsafe(exchange, self.loop)

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Make a request and return its answer."""
        return self.begin(method, url, **options).result(30)

    async def _exchange(
        self,
        request: httpx.Request,
        chunks: list[bytes],
        hang_up: bool,
        stall: bool,
        fail: bool,
        heard: Callable[[bytes], None],
    ) -> httpx.Response:
        raw_path, _, query = request.url.raw_path.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(raw_path.decode()),
            "raw_path": raw_path,
            "root_path": "",
            "scheme": "http",
            "query_string": query,
            "headers": [(key.lower(), value) for key, value in request.headers.raw],
            "client": ("test", 1),
            "server": ("site", 80),
            "state": {},
        }
        left, done = list(chunks), asyncio.Event()
        answer: dict[str, Any] = {"body": b"", "waits": 0}

        async def receive() -> dict[str, Any]:
            if left:
                chunk = left.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(left) or hang_up or stall}
            if not hang_up:
                answer["waits"] += 0 if done.is_set() else 1
                await done.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer["status"], answer["headers"] = message["status"], message.get("headers", [])
            else:
                answer["body"] += message.get("body", b"")
                heard(message.get("body", b""))
                if not message.get("more_body"):
                    done.set()

        try:
            await self.app(scope, receive, send)
        except Exception:
            if not fail:
                raise
        response = httpx.Response(answer["status"], headers=answer["headers"], content=answer["body"], request=request)
        response.extensions["waits"] = answer["waits"]  # times that the app waited for more than there was
        return response
