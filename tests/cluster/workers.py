"""Workers that poll servers of a cluster by hand, one request at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from schedo.protocol.leases import parse_lease, render_lease
from tests.cluster.members import MemberWorld
from tests.web.world import Reply

Message = dict[str, Any]


class HandWorker:
    """A worker whose requests a test sends, each to the server that it names."""

    def __init__(self, name: str = "w", slots: int = 2, **fields: Any) -> None:
        self.name = name
        self.description: Message = {"worker": name, "session": "s1", "slots": slots, **fields}

    async def ask(self, world: MemberWorld, **fields: Any) -> Message:
        """Send a request and return the response."""
        reply = await self.send(world, **fields)
        assert reply.status == 200, reply
        answer: Message = reply.json()
        return answer

    async def send(self, world: MemberWorld, **fields: Any) -> Reply:
        return await world.post("/v1/work", {**self.description, **fields})

    async def poll(self, world: MemberWorld, *running: str, **fields: Any) -> Message:
        return await self.ask(world, **{"running": running, "wait": 0, **fields})

    def begin_poll(self, world: MemberWorld, *running: str) -> asyncio.Task[Message]:
        """Begin a poll that the server holds open."""
        return asyncio.create_task(self.poll(world, *running, wait=20))

    async def take(self, world: MemberWorld, at: MemberWorld | None = None, **job: Any) -> str:
        """Submit a job to a server, and return its lease, which comes from the server `at`."""
        polling = self.begin_poll(at or world)
        await world.submit(**job)
        return lease_of(await polling)


def lease_of(answer: Message) -> str:
    """Return the only lease of a response."""
    (lease,) = answer["leases"]
    return str(lease["lease"])


def result(lease: str, **fields: Any) -> Message:
    return {"lease": lease, "outcome": "completed", **fields}


def holds(world: MemberWorld, lease: str, name: str = "w") -> bool:
    """Whether the server believes that the worker has the lease."""
    return parse_lease(lease) in {each.key for each in world.engine.sessions.held_by(name)}


__all__ = ["HandWorker", "Message", "holds", "lease_of", "render_lease", "result"]
