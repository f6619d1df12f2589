"""A standby of PostgreSQL that answers long reads in place of the primary, while it keeps up.

Once a second the store reads the position of the log of the primary, and which position the standby
has replayed. All that was committed before a position was read is in what the standby shows once it
has replayed it. So it is known how old the answers can be, also while nothing is written.

Positions say this of a standby that follows the primary. One that has gone another way, because the
primary was restored from a backup or a standby that was behind it was promoted, may be far ahead.
It lacks what this server has written about itself since then.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import asyncpg

from schedo.errors import StoreError, StoreUnsuitable
from schedo.store.postgres.address import parse_address
from schedo.store.postgres.errors import DRIVER_ERRORS, opening_error
from schedo.store.postgres.session import Readers, close, connect

log = logging.getLogger("schedo.store")

STALE_S = 5.0  # answers that may be older come from the primary
PERIOD_S = 1.0
LEAVE_AGAIN_S = 10.0  # while there is no other standby
_POSITIONS_MAX = 60
_STORE = "SELECT value FROM meta WHERE name = 'store'"
# When the session began with which this server has signed: no other one has this in its row.
_BEGAN = """
SELECT extract(epoch FROM writer_began) * 1000000 FROM server
WHERE no = $1::bigint AND epoch = $2::bigint"""
_WRITTEN = f"SELECT ({_STORE}), ({_BEGAN})::bigint, pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
_REPLAYED = f"""
SELECT ({_STORE}), ({_BEGAN})::bigint,
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0'::pg_lsn END"""
_STANDBY = "SELECT pg_is_in_recovery(), to_regclass('meta') IS NOT NULL"


class _Seen(NamedTuple):
    """What a look has found in one of the databases.

    store: its number. began: of this server's row, None if that has not come. position: in the log;
    0 if this is no standby.
    """

    store: int | None
    began: int | None
    position: int


