"""The health of the database server, looked at once a minute, and a warning of old transactions."""

from __future__ import annotations

import logging
from contextlib import suppress

from schedo.core.limits import MINUTE, SECOND
from schedo.errors import SchedoError
from schedo.store.base import Reader
from schedo.store.database_health import DatabaseHealth, Holder

log = logging.getLogger("schedo.engine")

WARNED_US = 5 * MINUTE


class DatabaseWatch:
    """The last health of a store's database server; None for a store in a file."""

    def __init__(self) -> None:
        self.last: DatabaseHealth | None = None
        self._warned_of = ""

    async def look(self, store: Reader) -> None:
        """Read the health, and warn once of each transaction that is older than WARNED_US."""
        with suppress(SchedoError):  # readiness reports that the store fails
            self.last = await store.database_health()
            if self.last is not None:
                self._warn(self.last.oldest_snapshot)

    def _warn(self, holder: Holder | None) -> None:
        if holder is None or holder.age_us is None or holder.age_us < WARNED_US:
            self._warned_of = ""
        elif str(holder) != self._warned_of:
            self._warned_of = str(holder)
            log.warning(
                "%s has kept a snapshot of the database for %d s: no row that has died since can be"
                " removed, and the store becomes larger and slower",
                *(holder, holder.age_us // SECOND),
            )
