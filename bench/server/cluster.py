"""Servers that share a PostgreSQL on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from bench.server.connection import connect
from bench.server.evidence import NotDone
from bench.server.process import NOOP_APP, Server

SCHEMA = "schedo"
SETTLE_S = 20.0
# On a busy machine servers may be silent for longer than by default; a death is noticed at once.
PATIENT = ("--failover-timeout", "2s")


class Cluster:
    """The servers, each in a directory of its own."""

    def __init__(
        self, directory: Path, address: str, count: int, *options: str, app: str | None = NOOP_APP
    ) -> None:
        """app: the application of each; None: only remote workers run its jobs."""
        self.servers = []
        for number in range(count):
            place = directory / str(number)
            place.mkdir()
            words = "--store", address, *PATIENT, *options
            self.servers.append(Server(place, *words, app=app))

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for server in self.servers:
            server.stop()

    async def until_shared(self) -> None:
        """Wait until each server owns its share; raise NotDone."""
        await until_shared(self.servers)


async def until_shared(servers: Sequence[Server]) -> None:
    """Wait until each server owns its share of the shards; raise NotDone."""
    deadline = time.monotonic() + SETTLE_S
    least = 32 // len(servers)
    while time.monotonic() < deadline:
        if all([least <= await _owned_shards(each) <= least + 1 for each in servers]):
            return
        await asyncio.sleep(0.1)
    raise NotDone(f"the servers did not share the shards within {SETTLE_S:.0f} s")


async def _owned_shards(server: Server) -> int:
    connection = await connect(server)
    try:
        found = await connection.get("/v1/cluster")
    finally:
        connection.close()
    return sum(len(each["shards"]) for each in found["members"] if each["number"] == found["me"])
