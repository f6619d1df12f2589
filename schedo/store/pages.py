"""The pages of the lists that a store reads; base.Reader says what each list has."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from schedo.core.model import DecisionRecord, Job, Schedule

Place = TypeVar("Place")


class JobPage(NamedTuple, Generic[Place]):
    """The next jobs of a list; `after`: the list continues after this place, if at all.

    A place is an id, or where the list is by due instant, the pair of that and the id.

    looked_at: how many jobs the search has looked at, up to `after`; 0 if it was not limited.
    """

    jobs: list[Job]
    after: Place | None
    looked_at: int = 0


class SchedulePage(NamedTuple):
    """The next schedules of a list, by name; `after`: the list continues after this name, if so.

    looked_at: how many schedules the search has passed that may have met no condition.
    """

    schedules: list[Schedule]
    after: str | None
    looked_at: int = 0


class DecisionPage(NamedTuple):
    """The next decisions of a schedule; `before`: the list continues below this number, if any."""

    decisions: list[DecisionRecord]
    before: int | None


class IdPage(NamedTuple):
    """The ids of the next jobs that were found; `before`: as for JobPage."""

    ids: list[int]
    before: int | None
