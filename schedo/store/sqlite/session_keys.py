"""The key that signs sessions: random, made on the first use, and the same for the next server."""

from __future__ import annotations

import secrets
import sqlite3

from schedo.store.sqlite import connection as connections
from schedo.store.sqlite.read_connection import ConcurrentReads

_KEY_BYTES = 32
_SAVE = "INSERT OR IGNORE INTO secret (name, value) VALUES ('sessions', ?)"
_READ = "SELECT value FROM secret WHERE name = 'sessions'"


class SessionKeys(ConcurrentReads):
    """The part of a store that keeps the key of sessions."""

    async def session_key(self) -> bytes:
        def load_key(connection: sqlite3.Connection) -> bytes:
            found = connection.execute(_READ).fetchone()
            if found is None:
                with connections.transaction(connection):
                    connection.execute(_SAVE, (secrets.token_bytes(_KEY_BYTES),))
                    found = connection.execute(_READ).fetchone()
                self._guard.committed(connection)
            key: bytes = found[0]
            return key

        return await self._run(self._require_open(self._writer), load_key)
