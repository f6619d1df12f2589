"""Which server holds the store: a lock of the session that writes, and a row about the server."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import asyncpg

from schedo.errors import StoreLocked
from schedo.store.postgres.address import Address
from schedo.version import __version__

log = logging.getLogger("schedo.store")

SERVER_NO = 1  # until several servers share a store
# After a kill the kernel closes the session of the dead server within some milliseconds, and
# PostgreSQL ends it when its statement has ended.
WAIT_S = 2.0
_PAUSE_S = 0.01
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_NAME = re.compile(r"schedo (\S+) (\d+)")  # as PostgresStore names its session
_KEYS = "hashtext('schedo store ' || $1), $2::int"
_TRY = f"SELECT pg_try_advisory_lock({_KEYS})"
_IS_HELD = """
SELECT EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    AND classid = hashtext('schedo store ' || $1)::oid AND objid = $2::int::oid AND granted
)"""
_HOLDER = """
SELECT session.pid, session.application_name, session.client_addr, session.backend_start
FROM pg_locks JOIN pg_stat_activity AS session USING (pid)
WHERE pg_locks.locktype = 'advisory' AND classid = hashtext('schedo store ' || $1)::oid
AND objid = $2::int::oid AND granted
AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_READ = "SELECT state, boot FROM server WHERE no = $1"
_SIGN = """
INSERT INTO server (no, name, boot, epoch, version, state, opened_at)
VALUES ($1, $2, $3, $4, $5, 'open', now())
ON CONFLICT (no) DO UPDATE SET name = excluded.name, boot = excluded.boot, epoch = excluded.epoch,
    version = excluded.version, state = excluded.state, opened_at = excluded.opened_at"""
_CLOSE = "UPDATE server SET state = 'closed' WHERE no = $1"


async def lock(connection: asyncpg.Connection, address: Address, own_pid: int = 0) -> None:
    """Lock the store for this session; raise StoreLocked, which names the holder.

    own_pid: of an earlier session of this server, which is ended if it still has the lock. No other
    session is ever ended: its server may live.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_S
    while not await connection.fetchval(_TRY, address.schema, SERVER_NO):
        holder = await connection.fetchrow(_HOLDER, address.schema, SERVER_NO)
        is_own = holder is not None and holder["pid"] == own_pid
        if is_own:
            await connection.execute("SELECT pg_terminate_backend($1)", own_pid)
        if loop.time() > until:
            raise StoreLocked(f"another server holds {address.shown}: {_describe(holder)}")
        await asyncio.wait([loop.create_future()], timeout=_PAUSE_S)


def _describe(holder: asyncpg.Record | None) -> str:
    if holder is None:
        return "its session has just ended, try again"
    named = _NAME.fullmatch(holder["application_name"])
    who = f"process {named[2]} on the host {named[1]}" if named else holder["application_name"]
    begun = holder["backend_start"]  # None: it is of another user
    since = f" since {begun:%Y-%m-%d %H:%M:%S UTC}" if begun is not None else ""
    where = f" from {holder['client_addr']}" if holder["client_addr"] else ""
    return f"{who} has it{since}, with the PostgreSQL session {holder['pid']}{where}"


async def is_locked(connection: asyncpg.Connection, address: Address) -> bool:
    """Return whether this session holds the lock."""
    return bool(await connection.fetchval(_IS_HELD, address.schema, SERVER_NO))


async def sign(connection: asyncpg.Connection, name: str, epoch: int) -> bool:
    """Write who holds the store; return whether the previous one died and its host still runs."""
    found = await connection.fetchrow(_READ, SERVER_NO)
    boot = read_boot()
    await connection.execute(_SIGN, SERVER_NO, name, boot, epoch, __version__)
    return found is not None and found["state"] == "open" and found["boot"] == boot


async def leave(connection: asyncpg.Connection) -> None:
    """Write that the holder ends in order."""
    await connection.execute(_CLOSE, SERVER_NO)


def read_boot() -> str:
    """Return what identifies this start of the host; empty if the system does not say it."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
