"""What PostgreSQL says of the tables, and of the transactions that keep their dead rows.

A dead row that only one old transaction still sees is not removed by vacuum, and each scan of an
index passes it (postgresql.org/docs/current/routine-vacuuming.html).
"""

from __future__ import annotations

import asyncpg

from schedo.core.ids import newest_at
from schedo.store.database_health import (
    INBOX_COUNTED_MAX,
    DatabaseHealth,
    Holder,
    InboxHealth,
    TableHealth,
)

_TABLES = """
SELECT relname::text, pg_total_relation_size(relid), n_live_tup, n_dead_tup,
    (extract(epoch FROM greatest(last_vacuum, last_autovacuum)) * 1000000)::bigint
FROM pg_stat_user_tables WHERE schemaname = current_schema() ORDER BY relname"""
# Sessions of other databases do not count, and a vacuum does not keep the rows of other tables.
_SESSIONS = """
SELECT 'session' AS kind, coalesce(nullif(application_name, ''), usename::text, backend_type), pid,
    (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint AS age,
    greatest(age(backend_xmin), age(backend_xid), 0) AS transactions
FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
AND (datname = current_database() OR backend_type = 'walsender')"""
_OLDEST = f"""
SELECT * FROM (
    {_SESSIONS} AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    UNION ALL
    SELECT 'prepared transaction', gid, NULL,
        (extract(epoch FROM clock_timestamp() - prepared) * 1000000)::bigint, age(transaction)
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', slot_name::text, active_pid, NULL, age(xmin)
    FROM pg_replication_slots WHERE xmin IS NOT NULL
) AS holder ORDER BY transactions DESC, age DESC NULLS LAST LIMIT 1"""
_INBOX = f"""
SELECT (SELECT count(*) FROM (SELECT FROM inbox LIMIT {INBOX_COUNTED_MAX}) AS waiting),
    (SELECT min(id) FROM inbox)"""
_LONGEST = f"{_SESSIONS} AND xact_start IS NOT NULL ORDER BY xact_start LIMIT 1"


async def read_health(connection: asyncpg.Connection) -> DatabaseHealth:
    """Return the health; transactions of other users only if the user may see them."""
    tables = [TableHealth(*row) for row in await connection.fetch(_TABLES)]
    oldest, longest = [await connection.fetchrow(query) for query in (_OLDEST, _LONGEST)]
    rows, first = await connection.fetchrow(_INBOX)
    inbox = InboxHealth(rows, None if first is None else newest_at(first))
    return DatabaseHealth(tables, oldest and Holder(*oldest), longest and Holder(*longest), inbox)
