"""A whole server side: the real application and engine, a store in memory, a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Self

import orjson

from schedo.clock import Clock
from schedo.core.leases import Lease, StopRequest
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.protocol.roles import Role
from schedo.store.base import Store
from schedo.testing.clock import VirtualClock
from schedo.web.app import WebApp, build_app
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.stores import make_store
from tests.web.responses import check_response

SECOND = 1_000_000
T0 = 1_795_172_645_000_000  # 2026-11-20T11:04:05Z

Headers = Sequence[tuple[str, str]]


def secured(*tokens: str, permissions: AbstractSet[str] = frozenset()) -> WebSettings:
    """Return the settings of a server that needs one of these tokens, whose role is admin."""
    admin = TokenPermission(Role.ADMIN, "admin")
    return WebSettings(
        tokens={digest(token): admin for token in tokens}, anyone=None, permissions=permissions
    )


class Reply(NamedTuple):
    """The response to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json()
        assert problem["status"] == self.status
        assert problem["type"] == "/problems/" + problem["code"]
        code: str = problem["code"]
        return code


class Browser:
    """Speaks ASGI to the application, without a socket."""

    def __init__(self, app: WebApp) -> None:
        self.app = app

    async def send(
        self,
        method: str,
        url: str,
        body: bytes | Sequence[bytes] = b"",
        headers: Headers = (),
        *,
        host: str | None = "localhost:8080",
        content_type: str | None = "application/json",
    ) -> Reply:
        """Send a request; a body in several pieces has no Content-Length."""
        path, _, query = url.partition("?")
        pieces = [body] if isinstance(body, bytes) else list(body)
        pairs = [(name.lower(), value) for name, value in headers]
        if host is not None:
            pairs.append(("host", host))
        if pieces != [b""]:
            if content_type is not None:
                pairs.append(("content-type", content_type))
            if isinstance(body, bytes) and "content-length" not in dict(pairs):
                pairs.append(("content-length", str(len(body))))
            elif not isinstance(body, bytes):
                pairs.append(("transfer-encoding", "chunked"))
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
            "root_path": "",
        }
        reply = await self._exchange(scope, pieces)
        kind = reply.headers.get("content-type", "")
        check_response(method, path, reply.status, kind, reply.body)
        return reply

    async def _exchange(self, scope: dict[str, Any], pieces: list[bytes]) -> Reply:
        sent: list[Any] = []
        self.pieces_read = 0

        async def receive() -> dict[str, Any]:
            if not pieces:
                await asyncio.Event().wait()
            self.pieces_read += 1
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start, *parts = sent
        found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return Reply(start["status"], found, b"".join(piece["body"] for piece in parts))

    async def get(self, url: str, headers: Headers = ()) -> Reply:
        return await self.send("GET", url, headers=headers)

    async def post(self, url: str, value: Any = None, headers: Headers = ()) -> Reply:
        body = b"" if value is None else orjson.dumps(value)
        return await self.send("POST", url, body, headers)

    async def put(self, url: str, value: Any) -> Reply:
        return await self.send("PUT", url, orjson.dumps(value))

    async def patch(self, url: str, value: Any) -> Reply:
        return await self.send("PATCH", url, orjson.dumps(value))

    async def submit(self, **fields: Any) -> Any:
        """Submit a job and return it."""
        reply = await self.post("/v1/jobs", {"task": "demo", **fields})
        assert reply.status == 201, reply
        return reply.json()


class ManualWorker:
    """A worker that holds its leases until the test reports their results."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.stops: list[StopRequest] = []
        self._given = asyncio.Event()

    def start(self, lease: Lease) -> None:
        self.leases.append(lease)
        self._given.set()

    async def first(self) -> Lease:
        """Return the first lease, once it is there."""
        async with asyncio.timeout(5):
            await self._given.wait()
        return self.leases[0]

    def stop(self, stop: StopRequest) -> None:
        self.stops.append(stop)


class World(Browser):
    """A server without sockets, and a client for it."""

    def __init__(
        self,
        settings: WebSettings | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        *,
        knows_all_tasks: bool = True,
    ) -> None:
        """clock: the engine's, in place of the virtual one.

        knows_all_tasks: no response warns of an unknown task.
        """
        self.store = store or make_store()
        self.clock = VirtualClock(T0)
        self.engine = Engine(self.store, clock or self.clock, draw=lambda: 0.5)
        if knows_all_tasks:
            self.engine.tasks.note(None)
        self.worker = ManualWorker()
        settings = settings or WebSettings(permissions={"allow_shell"})
        super().__init__(build_app(self.engine, settings))

    def attach_worker(self, slots: int = 10) -> None:
        """Attach a worker for every task."""
        self.engine.attach(WorkerSpec("hands", slots), self.worker)

    async def __aenter__(self) -> Self:
        await self.engine.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.stop()
