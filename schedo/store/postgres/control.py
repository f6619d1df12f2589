"""The control session of a server: its heartbeats, and the take-over of shards of dead servers.

A heartbeat is a query, and PostgreSQL shows to the other servers when it began. So no heartbeat
writes a row. When a session ends, its server is dead or cut off, or PostgreSQL itself was.

A server may write only in the session that holds the lock of its number. PostgreSQL releases a lock
after the transactions of its session have ended. So a server that gets the lock of a dead one sees
everything that it has committed, and knows that nothing more can follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

import asyncpg

from schedo.errors import StoreError
from schedo.store.cluster import Member, MemberState
from schedo.store.postgres import server_numbers
from schedo.store.postgres.address import Address
from schedo.store.postgres.errors import DRIVER_ERRORS, store_error
from schedo.store.postgres.loads import UNSYNCED
from schedo.store.postgres.membership import (
    BEAT_S,
    NO_EPOCH,
    Membership,
    since_boot_s,
    since_boot_us,
)
from schedo.store.postgres.session import ANSWER_S, PLAN_ONCE, Writer, close, connect
from schedo.store.postgres.view import View
from schedo.store.postgres.watch import NeighbourWatch

log = logging.getLogger("schedo.store")

RECONNECT_S = 0.2
# Both sessions of a process end with it, but not at the same instant. So long after the end of the
# control session, a session that still writes is busy with a long statement, and is ended.
BUSY_S = 0.01
HURRY_S = 0.002  # between two looks at a server that seems to be dead
HURRIES = 15
ENDING_S = 1.0  # for how long it looks in short steps at a session that should end
# PostgreSQL has ended all sessions, perhaps. The other servers come back as this one did.
RETURN_S = 1.0
# After a take-over the processors are for the jobs, and a line of the log needs them for a moment.
LOG_AFTER_S = 0.1

READINGS = 3  # of the clock of the database when the session opens
# When PostgreSQL got the request, and when it answers.
_CLOCK = """
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS asked_at,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS answered_at"""
_VIEW = f"""
SELECT server.no, name, url, epoch, version, server.state, timeout_us,
    (extract(epoch FROM clock_timestamp() - session.query_start) * 1000000)::bigint AS silent_us,
    session.pid IS NOT DISTINCT FROM pg_backend_pid() AS has_these_beats,
    (SELECT array_agg(coalesce(owner, 0) ORDER BY no) FROM shard) AS owners,
    coalesce((SELECT value FROM meta WHERE meta.name = 'settings'), 0) AS settings,
    {_CLOCK}
FROM server LEFT JOIN pg_stat_activity AS session
    ON session.pid = control_pid AND session.backend_start = control_began
WHERE server.state <> 'closed' OR EXISTS (SELECT 1 FROM shard WHERE owner = server.no)"""
# It need not wait for the disk: each later commit of the new owner brings it there, too.
_TAKE_OVER = f"""
WITH {UNSYNCED}
SELECT take_over({server_numbers.CLASS}, $1::bigint, $2::bigint, $3::smallint[]) FROM unsynced"""
_TAKE_FREE = "UPDATE shard SET owner = $1 WHERE owner IS NULL AND no = ANY($2::smallint[])"
_TAKE_FREE += " RETURNING no"
# Ends the session in which a server writes, unless the server has been heard of meanwhile. One of
# an old version has no control session, and is left alone. So is one of a user whose sessions this
# one may not end: an error would end the heartbeats of this server. Its lock is free with its end.
_FENCE = """
SELECT pg_terminate_backend(writer_pid) FROM server
JOIN pg_stat_activity AS writer ON writer.pid = writer_pid AND writer.backend_start = writer_began
LEFT JOIN pg_stat_activity AS session
    ON session.pid = control_pid AND session.backend_start = control_began
WHERE no = $1 AND epoch = $2
AND (
    pg_has_role(writer.usesysid, 'USAGE')
    OR pg_has_role('pg_signal_backend', 'USAGE')
    AND NOT (SELECT rolsuper FROM pg_roles WHERE oid = writer.usesysid)
)
AND (
    session.pid IS NULL
    OR clock_timestamp() - session.query_start > timeout_us * interval '1 microsecond'
)"""
# A new session may be one of another PostgreSQL, which the session that writes is not in.
_HAS_WRITER = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE pid = $1 AND application_name = left($2, 63)  -- PostgreSQL keeps no more of a name
)"""
_NOBODY = 0  # the number of no server
_NOTIFY = "SELECT pg_notify($1, $2)"
TAKEN = "taken"  # what a take-over says to the others
_TELL = {
    "url": "UPDATE server SET url = $2 WHERE no = $1 AND epoch = $3",
    "state": "UPDATE server SET state = $2 WHERE no = $1 AND epoch = $3 AND state <> 'closed'",
}