class Replica:
    """The sessions with a standby, and how old its answers can be."""

    def __init__(
        self,
        url: str,
        name: str,
        primary: Callable[[], Readers],
        signed: Callable[[], tuple[int, int | None]],
    ) -> None:
        """url: of the standby; the same schema. primary: returns the sessions of the store.

        signed: returns the number and the epoch with which this server has signed.
        """
        self._address, self._name, self._primary = parse_address(url), name, primary
        self._signed = signed
        self.readers = Readers(
            self._address, name, "prefer-standby", is_silent=lambda: not self.is_fresh()
        )
        self._written: deque[tuple[float, _Seen]] = deque(maxlen=_POSITIONS_MAX)
        self._loop = asyncio.get_running_loop()
        self._stopping: asyncio.Future[None] = self._loop.create_future()
        self._shows_s = -math.inf  # the standby shows all that was committed before
        self._left_s = -math.inf
        self._is_used = False
        self._told = ""  # why it is not used
        self._task: asyncio.Task[None] | None = None

    async def open(self, own: asyncpg.Connection) -> None:
        """Test the standby, and begin to follow it; raise StoreUnsuitable if it is another one.

        own: a session of the store. A standby that cannot be reached is left out until it can be:
        no start depends on it.
        """
        try:
            connection = await connect(self._address, self._name, "prefer-standby")
        except (*DRIVER_ERRORS, StoreError) as error:
            log.warning("%s; reads come from the primary", opening_error(error, self._shown))
        else:
            try:
                await self._check(connection, own)
            finally:
                await close(connection)
        self._task = asyncio.create_task(self._follow(), name="schedo replica")

    async def close(self) -> None:
        """End the sessions."""
        self._stopping.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.readers.close()

    def is_fresh(self) -> bool:
        """Whether its answers have all that was committed STALE_S ago."""
        return self._loop.time() - self._shows_s < STALE_S

    def note_failure(self, error: StoreError) -> None:
        """Let reads come from the primary until the next look."""
        log.debug("a read comes from the primary: %s", error)
        self._shows_s = -math.inf

    @property
    def _shown(self) -> str:
        return self._address.shown

    async def _check(self, connection: asyncpg.Connection, own: asyncpg.Connection) -> None:
        is_standby, has_store = await connection.fetchrow(_STANDBY)
        if not is_standby:
            raise StoreUnsuitable(
                f"--store-read {self._shown} is no standby; give the URL of one that follows the"
                " database of --store, or leave --store-read out"
            )
        if has_store and await connection.fetchval(_STORE) not in (
            None,
            await own.fetchval(_STORE),
        ):
            raise self._other_store()

    def _other_store(self) -> StoreUnsuitable:
        return StoreUnsuitable(
            f"--store-read {self._shown} has another store than --store; give the URL of a"
            " standby of the same database, with the same schema"
        )

    async def _follow(self) -> None:
        while not self._stopping.done():
            try:
                await self.look()
            except StoreError as error:
                self.note_failure(error)
                if isinstance(error, StoreUnsuitable) and str(error) != self._told:
                    self._told = str(error)
                    log.warning("%s; reads come from the primary", error)
            except Exception:
                log.exception("a bug in schedo: the replica is not followed")
            self._tell()
            await asyncio.wait((self._stopping,), timeout=PERIOD_S)

    async def look(self) -> None:
        """Find out up to which instant the standby shows everything."""
        now, signed = self._loop.time(), self._signed()
        own = await self._ask(self._primary(), _WRITTEN, signed)
        self._written.append((now, own))
        found = await self._ask(self.readers, _REPLAYED, signed)
        if not found.position:
            self._leave(now)
        # It may have been away at the start, or its URL may lead to another server since then.
        if found.store is None:
            raise StoreError(f"--store-read {self._shown} does not have the store yet")
        if found.store != own.store:
            raise self._other_store()
        if own.began is None or found.began != own.began:
            await self._check_way(own, found.position, signed)
            raise StoreError(f"--store-read {self._shown} does not show this server yet")
        shown = [at for at, seen in self._written if seen.position <= found.position]
        self._shows_s = max(shown, default=-math.inf)

    def _leave(self, now: float) -> None:
        """Leave a standby that was promoted, whose sessions go on; raise StoreError.

        The next sessions may find another standby behind the same URL.
        """
        if now - self._left_s >= LEAVE_AGAIN_S:
            self._left_s = now
            self.readers.drop_idle()
        raise StoreError(f"--store-read {self._shown} leads to no standby")

    async def _check_way(self, own: _Seen, replayed: int, signed: tuple[int, int | None]) -> None:
        """Raise StoreUnsuitable if the standby does not follow the primary.

        It lacks this server's row then, although it has replayed the log up to where that is.
        """
        known = [seen.position for _, seen in self._written if seen.began == own.began]
        if own.began is None or min(known) > replayed:
            return
        found = await self._ask(self.readers, _REPLAYED, signed)  # all up to `replayed` is visible
        if found.began != own.began and signed == self._signed():
            raise self._other_way()

    def _other_way(self) -> StoreUnsuitable:
        return StoreUnsuitable(
            f"--store-read {self._shown} does not follow the database of --store any more, as after"
            " a restored backup or a fail-over; make a new standby"
        )

    async def _ask(self, readers: Readers, query: str, signed: tuple[int, int | None]) -> _Seen:
        async with readers.session() as session:
            store, began, position = await session.fetchrow(query, *signed)
            return _Seen(store, began, int(position or 0))

    def _tell(self) -> None:
        """Log when the standby begins or ceases to answer."""
        if self._is_used != self.is_fresh():
            self._is_used = not self._is_used
            if self._is_used:
                log.info("lists and searches come from the standby %s", self._shown)
            else:
                log.warning(
                    "lists and searches come from the primary: the standby %s does not answer, or"
                    " is more than %d s behind",
                    *(self._shown, STALE_S),
                )
