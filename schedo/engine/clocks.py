"""Which clock an engine follows."""

from __future__ import annotations

import logging

from schedo.clock import Clock, SystemClock, wall_us
from schedo.store.base import Store
from schedo.virtual_clock import VirtualClock

log = logging.getLogger("schedo")


def make_clock(store: Store) -> Clock:
    """Return the clock of this machine, or that of the database if several servers share it."""
    cluster = getattr(store, "cluster", None)
    if cluster is None:
        return SystemClock()
    from schedo.engine.database_clock import DatabaseClock  # no other store needs it

    clock = DatabaseClock()
    cluster.on_reading = clock.note_reading
    return clock


def make_test_clock() -> Clock:
    """Return a clock that stands at the present."""
    log.warning(
        "this server is for tests: its clock stands still until POST /v1/clock:advance moves it,"
        " and its jobs are only in memory"
    )
    return VirtualClock(wall_us())
