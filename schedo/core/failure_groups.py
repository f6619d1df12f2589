"""Failed attempts in groups: the same task, kind of error and message, but for numbers and ids.

There are GROUPS_MAX groups, whatever messages tasks invent. A failure of a new group takes the
place of the group with the fewest (the algorithm is Space-Saving): it begins with that group's
count, of which `beyond` says how much is not its own. So the largest groups are always there.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from typing import NamedTuple

from schedo.core.limits import MINUTE
from schedo.core.outcomes import FailedAttempt, find_reason
from schedo.core.states import State

GROUPS_MAX = 256
RECENT = 30  # counts of RECENT_US each: the last hour
RECENT_US = 2 * MINUTE
_CHARACTERS_MAX = 300  # of a message
_COUNT_BYTES = array("I").itemsize
# Numbers, and ids that have some: they differ from failure to failure.
_VARYING = re.compile(r"\b(?=[0-9A-Za-z_-]*[0-9])[0-9A-Za-z_-]{8,}\b|[0-9]+")


class GroupKey(NamedTuple):
    """What the failures of a group have in common."""

    task: str
    type: str  # of the error; for a loss or a timeout the outcome
    exit_code: int | None
    message: str  # its first line, with # for what varies


@dataclass(slots=True)
class FailureGroup:
    """The failed attempts of one group, since the server started."""

    key: GroupKey
    count: int  # of attempts
    beyond: int  # how many of them may belong to groups that are gone
    first_at: int
    failed_jobs: int = 0  # jobs whose last attempt this was
    last_at: int = 0
    last_job: int = 0
    last_message: str = ""
    _recent: array[int] = field(default_factory=lambda: array("I", bytes(_COUNT_BYTES * RECENT)))
    _slot: int = 0  # the number of the time slot that the last of the counts is of

    def note(self, now: int) -> None:
        """Count a failed attempt."""
        self.count += 1
        self._advance(now)
        self._recent[-1] += 1

    def recent(self, now: int) -> list[int]:
        """Return how many attempts have failed in each 2 minutes of the last hour."""
        self._advance(now)
        return self._recent.tolist()

    def _advance(self, now: int) -> None:
        """Begin the counts of the time since the last one. A clock that is set back begins none."""
        passed = min(max(0, now // RECENT_US - self._slot), RECENT)
        del self._recent[:passed]
        self._recent.extend([0] * passed)
        self._slot = max(self._slot, now // RECENT_US)


class FailureGroups:
    """The groups with the most failures."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, FailureGroup] = {}
        self._order: list[tuple[int, int, GroupKey]] = []  # a heap; its counts may be old ones
        self._made = 0

    def __len__(self) -> int:
        return len(self._groups)

    def note(self, failed: FailedAttempt, now: int) -> None:
        """Count a failed attempt."""
        failure = failed.failure
        message = "" if failure is None else failure.message
        # The last attempt of a job failed as the ones before it did.
        message = message.removesuffix(find_reason(message))[:_CHARACTERS_MAX]
        kind = failed.outcome if failure is None else failure.type
        exit_code = None if failure is None else failure.exit_code
        key = GroupKey(failed.task, kind, exit_code, normalize(message))
        group = self._groups.get(key)
        if group is None:
            group = self._add(key, now)
        group.note(now)
        group.failed_jobs += failed.state is State.FAILED
        group.last_at, group.last_job, group.last_message = now, failed.job_id, message

    def _add(self, key: GroupKey, now: int) -> FailureGroup:
        self._made += 1
        if len(self._groups) < GROUPS_MAX:
            group = self._groups[key] = FailureGroup(key, 0, 0, now)
            heappush(self._order, (0, self._made, key))
            return group
        while (fewest := self._groups[self._order[0][2]]).count != self._order[0][0]:
            heapreplace(self._order, (fewest.count, self._order[0][1], fewest.key))
        del self._groups[fewest.key]
        group = self._groups[key] = FailureGroup(key, fewest.count, fewest.count, now)
        heapreplace(self._order, (fewest.count, self._made, key))
        return group

    def latest(self) -> list[FailureGroup]:
        """Return all groups, those that failed last first."""
        return sorted(self._groups.values(), key=lambda group: group.last_at, reverse=True)


def normalize(message: str) -> str:
    """Return the first line of a message, with # for numbers and for ids with digits."""
    return _VARYING.sub("#", message.partition("\n")[0])
