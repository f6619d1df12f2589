"""The other servers of a cluster, if the store has one; else nothing of it is imported."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from schedo.config import Config
from schedo.setting_values import unix_path
from schedo.web.context import AppContext

if TYPE_CHECKING:
    from schedo.cluster.router import Router

_ALL_ADDRESSES = ("0.0.0.0", "::")


class OtherServers:
    """Connects the application of one server with the others, between open and close."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._router: Router | None = None

    async def open(self) -> None:
        """Send requests to the others from now on, and take theirs; the engine has started."""
        engine = self._context.engine
        if engine.cluster is None:
            return
        from schedo.cluster.router import Router

        router = Router(self._context, engine.cluster, await engine.store.session_key())
        self._context.cluster = self._context.credentials.peers = self._router = router
        router.start()

    async def announce(self, config: Config, port: int) -> None:
        """Let the others know where this server listens."""
        if self._context.engine.cluster is not None:
            await self._context.engine.cluster.announce(_find_url(config, port))

    async def close(self) -> None:
        """Send nothing any more."""
        if self._router is not None:
            await self._router.stop()


def _find_url(config: Config, port: int) -> str:
    """Return the URL by which other servers reach this one, from where it listens."""
    scheme = "http" if config.tls_cert is None else "https"
    if unix_path(config.host) is not None:
        return config.host
    host = socket.gethostname() if config.host in _ALL_ADDRESSES else config.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
