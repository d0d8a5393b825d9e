"""An application behind the protocol of the service, on a real socket."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from service.infra import protocol

Connect = Callable[[], socket.socket]


@contextlib.contextmanager
def served(app: Any) -> Iterator[Connect]:
    """Serve an ASGI application; the block gets what makes a connection, which the end closes."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=protocol.BoundedHttp, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    links: list[socket.socket] = []

    def make() -> socket.socket:
        links.append(socket.create_connection(listener.getsockname(), timeout=20))
        return links[-1]

    try:
        yield make
    finally:
        for link in links:
            link.close()
        server.should_exit = True
        thread.join()
        listener.close()
