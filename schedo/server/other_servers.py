"""The other servers of a cluster, if the store has one; else nothing of it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedo.web.context import AppContext

if TYPE_CHECKING:
    from schedo.cluster.router import Router


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

    async def close(self) -> None:
        """Send nothing any more."""
        if self._router is not None:
            await self._router.stop()
