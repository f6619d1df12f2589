"""The gRPC port of a server, if it has one; without --grpc-port nothing of gRPC is imported."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from schedo.config import Config
from schedo.web.app import WebApp
from schedo.web.server import HttpServer

if TYPE_CHECKING:
    from schedo.grpc.server import GrpcServer


class GrpcPort:
    """Listens for gRPC in step with the HTTP server; does nothing on a server without the port."""

    def __init__(self, config: Config, app: WebApp, http: HttpServer) -> None:
        self._server: GrpcServer | None = None
        if config.grpc_port is not None:
            from schedo.grpc.server import GrpcServer

            self._server = GrpcServer(app, lambda: http.answering)

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """The sockets on which this server listens."""
        return self._server.sockets if self._server is not None else ()

    @property
    def address(self) -> str | None:
        """The first address, such as 127.0.0.1:9090; None without the port."""
        for sock in self.sockets:
            from schedo.handover.listeners import describe_address

            return describe_address(sock.family, sock.getsockname())
        return None

    def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept calls on bound sockets, which this closes at the end."""
        if self._server is not None:
            self._server.listen(sockets)

    async def hold(self, end_waits: Callable[[], None]) -> None:
        """Accept nothing; return when no call is being carried out."""
        if self._server is not None:
            await self._server.hold(end_waits)

    def resume(self) -> None:
        """Accept again."""
        if self._server is not None:
            self._server.resume()

    def pass_on(self) -> None:
        """Leave all to the process that answers now."""
        if self._server is not None:
            self._server.pass_on()

    async def stop(self, grace_s: float) -> None:
        """Let the calls in progress end, for this long at most; then close."""
        if self._server is not None:
            await self._server.stop(grace_s)
