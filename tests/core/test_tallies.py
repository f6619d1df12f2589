"""The rows of tallies: how they are stored, and what becomes of those that are too large."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.ends import end_of
from schedo.core.limits import DAY, HOUR, REQUEUE_BOOST_US
from schedo.core.model import Job, Trigger
from schedo.core.sketch import BUCKETS
from schedo.core.states import State
from schedo.core.tallies import (
    NAMES_MAX,
    OTHER,
    ROW_BYTES_MAX,
    Dimension,
    Period,
    Tallies,
    Tally,
    TallyFilter,
    add_tallies,
    decode_row,
    encode_row,
    extend_row,
)


def tally(completed: int, buckets: int = 1) -> Tally:
    found = Tally()
    found.counts["completed"] = completed
    found.run = dict.fromkeys(range(buckets), completed)
    found.late = dict.fromkeys(range(BUCKETS - buckets, BUCKETS), 1)
    return found


def test_a_row_is_read_as_it_was_written() -> None:
    written = {"mail": tally(3, 9), "resize": Tally()}

    read = decode_row(encode_row(written))

    assert list(read) == ["mail", "resize"]
    assert (read["mail"].counts, read["resize"].counts) == (tally(3).counts, Tally().counts)
    assert (read["mail"].run, read["mail"].late) == (written["mail"].run, written["mail"].late)


def test_a_row_that_is_too_large_keeps_those_with_the_most() -> None:
    written = {f"{number:0128}": tally(number, BUCKETS) for number in range(NAMES_MAX)}

    text = encode_row(written)
    read = decode_row(text)

    assert len(text) <= ROW_BYTES_MAX
    assert NAMES_MAX > len(read) > NAMES_MAX // 8
    assert f"{NAMES_MAX - 1:0128}" in read
    assert sum(each.ended for each in read.values()) == sum(range(NAMES_MAX))
    assert sum(read[OTHER].run.values()) > 0


def test_the_largest_possible_row_of_one_name_fits() -> None:
    huge = tally(10**15, BUCKETS)

    assert len(encode_row({OTHER: huge, "x" * 128: huge})) <= ROW_BYTES_MAX


def test_adding_leaves_the_added_tallies_alone() -> None:
    added = {"mail": tally(1)}
    into = {"mail": tally(2)}

    add_tallies(into, added)
    add_tallies(into, added)

    assert (into["mail"].ended, added["mail"].ended) == (4, 1)
    assert added["mail"].run == {0: 1}


def test_only_what_is_wanted_is_added() -> None:
    wanted = TallyFilter(Dimension.TASK, HOUR, DAY, Period.HOUR, "AI")
    found: dict[int, Tallies] = {}

    for at in (0, HOUR, 2 * HOUR, DAY):
        wanted.add(found, at, {"mail": tally(1), "resize": tally(1)})

    assert {at: list(tallies) for at, tallies in found.items()} == {
        HOUR: ["mail"],
        2 * HOUR: ["mail"],
    }


def test_days_and_the_whole_range_have_all_their_hours() -> None:
    by_day = TallyFilter(Dimension.TASK, 0, 2 * DAY, Period.DAY)
    together = by_day._replace(start=HOUR, per=None)
    days: dict[int, Tallies] = {}
    whole: dict[int, Tallies] = {}

    for at in range(0, 2 * DAY, 6 * HOUR):
        by_day.add(days, at, {"mail": tally(1)})
        together.add(whole, at, {"mail": tally(1)})

    assert {at: each["mail"].ended for at, each in days.items()} == {0: 4, DAY: 4}
    assert {at: each["mail"].ended for at, each in whole.items()} == {HOUR: 7}


def test_the_weight_of_a_tally_is_its_jobs_and_attempts() -> None:
    assert tally(3, 2).weight == 3 + 2 * 3


def test_a_row_can_be_extended() -> None:
    row = extend_row(None, {"mail": tally(1)})

    assert decode_row(extend_row(row, {"mail": tally(2)}))["mail"].ended == 3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (90, 10)),
        ({"state": State.QUEUED}, (None, None)),
        ({"started_at": None}, (None, None)),
        ({"due_at": 1_050}, (90, 10)),
        ({"due_at": 1_050, "trigger": Trigger.SCHEDULE}, (90, 60)),
        ({"trigger": Trigger.CATCHUP}, (90, None)),
        ({"attempt": 2}, (90, 10)),
        ({"attempt": 2, "rank": 1_100 - 7 - REQUEUE_BOOST_US}, (90, None)),
        ({"attempt": 2, "rank": 1_100 - 7 - REQUEUE_BOOST_US + 18 * DAY}, (90, None)),
        ({"attempt": 2, "rank": 1_100 - 7 - 9 * DAY, "priority": 9}, (90, 10)),
    ],
)
def test_the_end_of_an_attempt_says_how_long_it_ran_and_how_late_it_was(
    changes: dict[str, Any], expected: tuple[int | None, int | None]
) -> None:
    job = Job(id=1, task="mail", queue="slow")
    fields: dict[str, Any] = {
        **{"created_at": 1_100, "due_at": 1_100, "rank": 1_093, "started_at": 1_110},
        **{"state": State.RUNNING, "attempt": 1},
    }
    for name, value in (fields | changes).items():
        setattr(job, name, value)

    end = end_of(job, "completed", 7, 1_200)

    assert end == ("mail", "slow", None, "completed", 1_200, *expected)
    assert end_of(job, "failed", 7, 1_200, is_lost=True)[5:] == (None, expected[1])