class Control:
    """Beats, and acts on what the heartbeats show, until it is closed."""

    def __init__(self, address: Address, name: str, membership: Membership) -> None:
        self._address, self._membership = address, membership
        self._name, self._writer_name = f"{name} control", name
        self._connection: asyncpg.Connection | None = None
        self.pid = 0  # of the session, in PostgreSQL
        self._lock = asyncio.Lock()  # one query at a time
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._hurries = 0
        self._awaits_end = False  # of a session whose server is gone
        self._gone_since_s: dict[int, float] = {}
        self._judges_from_s = 0.0
        self.find_writer: Callable[[], Writer | None] = lambda: None
        self._watch = NeighbourWatch(address, f"{name} watch", membership, self.look_closely)

    @property
    def _channel(self) -> str:
        return f"schedo {self._address.schema}"[:63]

    async def connect(self) -> None:
        """Open the session."""
        connection = await connect(self._address, self._name)
        try:
            async with asyncio.timeout(ANSWER_S):
                await connection.add_listener(self._channel, self._on_notified)
                await _rehearse(connection)
                for _ in range(READINGS):
                    sent_us = since_boot_us()
                    self._note_clock(sent_us, await connection.fetchrow(f"SELECT {_CLOCK}"))
        except BaseException:
            connection.terminate()
            raise
        self._connection, self.pid = connection, int(connection.get_server_pid())
        connection.add_termination_listener(self._on_ended)

    async def begin(self) -> None:
        """Beat once, and then go on in the background. The server has its number."""
        await self._beat()
        self._task = asyncio.create_task(self._run(), name="schedo heartbeats")
        self._watch.begin()
        await self.notify()

    async def close(self) -> None:
        """End the heartbeats and their session."""
        await self._watch.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)

    def look_closely(self) -> None:
        """Look at the other servers at once, and again in short steps: one seems to be dead."""
        self._hurries = HURRIES
        self._wake.set()

    async def notify(self, what: str = "") -> None:
        """Let all servers look at once at what has changed."""
        with contextlib.suppress(StoreError):
            await self._fetch(_NOTIFY, self._channel, what)

    async def tell(self, what: str) -> None:
        """Write the URL or the state of this server for the others; raise StoreError."""
        me = self._membership.me
        if me.no:
            value = me.url if what == "url" else str(me.state.value)
            await self._fetch(_TELL[what], me.no, value, self._membership.signed_epoch)
            await self.notify()

    async def _fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        async with self._lock:
            if self._connection is None:
                raise StoreError("the control session is not open")
            try:
                found: list[asyncpg.Record] = await self._connection.fetch(
                    query, *parameters, timeout=ANSWER_S
                )
            except DRIVER_ERRORS as error:
                raise store_error(error, self._address.shown) from error
            return found

    def _on_ended(self, connection: asyncpg.Connection) -> None:
        """Start nothing until there are heartbeats again: PostgreSQL has ended the session.

        It may end the session that writes, too. Then other servers have the shards some
        milliseconds before this one hears of it.
        """
        if connection is self._connection:
            self._membership.doubt()
            self._wake.set()

    def _on_notified(self, connection: object, pid: int, channel: str, what: object) -> None:
        # The notification of its own take-over tells this server nothing new.
        if pid != self.pid or what != TAKEN:
            self._wake.set()

    async def _run(self) -> None:
        told: set[str] | None = None  # why heartbeats failed since the last one that did not
        while True:
            pause_s = BEAT_S if not self._hurries else HURRY_S
            # Not wait_for: in Python 3.11 it may swallow the cancellation of a close.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            self._wake.clear()
            self._hurries = max(0, self._hurries - 1)
            try:
                if self._connection is None:
                    await self._connect_again()
                await self._beat()
                await self._act()
            except Exception as error:
                told = told or set()
                self._note_failure(error, told)
                self._drop()
                await asyncio.sleep(RECONNECT_S * (0.5 + random.random()))
                continue
            if told is not None:
                log.info("the heartbeats of this server go on")
            told = None

    def _note_failure(self, error: Exception, told: set[str]) -> None:
        """Log why a heartbeat failed, each cause once, and keep it for those who look."""
        if not isinstance(error, (StoreError, *DRIVER_ERRORS)):
            log.exception("a bug in schedo: a heartbeat of this server failed")
            return
        cause = self._membership.beat_error = store_error(error, self._address.shown)
        if str(cause) not in told:
            told.add(str(cause))
            log.warning("the heartbeats of this server fail: %s", cause)

    async def _connect_again(self) -> None:
        await self.connect()
        await self._end_lost_writer()
        await self._replace()
        self._judges_from_s = since_boot_s() + RETURN_S

    async def _end_lost_writer(self) -> None:
        """End the session that writes if this PostgreSQL does not have it.

        A proxy may keep the connections to a lost primary, and lead new ones to the next one. So a
        commit would wait for as long as the proxy does, while the others hear heartbeats.
        """
        writer = self.find_writer()
        if writer is None or writer.is_lost:
            return
        ((has_writer,),) = await self._fetch(_HAS_WRITER, writer.pid, self._writer_name)
        if not has_writer:
            log.warning(
                "PostgreSQL does not have the session any more in which this server writes, as"
                " after a fail-over behind a proxy; the server opens another one"
            )
            writer.connection.terminate()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _beat(self) -> None:
        sent_s, sent_us = since_boot_s(), since_boot_us()
        found = await self._fetch(_VIEW)
        if found:
            self._note_clock(sent_us, found[0])
        self._membership.note(_read_view(sent_s, found))
        # A signature or a new number may have come at the same time as a new session.
        if any(row["has_these_beats"] != self._is_own(row) for row in found):
            await self._replace()
        for row in filter(self._is_own, found):
            await self._tell_again(row)

    async def _tell_again(self, row: asyncpg.Record) -> None:
        """Write the URL or the state of this server if that has failed before."""
        me = self._membership.me
        if row["url"] != me.url:
            await self.tell("url")
        if row["state"] == MemberState.OPEN and me.state is MemberState.LEAVING:
            await self.tell("state")

    def _note_clock(self, sent_us: int, row: asyncpg.Record) -> None:
        """Note what the clock of the database has shown: `asked_at` and `answered_at` of the row.

        sent_us: since the boot, when the request was sent.
        """
        received_us = since_boot_us()
        there_us = row["answered_at"] - row["asked_at"]
        base_us = (row["asked_at"] + row["answered_at"] - sent_us - received_us) // 2
        self._membership.on_reading(base_us, received_us - sent_us - there_us)

    def _is_own(self, row: asyncpg.Record) -> bool:
        """Return whether this server has written the row, and no other one since."""
        membership = self._membership
        return bool(row["no"] == membership.me.no and row["epoch"] == membership.signed_epoch)

    async def _replace(self) -> None:
        """Let the others judge this server by this session, and no other number by it."""
        no, epoch = self._membership.me.no, self._membership.signed_epoch
        await self._fetch(server_numbers.REPLACE_CONTROL, no, self.pid, epoch)

    async def _act(self) -> None:
        """Take what this server should have of dead servers, and of what is free."""
        membership = self._membership
        if membership.is_joining or membership.is_leaving or since_boot_s() < self._judges_from_s:
            return
        has_taken = self._awaits_end = False
        now, found = since_boot_s(), membership.find_gone()
        before, self._gone_since_s = self._gone_since_s, {}
        for gone in found:
            since_s = self._gone_since_s[gone.no] = before.get(gone.no, now)
            has_taken |= await self._take_over(gone, now - since_s)
        free = membership.wanted_of_free()
        if free:
            taken = await self._fetch(_TAKE_FREE, membership.me.no, free)
            membership.note_gained([row["no"] for row in taken])
            has_taken = True
        if has_taken:
            if not self._awaits_end:  # the processors are for the jobs now
                self._hurries = 0
            await self.notify(TAKEN)

    async def _take_over(self, gone: Member, since_s: float) -> bool:
        """Take shards of a server that is gone; return whether it has lost some."""
        membership = self._membership
        is_silent = gone.silent_us is not None
        if is_silent or since_s > BUSY_S:
            await self._fetch(_FENCE, gone.no, gone.epoch)
        wanted = membership.wanted_of(gone.no, since_s)
        if not wanted:
            return False
        (row,) = await self._fetch(_TAKE_OVER, gone.no, membership.me.no, wanted)
        taken = row["take_over"]
        if taken is None:  # its session has not ended yet
            self._awaits_end = True
            # The start of one that has not signed goes on, and needs the processors.
            if since_s < ENDING_S and gone.epoch != NO_EPOCH:
                self._hurries = max(self._hurries, 1)
            return False
        if taken:
            membership.has_inherited = True
            membership.note_gained(taken)  # the next heartbeat would come a round trip later
            asyncio.get_running_loop().call_later(
                LOG_AFTER_S,
                log.warning,
                "server %d (%s) is %s: this server takes over %d of its shards",
                *(gone.no, gone.name, "silent" if is_silent else "gone", len(taken)),
            )
        return bool(taken)


async def _rehearse(connection: asyncpg.Connection) -> None:
    """Run the statements of a take-over with the number of no server, which changes nothing.

    PostgreSQL plans them at their first use, which takes up to 13 ms.
    """
    await connection.execute(PLAN_ONCE)
    await connection.fetch(_TAKE_OVER, _NOBODY, _NOBODY, [])
    await connection.fetch(_FENCE, _NOBODY, 0)


def _read_view(sent_s: float, found: list[asyncpg.Record]) -> View:
    members = {
        row["no"]: Member(
            *(row["no"], row["name"], row["url"], row["epoch"], row["version"]),
            MemberState(row["state"]),
            row["silent_us"],
        )
        for row in found
    }
    owners = enumerate(found[0]["owners"] if found else ())
    return View(
        sent_s,
        members,
        {row["no"]: row["timeout_us"] for row in found},
        {shard: no for shard, no in owners if no},
        found[0]["settings"] if found else 0,
    )
