"""The server that the browser's tests open: the real application on a port, with a small world."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed, Failed, Lease, Stopped, StopRequest
from schedo.core.model import Failure
from schedo.core.worker_pool import WorkerSpec
from schedo.web.app import build_app
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings
from tests.web.world import World

GATEWAY = "the payment gateway answered 502"
_GRACE_S = 0.2


class Shopkeeper:
    """A worker that ends what it gets at once: charge_card fails, and keep_busy goes on."""

    def __init__(self, world: World, error: str = GATEWAY, failing: str = "charge_card") -> None:
        """error: the message of the attempts that fail; failing: the task whose attempts do."""
        self._world, self._error, self._failing = world, error, failing

    def start(self, lease: Lease) -> None:
        if lease.task != "keep_busy":
            asyncio.get_running_loop().call_soon(self._end, lease)

    def _end(self, lease: Lease) -> None:
        failed = Failed(Failure("GatewayError", self._error))
        outcome = failed if lease.task == self._failing else Completed(b'{"ok":true}')
        self._world.engine.report(AttemptResult(lease.key, outcome))

    def stop(self, stop: StopRequest) -> None:
        self._world.engine.report(AttemptResult(stop.key, Stopped()))


class Shop(World):
    """A server on a free port of this machine, and a client for it."""

    def __init__(self, settings: WebSettings | None = None) -> None:
        super().__init__(settings or WebSettings(version="0.1.0"), clock=SystemClock())
        self.expected: list[str] = []  # parts of what a browser may say on its console
        self.server = HttpServer()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.listen()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.hang_up()
        await super().__aexit__(*error)

    async def listen(self) -> None:
        """Answer on the same port as before, or at first on a free one."""
        self.server = HttpServer()
        self.port = await self.server.start(self.app, "127.0.0.1", self.port)

    async def hang_up(self) -> None:
        """Close the port and all connections, as the end of a server does."""
        self.app.drain()
        await self.server.stop(grace_s=_GRACE_S)

    async def start_again(self) -> None:
        """Serve the same engine by a new application, as after a restart."""
        self.app = build_app(self.engine, self.app.context.settings)
        await self.listen()

    async def seed(self) -> None:
        """Fill it: a worker, jobs in several states, schedules, and a queue with a limit."""
        await self.seed_jobs()
        for name, rule in SCHEDULES.items():
            assert (await self.put(f"/v1/schedules/{name}", {**rule, "task": "sync"})).status < 300
        await self.engine.flush()

    async def seed_jobs(self) -> None:
        """Fill it, but for the schedules: no other job comes, whatever the clock says."""
        tasks = frozenset({"send_email", "charge_card", "keep_busy", "sync"})
        spec = WorkerSpec("eu-gpu-1", 8, tasks, labels={"region": "eu"})
        self.engine.attach(spec, Shopkeeper(self))
        await self.engine.change_queue("images", concurrency=2)
        for fields in JOBS:
            await self.submit(**fields)
        await self.engine.flush()


JOBS: list[dict[str, Any]] = [
    *({"task": "send_email", "queue": "mail", "payload": {"order": n}} for n in range(20)),
    *({"task": "charge_card", "queue": "payments", "payload": {"order": n}} for n in range(3)),
    *({"task": "keep_busy", "queue": "images"} for _ in range(3)),
    *({"task": "send_email", "queue": "mail", "delay": "1h"} for _ in range(5)),
]
SCHEDULES: dict[str, dict[str, Any]] = {
    "inventory.sync": {"cron": "*/5 * * * *"},
    "backup.nightly": {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
    "cache.warm": {"every": "30m"},
}
