"""The numbers of the servers: each holds the lock of its number in the session that writes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import asyncpg

from schedo.core.shards import SHARDS
from schedo.errors import StoreLocked
from schedo.store.cluster import Member
from schedo.store.postgres.address import Address

# A server that looks for another one's end holds its lock for a moment.
WAIT_S = 1.0
_PAUSE_S = 0.01
# The sessions of a dead process end one after the other.
DYING_S = 0.3
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

CLASS = "hashtext('schedo store ' || current_schema())"
_DATABASE = "(SELECT oid FROM pg_database WHERE datname = current_database())"
IS_OF_STORE = f"""locktype = 'advisory' AND classid = {CLASS}::oid AND granted
AND pg_locks.database = {_DATABASE}"""
# The sessions that have the lock of a number.
HOLDERS = f"""
SELECT DISTINCT application_name, pid FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE {IS_OF_STORE} ORDER BY pid"""
COPIES = " copies"  # the end of the name of a session that has the locks of all numbers
_TRY = f"SELECT pg_try_advisory_lock({CLASS}, $1::int)"
_IS_HELD = f"""
SELECT EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    AND classid = {CLASS}::oid AND objid = $1::int::oid AND granted
)"""
_READ = """
SELECT boot, EXISTS (SELECT 1 FROM shard WHERE owner = $1) FROM server
WHERE no = $1 AND state <> 'closed'"""
# A PostgreSQL that has restarted may have given the pid of a lost session to a stranger's.
_END_OWN = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND application_name = current_setting('application_name')"""
_TAKE_FREE = "UPDATE shard SET owner = $1 WHERE owner IS NULL"
# A copy of the store has the rows of its servers, whose sessions are in the original. In another
# schema, or in another database, this number is another one.
_HOME = f"{_DATABASE}::bigint << 32 | current_schema()::regnamespace::oid::bigint"
# A server that has begun here since then holds its lock. So does one of a version before, which
# may run beside the first server that writes the number.
_FORGET_ORIGINAL = f"""
WITH moved AS (
    INSERT INTO meta (name, value) VALUES ('home', {_HOME})
    ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.value <> excluded.value
    RETURNING 1
)
UPDATE server SET control_pid = NULL, writer_pid = NULL
WHERE EXISTS (SELECT 1 FROM moved) AND NOT EXISTS (
    SELECT 1 FROM pg_locks WHERE {IS_OF_STORE} AND pid = writer_pid
)"""
_BEATS = """EXISTS (
    SELECT 1 FROM pg_stat_activity WHERE pid = control_pid AND backend_start = control_began
)"""
_DEAD = f"""
SELECT no FROM server WHERE state <> 'closed' AND NOT {_BEATS}
AND EXISTS (SELECT 1 FROM shard WHERE owner = server.no) ORDER BY no"""
LIVING = f"SELECT no FROM server WHERE state <> 'closed' AND {_BEATS}"
_BEGAN = "(SELECT backend_start FROM pg_stat_activity WHERE pid = {})"
_COLUMNS = (
    *("no", "name", "url", "epoch", "version", "state", "boot", "timeout_us", "settings"),
    *("writer_pid", "control_pid", "writer_began", "control_began", "opened_at"),
)
# A server with a new number leaves its old one to the dead, or its heartbeats would be for both.
_FORMER = """
WITH former AS (UPDATE server SET control_pid = NULL WHERE no <> $1 AND control_pid = {})"""
_SIGN = f"""{_FORMER.format("$11")}
INSERT INTO server ({", ".join(_COLUMNS)})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    {_BEGAN.format("$10::int")}, {_BEGAN.format("$11::int")}, now())
ON CONFLICT (no) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}"""
# The server that has signed with this epoch has another control session now. The number may have
# passed to another server meanwhile.
REPLACE_CONTROL = f"""{_FORMER.format("$2")}
UPDATE server SET control_pid = $2, control_began = {_BEGAN.format("$2::int")}
WHERE no = $1 AND epoch = $3"""
_FOLLOW = "UPDATE server SET settings = $2 WHERE no = $1"
_RELEASE = "UPDATE shard SET owner = NULL WHERE owner = $1"
_CLOSE = "UPDATE server SET state = 'closed' WHERE no = $1"


class Signature(NamedTuple):
    """What a server says about itself, besides what Member has.

    timeout_us: how long its heartbeats may fail to come. settings: the version of the queues and
    pauses that it follows.
    """

    timeout_us: int
    settings: int
    writer_pid: int
    control_pid: int


async def take_number(connection: asyncpg.Connection, address: Address) -> int:
    """Lock a free number of a server for this session; raise StoreLocked.

    That of a dead server comes first, because its shards come with it. One that has lost only its
    session that writes, perhaps without knowing it yet, keeps its number.
    """
    await connection.execute(_FORGET_ORIGINAL)
    dead: list[int] = [no for (no,) in await connection.fetch(_DEAD)]
    until = asyncio.get_running_loop().time() + DYING_S
    while dead and asyncio.get_running_loop().time() < until:
        for no in dead:
            if await connection.fetchval(_TRY, no):
                return no
        await _pause()
    living = {no for (no,) in await connection.fetch(LIVING)}
    for no in range(1, SHARDS + 1):
        if no not in living and await connection.fetchval(_TRY, no):
            return no
    for name, pid in await connection.fetch(HOLDERS):
        if (name or "").endswith(COPIES):
            raise StoreLocked(
                f"{address.shown} is being copied; start the server after that:"
                f" {name} (PostgreSQL session {pid})"
            )
    raise StoreLocked(
        f"{SHARDS} servers share {address.shown}, and there can be no more: each needs a shard"
    )


async def lock_again(connection: asyncpg.Connection, no: int, own_pid: int) -> bool:
    """Lock the number of this server for a new session of it; return whether it is still free.

    own_pid: of the earlier session, which is ended if it still has the lock.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_S
    while not await connection.fetchval(_TRY, no):
        await connection.execute(_END_OWN, own_pid)
        if loop.time() > until:
            return False
        await _pause()
    return True


async def _pause() -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_PAUSE_S)


async def is_locked(connection: asyncpg.Connection, no: int) -> bool:
    """Return whether this session holds the lock of the number."""
    return bool(await connection.fetchval(_IS_HELD, no))


async def enter(connection: asyncpg.Connection, no: int) -> bool:
    """Take the shards that are free; return whether the last server with the number was killed.

    That is so if its host still runs, and no other server has taken its shards.
    """
    found = await connection.fetchrow(_READ, no)
    await connection.execute(_TAKE_FREE, no)
    return found is not None and found["boot"] == read_boot() and bool(found["exists"])


async def sign(connection: asyncpg.Connection, me: Member, signature: Signature) -> None:
    """Write which server has the number."""
    who = (me.no, me.name, me.url, me.epoch, me.version, str(me.state.value))
    await connection.execute(_SIGN, *who, read_boot(), *signature)


async def follow(connection: asyncpg.Connection, no: int, settings: int) -> None:
    """Write which version of the queues, pauses and cordons the server follows."""
    await connection.execute(_FOLLOW, no, settings)


async def leave(connection: asyncpg.Connection, no: int) -> None:
    """Write that the server ends in order."""
    await connection.execute(_CLOSE, no)


async def release(connection: asyncpg.Connection, no: int) -> None:
    """Let other servers take the shards that are left."""
    await connection.execute(_RELEASE, no)


def read_boot() -> str:
    """Return what identifies this start of the host; empty if the system does not say it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
