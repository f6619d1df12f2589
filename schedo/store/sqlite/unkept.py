"""The jobs that are not kept: they end with a `keep` of 0s, so the job table never gets them.

Such a job is durable like any other until its end, as an entry of the write buffer or as a row of
the table. The write of its end drops it instead, with all its records.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from schedo.core.ids import newest_at
from schedo.core.keep import NOT_KEPT
from schedo.store.columns import Row
from schedo.store.sqlite.buffer_entries import LAYOUT, BufferableJobs
from schedo.store.sqlite.queries import DELETE_JOBS, MARK_DECIDED

_NEW, _KNOWN = LAYOUT.new.index("kept_until"), LAYOUT.known.index("kept_until")
_new_kept, _known_kept = itemgetter(_NEW), itemgetter(_KNOWN)
_encode_ids = msgspec.json.Encoder().encode


def split(new: Sequence[Row], known: Sequence[Row]) -> tuple[BufferableJobs, list[int]]:
    """Return the jobs that are kept, and the ids of the others."""
    # Most flushes have none, and this looks at each row.
    if NOT_KEPT not in map(_new_kept, new) and NOT_KEPT not in map(_known_kept, known):
        return BufferableJobs(new, known), []  # type: ignore[arg-type]
    unkept = [row[0] for row in new if row[_NEW] == NOT_KEPT]
    unkept += [row[-1] for row in known if row[_KNOWN] == NOT_KEPT]
    return BufferableJobs(
        [row for row in new if row[_NEW] != NOT_KEPT],
        [row for row in known if row[_KNOWN] != NOT_KEPT],
    ), unkept


def drop(unkept: Sequence[int]) -> list[tuple[str, list[Any]]]:
    """Return the statements that delete all records of the jobs, each with its rows.

    The jobs leave no id behind, so the mark keeps a later job from getting one of theirs.
    """
    ids = [(_encode_ids(unkept).decode(),)]
    mark = (MARK_DECIDED, [(newest_at(max(unkept)) + 1,)])
    return [*((statement, ids) for statement in DELETE_JOBS), mark]
