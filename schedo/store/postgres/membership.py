"""The servers that share a store in PostgreSQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from schedo.core.shards import SHARDS
from schedo.store.cluster import Member, MemberState
from schedo.store.postgres.holder import SERVER_NO
from schedo.store.postgres.session import Readers
from schedo.version import __version__

_SHARD_OF_JOB = "SELECT shard FROM job WHERE id = $1"


class Membership:
    """A Cluster. Today one server at a time has the store, and so all shards."""

    def __init__(self, readers: Callable[[], Readers]) -> None:
        """readers: returns the sessions that read."""
        self.on_change: list[Callable[[], None]] = []
        self._readers = readers
        name = f"{socket.gethostname()} {os.getpid()}"
        self._me = Member(SERVER_NO, name, "", 0, __version__, MemberState.OPEN, 0)

    @property
    def me(self) -> Member:
        return self._me

    def members(self) -> tuple[Member, ...]:
        return (self._me,)

    def owner(self, shard: int) -> Member | None:
        return self._me

    def is_mine(self, shard: int) -> bool:
        return 0 <= shard < SHARDS

    async def shard_of_job(self, job_id: int) -> int | None:
        async with self._readers().session() as session:
            shard: int | None = await session.fetchval(_SHARD_OF_JOB, job_id)
            return shard

    async def announce(self, url: str) -> None:
        self._me = self._me._replace(url=url)
