"""The queued jobs in the write buffer, for the pages of waiting jobs.

Most jobs leave the buffer without a page that reads it. So the first page that does sorts them by
ready key, and only from then on each commit adds its new jobs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import islice
from operator import itemgetter
from typing import Any

from schedo.core.loads import LoadReady
from schedo.core.paged_index import Pair
from schedo.core.states import State
from schedo.store.columns import Row
from schedo.store.rows import requirements_text
from schedo.store.sqlite.buffer_entries import LAYOUT

# Jobs that have started or were flushed stay in the lists until there are more pairs than this.
PAIRS_MAX = 32_768

_STATE, _RANK = map(LAYOUT.new.index, ("state", "rank"))
_QUEUED = str(State.QUEUED.value)
_ready_key = itemgetter(*map(LAYOUT.new.index, ("queue", "task", "requirements")))


class BufferedQueued:
    """The pairs (rank, id) of new queued jobs by ready key; new: the rows of the buffer."""

    def __init__(self, new: Mapping[int, Row]) -> None:
        self._new = new
        self._pairs: dict[tuple[Any, ...], list[Pair]] | None = None
        self._count = 0

    def clear(self) -> None:
        """Forget all pairs; the next page begins again."""
        self._pairs, self._count = None, 0

    def note(self, new: Iterable[Row]) -> None:
        """Note the rows of a commit, if a page has read the buffer."""
        if self._pairs is not None:
            self._add(self._pairs, new)
            if self._count > PAIRS_MAX:
                self.clear()

    def find(self, load: LoadReady) -> list[Row]:
        """Return the first rows of queued jobs that may belong to the page, in its order."""
        if self._pairs is None:
            self._pairs = {}
            self._add(self._pairs, self._new.values())
        key = load.ready_key
        where = key.queue, key.task, requirements_text(key.requirements)
        pairs = self._pairs.get(where, [])
        pairs.sort()  # it is nearly sorted
        rows: list[Row] = []
        for rank, job_id in islice(pairs, bisect_right(pairs, load.after), None):
            row = self._new.get(job_id)
            if row is not None and row[_STATE] == _QUEUED and row[_RANK] == rank:
                rows.append(row)
                if len(rows) == load.limit:
                    break
        return rows

    def _add(self, pairs: dict[tuple[Any, ...], list[Pair]], new: Iterable[Row]) -> None:
        for row in new:
            if row[_STATE] == _QUEUED:
                pairs.setdefault(_ready_key(row), []).append((row[_RANK], row[0]))
                self._count += 1
