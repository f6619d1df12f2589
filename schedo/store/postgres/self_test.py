"""What a store needs of its server and its session, tested before anything is written."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import asyncpg

from schedo.errors import StoreUnsuitable
from schedo.store.postgres.errors import READ_ONLY
from schedo.store.postgres.server_numbers import IS_OF_STORE

log = logging.getLogger("schedo.store")

_VERSION_MIN = 14
_TRANSACTIONS = 3
_SETTINGS = """
SELECT current_setting('server_version_num')::int / 10000 AS version,
    current_setting('server_version') AS shown_version,
    current_setting('server_encoding') AS encoding,
    current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery() AS is_read_only,
    current_setting('track_activities') = 'on' AS shows_sessions,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standbys,
    (SELECT count(*) FROM pg_stat_replication WHERE coalesce(state, 'streaming') = 'streaming')
        AS standbys,
    current_setting('fsync') = 'on' AS syncs"""
# What SQL clients insert by a function of the owner, a server only takes. The functions are those
# that its statements and columns call; hardened databases let not everyone execute them.
_MISSING_RIGHTS = """
SELECT wanted || ' on ' || name FROM (
    SELECT relname AS name, wanted
    FROM pg_class CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
    AND NOT (relname = 'inbox' AND wanted IN ('INSERT', 'UPDATE'))
    AND NOT has_table_privilege(pg_class.oid, wanted)
    UNION ALL
    SELECT relname, 'USAGE' FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S' AND relname = 'epoch'
    AND NOT has_sequence_privilege(oid, 'USAGE, UPDATE')
    UNION ALL
    SELECT proname, 'EXECUTE' FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
    AND proname IN ('as_text', 'await_end', 'parse_json', 'require_all', 'shard_of', 'take_over')
    AND NOT has_function_privilege(oid, 'EXECUTE')
) AS missing ORDER BY name, wanted"""
# PostgreSQL shows when a session began to its own user, to roles that have the rights of that user,
# and to those with pg_read_all_stats. So of two servers, one may see the other and not be seen.
_HIDDEN = f"""
SELECT DISTINCT quote_ident(current_user) AS own, quote_ident(usename) AS other
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE {IS_OF_STORE} AND NOT (
    (pg_has_role('pg_read_all_stats', 'USAGE') OR pg_has_role(usesysid, 'USAGE'))
    AND (
        pg_has_role(usesysid, 'pg_read_all_stats', 'USAGE')
        OR pg_has_role(usesysid, current_user, 'USAGE')
    )
) ORDER BY other"""
_SHOWN_MAX = 5


async def check_rights(connection: asyncpg.Connection, shown: str) -> None:
    """Raise StoreUnsuitable if the user may not use what the migrated store has.

    Without one that is needed later, an attempt whose result cannot be stored runs again and again.
    """
    missing = [text for (text,) in await connection.fetch(_MISSING_RIGHTS)]
    if missing:
        more = f" and {len(missing) - _SHOWN_MAX} more" if len(missing) > _SHOWN_MAX else ""
        raise StoreUnsuitable(
            f"the user of {shown} lacks the rights {', '.join(missing[:_SHOWN_MAX])}{more}; let an"
            " administrator run deploy/postgresql/roles.sql, or grant them"
        )


async def check_sight(connection: asyncpg.Connection, shown: str) -> None:
    """Log that a server of another user and this one take each other for dead, if that is so.

    It is no reason to refuse the start: the session may be of a lost server, whose jobs this one is
    to have as soon as PostgreSQL ends it.
    """
    for own, other in await connection.fetch(_HIDDEN):
        log.warning(
            "%s has another server, which logs in as the user %s; it or this one, which logs in as"
            " %s, takes the other for dead, and they share no work; let all servers log in as one"
            " user, or GRANT pg_read_all_stats TO %s, %s",
            *(shown, other, own, other, own),
        )


async def check_server(connection: asyncpg.Connection, shown: str) -> None:
    """Raise StoreUnsuitable, with what helps, if the store cannot work on this session."""
    await _check_session(connection, shown)
    found = await connection.fetchrow(_SETTINGS)
    for obstacle in _list_obstacles(found):
        raise StoreUnsuitable(f"{shown} {obstacle}")
    if found["synchronous_commit"] == "off":  # each acknowledged job must be on the disk
        await connection.execute("SET synchronous_commit = on")
    for warning in _list_risks(found):
        log.warning("%s %s", shown, warning)


def _list_obstacles(found: asyncpg.Record) -> Iterator[str]:
    """Return what keeps the store from working, in the order in which it is to be mended."""
    if found["version"] < _VERSION_MIN:
        yield (
            f"is PostgreSQL {found['shown_version']}; schedo needs version {_VERSION_MIN} or newer"
        )
    if found["encoding"] != "UTF8":
        yield (
            f"has the encoding {found['encoding']}; create the database with"
            " createdb --encoding=UTF8 --template=template0"
        )
    if found["is_read_only"]:
        yield READ_ONLY
    if not found["shows_sessions"]:
        yield (
            "does not say which sessions live, so servers could not tell a dead one; set"
            " track_activities = on"
        )


def _list_risks(found: asyncpg.Record) -> Iterator[str]:
    """Return what the store works with, but at a risk that its operator should know of."""
    if not found["syncs"]:
        yield "has fsync = off: a power cut can damage it and lose jobs"
    if found["standbys"] and not found["synchronous_standbys"]:
        yield (
            "has an asynchronous standby: a fail-over to it can lose the jobs of the last moments"
            " although they were acknowledged; set synchronous_standby_names"
        )
    if found["synchronous_standbys"] and found["synchronous_commit"] == "local":
        yield (
            "has synchronous_commit = local: no commit waits for its standby, and a fail-over can"
            " lose acknowledged jobs; set synchronous_commit = on"
        )
    if found["synchronous_standbys"] and not found["standbys"]:
        yield (
            f"has no standby, but synchronous_standby_names = '{found['synchronous_standbys']}':"
            " every commit waits until one connects"
        )


async def _check_session(connection: asyncpg.Connection, shown: str) -> None:
    """Raise StoreUnsuitable if a pooler gives each transaction another session.

    A lock would stay with a session that the pooler gives to others.
    """
    pids = set()
    for _ in range(_TRANSACTIONS):
        async with connection.transaction():
            pids.add(await connection.fetchval("SELECT pg_backend_pid()"))
    # A pooler tells the client a number of its own; the server knows the real one.
    if pids != {connection.get_server_pid()}:
        raise StoreUnsuitable(
            f"{shown} is a pooler: the lock of the store belongs to a session of PostgreSQL, and a"
            " pooler decides which one that is; give the URL of the server itself"
        )
