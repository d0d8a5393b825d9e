"""Before the service starts: is the database's schema its own, can what packages offer be used?

A server logs the answer as one line, and ends.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from contract import plugins
from contract.architectures import CATALOGUE
from contract.packages import PluginError
from service.config import Settings
from service.domain.errors import StartError
from service.persistence import migrate
from service.persistence.engine import why_closed


class CheckedStart:
    """Refuses the start of the app inside, by what ASGI has for that: raised, it would become a traceback."""

    def __init__(self, app: ASGIApp, settings: Settings):
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look first when the server starts; hand everything else on."""
        if scope["type"] == "lifespan":
            try:
                migrate.check(self._settings)
                plugins.check()
                len(CATALOGUE)
            except Exception as error:
                why = str(error) if isinstance(error, StartError | PluginError) else why_closed(error)
                if why is None:
                    raise
                await receive()
                await send({"type": "lifespan.startup.failed", "message": why})
                return
        await self._app(scope, receive, send)
