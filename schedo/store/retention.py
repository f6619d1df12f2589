"""How long the stores keep what has ended: one set of figures for the pruning of each of them."""

from __future__ import annotations

from schedo.core.limits import DAY
from schedo.core.states import State
from schedo.store.base import Retention

LOG_ENTRIES_KEPT = 5_000  # of each kind
LOG_KEPT_US = 90 * DAY
# To look at this number of runs takes as long as to delete a job.
RUNS_LOOKED_AT_ONCE = 32
RELEASE_AFTER_US = 60_000_000


def kept_us(retention: Retention) -> dict[State, int]:
    """Return how long jobs of each final state are kept, in microseconds."""
    return {
        State.COMPLETED: retention.completed_us,
        State.CANCELLED: retention.cancelled_us,
        State.EXPIRED: retention.cancelled_us,
        State.FAILED: retention.failed_us,
    }
