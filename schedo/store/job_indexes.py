"""The indexes in which a store can search the jobs of a filter.

Each condition of a filter has an index, but a combination of conditions has none. So a search looks
at parts of one of these; the stores have their statements (see job_search.py of each).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from schedo.core import limits
from schedo.core.job_filter import JobFilter
from schedo.core.states import State


class By(Enum):
    """What an index of jobs has in its entries."""

    ALL = auto()
    UNIQUE_KEY = auto()
    TAG = auto()
    SCHEDULE = auto()
    TASK = auto()
    QUEUE = auto()
    STATE = auto()
    STATES = auto()  # the index of states, for the jobs in one of several
    INSTANT = auto()
    READY = auto()
    READY_IN_QUEUE = auto()
    READY_OF_TASK = auto()


# They are not in the index of states, because almost every job passes through them.
_UNLISTED = {State.QUEUED, State.SCHEDULED}


def usable_indexes(which: JobFilter) -> Iterator[By]:
    """Return the indexes that have all jobs of the filter."""
    if which.unique_key is not None:
        yield By.UNIQUE_KEY
    if which.tag is not None:
        yield By.TAG
    if which.schedule_id is not None:
        yield By.SCHEDULE
    if which.queue not in (None, limits.DEFAULT_QUEUE):
        yield By.QUEUE
    yield from _indexes_of_state(which)
    if which.task is not None:
        yield By.TASK
    yield By.ALL


def _indexes_of_state(which: JobFilter) -> Iterator[By]:
    if which.state == State.QUEUED:
        in_queue = By.READY_IN_QUEUE if which.task is None else By.READY_OF_TASK
        yield By.READY if which.queue is None else in_queue
    elif which.state == State.SCHEDULED:
        yield By.INSTANT
    elif which.state is not None:
        yield By.STATE
    elif which.states and not _UNLISTED & {*which.states}:
        yield By.STATES
