"""What the application needs of the other servers of a cluster; a server alone has none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from starlette.types import Scope

if TYPE_CHECKING:
    from schedo.core.model import ReadyKey
    from schedo.core.remote_reasons import Others
    from schedo.core.worker_messages import WorkerStatus
    from schedo.protocol.cluster import ClusterResponse
    from schedo.protocol.operation import Operation
    from schedo.web.context import Handler
    from schedo.web.http import Request, Response

HOP, CLIENT = b"schedo-hop", b"schedo-client"  # headers of a request from another server
SENT_AT = b"schedo-sent-at"  # of a response to another server: when its leases were sent
_UNREACHABLE = b"schedo-unreachable"


class Elsewhere(Protocol):
    """The other servers of a cluster."""

    def identify(self, headers: Mapping[bytes, bytes], scope: Scope) -> None:
        """Note for whom another server sent the request; raise Unauthorized if none did."""

    async def respond(
        self, scope: Scope, operation: Operation, handle: Handler, request: Request
    ) -> Response:
        """Return the response of the servers that can answer; `handle` is that of this one."""

    def owns(self, name: str) -> bool:
        """Whether this server owns the shard of the name."""

    def notes(self) -> Sequence[str]:
        """Return a sentence for each server that cannot be reached, also for this one itself."""

    async def list_remote_workers(self) -> Sequence[WorkerStatus]:
        """Return the remote workers that the other servers know."""

    async def explain_workers(self, ready_key: ReadyKey) -> Others:
        """Return what the other servers say about their remote workers and a job of this one."""

    def describe(self) -> ClusterResponse:
        """Return the members and their shards."""


def name_missing(response: Response, missing: Sequence[str]) -> Response:
    """Return a response that was put together, with the names of the servers that are missing."""
    if not missing:
        return response
    return response.with_headers((_UNREACHABLE, ", ".join(missing).encode("ascii", "replace")))
