"""Jobs that were submitted elsewhere, with ids of another source: rows of the inbox of a store.

The rows wait in the store. The commit that has their jobs deletes them, so each becomes one job,
whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from schedo.core.commands import Command
from schedo.core.ids import render_id
from schedo.core.model import JobSpec


class Enqueued(NamedTuple):
    """A row of the inbox; refusal: why the server cannot accept it."""

    id: int
    spec: JobSpec
    refusal: str | None = None


def internal_error(error: Exception) -> str:
    """Return the refusal of a row on which the server has failed: a bug, which its log explains."""
    return f"an internal error ({type(error).__name__}); the log of the server says more"


def _always() -> bool:
    return True


class RowsFailed(AssertionError):
    """A bug has failed on rows of the inbox; `jobs` has their refusals, by id.

    The cause is the failure of the first one.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        first, *others = errors
        more = f" and {len(others)} more" if others else ""
        super().__init__(f"job {render_id(first)}{more} cannot be taken from the inbox")
        self.jobs = {job_id: internal_error(error) for job_id, error in errors.items()}


class TakeIn(Command[None], frozen=True):
    """Make the jobs of rows of the inbox, and delete the rows in the same commit.

    No caller waits for the reply. So a row that cannot be accepted becomes a job as well: one that
    has failed, or that was cancelled because another job holds its unique key.

    is_current: whether the rows were read for this scheduler. An earlier one may have taken them.
    Then they are not taken, and this raises Unavailable.

    Raise RowsFailed, which ends this scheduler, with all rows on which a bug has failed.
    """

    makes_due: ClassVar[bool] = False  # as for a Submit
    rows: Sequence[Enqueued]
    is_current: Callable[[], bool] = _always
