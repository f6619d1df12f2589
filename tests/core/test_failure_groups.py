"""Groups of failures: what is alike, and what stays when there are too many."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from schedo.core.failure_groups import GROUPS_MAX, RECENT, RECENT_US, FailureGroups, normalize
from schedo.core.model import Failure
from schedo.core.outcomes import NEXT_RUN_FIRST, PAST_UNTIL, FailedAttempt
from schedo.core.states import State


def failed(
    message: str | None, *, job_id: int = 1, task: str = "t", state: State = State.RETRYING
) -> FailedAttempt:
    failure = None if message is None else Failure("boom", message, exit_code=3)
    return FailedAttempt(job_id, task, 1, "failed", failure, 1, 3, state, 0, None)


@pytest.mark.parametrize(
    ("message", "normal"),
    [
        ("exit code 1", "exit code #"),
        ("order 9781 of 0CR6HNYEM0YGF is gone", "order # of # is gone"),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301 timed out after 2.5 s", "# timed out after #.# s"),
        ("connection refused", "connection refused"),
        ("first line 1\nsecond line", "first line #"),
        ("", ""),
    ],
)
def test_messages_are_alike_but_for_numbers_and_ids(message: str, normal: str) -> None:
    assert normalize(message) == normal


def test_a_group_has_its_count_its_instants_and_a_sample() -> None:
    groups = FailureGroups()
    groups.note(failed("order 1 is gone"), 10)
    groups.note(failed("order 22 is gone", job_id=7, state=State.FAILED), 20)
    groups.note(failed("order 3 is gone", task="other"), 15)
    groups.note(failed(None), 12)

    first, *others = groups.latest()

    assert first.key == ("t", "boom", 3, "order # is gone")
    assert (first.count, first.beyond, first.failed_jobs) == (2, 0, 1)
    assert (first.first_at, first.last_at) == (10, 20)
    assert (first.last_job, first.last_message) == (7, "order 22 is gone")
    assert [other.key[:2] for other in others] == [("other", "boom"), ("t", "failed")]


@pytest.mark.parametrize("reason", [NEXT_RUN_FIRST, PAST_UNTIL])
def test_an_attempt_that_is_not_retried_is_in_the_group_of_those_that_are(reason: str) -> None:
    groups = FailureGroups()
    groups.note(failed("no route to host"), 10)
    groups.note(failed(f"no route to host{reason}", state=State.FAILED), 20)

    [group] = groups.latest()
    assert (group.count, group.failed_jobs, group.last_message) == (2, 1, "no route to host")


def test_a_group_counts_the_last_hour_by_two_minutes() -> None:
    groups, start = FailureGroups(), 1_000 * RECENT_US
    for now in (start - 40 * RECENT_US, start, start, start + RECENT_US, start + 5 * RECENT_US):
        groups.note(failed("it broke"), now)
    [group] = groups.latest()

    assert group.recent(start + 5 * RECENT_US)[-7:] == [0, 2, 1, 0, 0, 0, 1]
    assert sum(group.recent(start + 5 * RECENT_US)) == 4
    groups.note(failed("it broke"), start)  # the clock was set back
    assert group.recent(start + 6 * RECENT_US)[-3:] == [0, 2, 0]
    assert group.recent(start + 99 * RECENT_US) == [0] * RECENT
    assert group.count == 6


def test_the_largest_groups_stay_whatever_messages_are_invented() -> None:
    groups, chance, true = FailureGroups(), random.Random(1), Counter[str]()
    for now in range(20_000):
        frequent = chance.random() < 0.5
        letters = "abcdefgh" if frequent else "ijklmnopqrstuvwxyz"
        message = "".join(chance.choices(letters, k=1 if frequent else 6))
        true[message] += 1
        groups.note(failed(message), now)

    assert len(groups) == GROUPS_MAX
    found = {group.key.message: group for group in groups.latest()}
    for message in "abcdefgh":
        group = found[message]
        assert group.count - group.beyond <= true[message] <= group.count
    assert sum(group.count for group in found.values()) == 20_000
