"""The search for the records of a commit whose values no encoder takes.

A check of every value of every commit would cost more than the commit. So each record is encoded by
itself only after the encoding of all of them has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from schedo.core.changes import Changes

UNFIT = (OverflowError, ValueError, TypeError)  # the errors of encoders about a value


def find_unencodable(changes: Changes, encode: Callable[[Changes], object]) -> dict[int, str]:
    """Return the error of each job whose records cannot be encoded, by job id."""
    faults: dict[int, str] = {}
    empty = Changes()
    singles: Iterable[tuple[int, Changes]] = (
        *((job.id, replace(empty, jobs={job.id: job})) for job in changes.jobs.values()),
        *((each.job_id, replace(empty, attempts=[each])) for each in changes.attempts),
        *((each.job_id, replace(empty, outputs=[each])) for each in changes.outputs),
    )
    for job_id, single in singles:
        try:
            encode(single)
        except UNFIT as error:
            faults.setdefault(job_id, str(error))
    return faults
