"""The verdict: what it says first, and how it says it."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.lateness import Budget
from schedo.core.verdict import Situation, judge, render_span

WELL = Situation(
    reasons=(),
    pauses="",
    objective_us=10_000,
    recent={"timer": Budget(4_000, 3_999), "submit": Budget(137, 137)},
    unserved={},
    due=0,
    slots=16,
    running=3,
    overdue=(),
    failed=0,
)
ON_TIME = "Jobs start on time. 99.97 % of the 4,137 starts of the last 5 minutes were within 10 ms."


def test_a_server_is_well_when_its_jobs_start_on_time() -> None:
    assert judge(WELL) == ("ok", ON_TIME, [])


def test_no_late_start_is_said_without_a_percentage() -> None:
    all_within = WELL._replace(recent={"timer": Budget(12, 12)})
    assert judge(all_within).text == (
        "Jobs start on time. All 12 starts of the last 5 minutes were within 10 ms."
    )
    one = WELL._replace(recent={"timer": Budget(1, 1)})
    assert judge(one).text == (
        "Jobs start on time. The only start of the last 5 minutes was within 10 ms."
    )
    nothing = WELL._replace(recent={"timer": Budget(0, 0)})
    assert judge(nothing).text == "Jobs start on time. None was due in the last 5 minutes."


@pytest.mark.parametrize(
    ("reason", "end"),
    [("no room", "no room."), ("Check the disk.", "the disk."), ("does it run?", "it run?")],
)
def test_a_reason_that_ends_as_a_sentence_gets_no_second_full_stop(reason: str, end: str) -> None:
    text = judge(WELL._replace(reasons=["the store failed", reason])).text

    assert text.startswith("Jobs may not start on time: the store failed; ")
    assert text.endswith(end)
    assert not text.endswith(("..", "?."))


def test_what_is_wrong_comes_in_the_order_of_its_weight() -> None:
    found = judge(
        WELL._replace(
            reasons=["the store has not answered for 6.0 s"],
            pauses="starts",
            recent={"timer": Budget(1_000, 930), "submit": Budget(5, 5)},
            unserved={"train": 1, "resize": 1_200},
            due=1_203,
            running=16,
            overdue=["backup.nightly"],
            failed=1,
        )
    )

    assert found.level == "critical"
    assert [found.text, *found.others] == [
        "Jobs may not start on time: the store has not answered for 6.0 s.",
        "The server is paused: starts.",
        "Jobs start late. Only 93.00 % of the 1,000 timed jobs started within 10 ms"
        " in the last 5 minutes.",
        "1 due job of the task train waits for a worker that can run it.",
        "1,200 due jobs of the task resize wait for a worker that can run it.",
        "All 16 slots are busy, and 2 due jobs wait for one.",
        "What is expected of backup.nightly has not come in time.",
        "1 job failed in the last 15 minutes.",
    ]


@pytest.mark.parametrize(
    ("within", "begin"),
    [
        (998, "Some jobs start late. Only 99.80 %"),
        (950, "Some jobs start late. Only 95.00 %"),
        (949, "Jobs start late. Only 94.90 %"),
    ],
)
def test_a_verdict_says_whether_jobs_are_late_or_a_few_of_them(within: int, begin: str) -> None:
    found = judge(WELL._replace(recent={"timer": Budget(1_000, within)}))

    assert found.text.startswith(begin)


@pytest.mark.parametrize(
    ("kind", "budget", "first"),
    [
        ("timer", Budget(4, 3), "1 of the 4 timed jobs"),
        ("submit", Budget(19, 0), "19 of the 19 jobs that were due at once"),
        ("submit", Budget(1, 0), "The only job that was due at once"),
    ],
)
def test_a_verdict_that_rests_on_few_starts_says_so(kind: str, budget: Budget, first: str) -> None:
    found = judge(WELL._replace(recent={kind: budget}))

    assert found == (
        "warning",
        f"{first} in the last 5 minutes started later than 10 ms."
        " So few starts say little about other jobs.",
        [],
    )


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and 1 other"),
        ([*"abcde"], "a, b, c and 2 others"),
    ],
)
def test_a_verdict_names_the_first_of_what_is_overdue(names: list[str], listed: str) -> None:
    found = judge(WELL._replace(overdue=names))

    assert (found.level, found.text) == (
        "warning",
        f"What is expected of {listed} has not come in time.",
    )


def test_failures_do_not_hide_that_jobs_start_on_time() -> None:
    found = judge(WELL._replace(failed=5))

    assert found == ("warning", "5 jobs failed in the last 15 minutes.", [ON_TIME])


@pytest.mark.parametrize(
    ("fields", "level"),
    [({"reasons": ["there is no room left"]}, "critical"), ({"pauses": "starts"}, "warning")],
)
def test_a_server_that_starts_no_jobs_does_not_say_that_they_start_on_time(
    fields: dict[str, Any], level: str
) -> None:
    found = judge(WELL._replace(**fields, failed=1))

    assert found.level == level
    assert found.others == ["1 job failed in the last 15 minutes."]


def test_a_verdict_without_starts_does_not_say_that_no_job_was_due_while_jobs_wait() -> None:
    found = judge(WELL._replace(recent={"timer": Budget(0, 0)}, due=1))

    assert found.text == ("Jobs start on time. No due job was free to start in the last 5 minutes.")


@pytest.mark.parametrize(("due", "slots", "running"), [(0, 2, 2), (9, 3, 2), (9, 0, 0)])
def test_jobs_that_wait_are_a_problem_if_all_slots_are_busy(
    due: int, slots: int, running: int
) -> None:
    assert judge(WELL._replace(due=due, slots=slots, running=running)).level == "ok"


@pytest.mark.parametrize(("us", "text"), [(50, "50 µs"), (10_000, "10 ms"), (2_000_000, "2 s")])
def test_the_objective_is_said_in_its_unit(us: int, text: str) -> None:
    assert render_span(us) == text
