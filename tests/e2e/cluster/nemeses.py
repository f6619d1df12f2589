"""What happens to a cluster: each nemesis does its harm, waits, and heals it."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from tests.e2e.cluster.servers import Cluster, Member
from tests.e2e.takeover.evidence import Kill

FLAPS = 3
SKEWS_US = (-5_000_000, -250_000, 250_000, 5_000_000)


class Nemeses:
    """Carries them out, on a member that is chosen at random."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)

    async def carry_out(self, name: str) -> None:
        """Carry out one; NEMESES has the names."""
        member = self._random.choice(self._cluster.members)
        at = time.monotonic()
        pid = member.process.pid if member.process is not None else 0
        await NEMESES[name](self, member)
        for each in self._cluster.members:
            await each.wait_ready()
        self._cluster.kills.append(Kill(name, pid, at, time.monotonic()))

    async def _kill(self, member: Member) -> None:
        member.respawned.clear()
        member.signal(signal.SIGKILL)
        await member.ended()
        await member.respawned.wait()

    async def _leave(self, member: Member) -> None:
        """Stop a server in order; another one joins later."""
        member.respawned.clear()
        member.signal(signal.SIGTERM)
        await member.ended()
        await member.respawned.wait()

    async def _stop(self, member: Member) -> None:
        member.signal(signal.SIGSTOP)
        await asyncio.sleep(self._random.choice([0.1, 0.25, 0.5, 1, 3]))
        member.signal(signal.SIGCONT)
        await asyncio.sleep(0.2)

    async def _cut_store(self, member: Member) -> None:
        member.to_store.cut(self._random.choice(["there", "back", "both"]))
        await asyncio.sleep(self._random.choice([0.1, 0.25, 0.5, 1, 3]))
        member.to_store.heal()

    async def _flap_store(self, member: Member) -> None:
        for _ in range(FLAPS):
            member.to_store.cut()
            await asyncio.sleep(0.5)
            member.to_store.heal()
            await asyncio.sleep(0.5)

    async def _reset_commit(self, member: Member) -> None:
        """Reset the connection after a request has reached PostgreSQL, before the response."""
        member.to_store.reset_after_request()
        await asyncio.sleep(0.2)

    async def _reset_store(self, member: Member) -> None:
        member.to_store.reset()
        await asyncio.sleep(0.1)

    async def _cut_peers(self, member: Member) -> None:
        member.from_peers.cut(self._random.choice(["there", "back", "both"]))
        await asyncio.sleep(self._random.choice([0.25, 1, 3]))
        member.from_peers.heal()

    async def _terminate(self, _: Member) -> None:
        """End a session of a server, chosen by PostgreSQL."""
        await asyncio.to_thread(
            self._cluster.postgres.sql,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'schedo%' ORDER BY random() LIMIT 1",
        )

    async def _skew(self, member: Member) -> None:
        """Set the clock of a server, and set it back; half of the time the server dies between."""
        member.set_clock(self._random.choice(SKEWS_US))
        await asyncio.sleep(self._random.uniform(0.5, 3))
        if self._random.random() < 0.5:
            await self._kill(member)
        member.set_clock(0)

    async def _restart_fast(self, _: Member) -> None:
        await self._restart("fast")

    async def _restart_immediate(self, _: Member) -> None:
        await self._restart("immediate")

    async def _restart(self, mode: Literal["fast", "immediate"]) -> None:
        postgres = self._cluster.postgres
        await asyncio.to_thread(postgres.stop, mode)
        await asyncio.sleep(self._random.uniform(0, 1))
        await asyncio.to_thread(postgres.start)


NEMESES: dict[str, Callable[[Nemeses, Member], Awaitable[None]]] = {
    "kill": Nemeses._kill,
    "leave": Nemeses._leave,
    "stop": Nemeses._stop,
    "cut-store": Nemeses._cut_store,
    "flap-store": Nemeses._flap_store,
    "reset-commit": Nemeses._reset_commit,
    "reset-store": Nemeses._reset_store,
    "cut-peers": Nemeses._cut_peers,
    "terminate": Nemeses._terminate,
    "skew": Nemeses._skew,
    "restart-fast": Nemeses._restart_fast,
    "restart-immediate": Nemeses._restart_immediate,
}
OUTAGES = ("restart-fast", "restart-immediate")  # of PostgreSQL, so of all servers
