"""Expectations under random runs, downtimes and pauses, compared with a simple reference.

The reference looks at all instants of the rule: each is missed unless a run of its own, or one that
stands for it, has completed before its limit.
"""

from __future__ import annotations

from itertools import cycle, takewhile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schedo.core.commands import PauseSchedule, ResumeSchedule
from schedo.core.model import Catchup, Expect, Overlap, Rule, Trigger
from schedo.core.states import State
from schedo.core.triggers import instants_after
from tests.core.builders import DAY, SECOND, T0, every, make_spec, tries, worker_spec
from tests.core.expecting import GIVE_UP, of
from tests.core.scheduled import made
from tests.core.server import Server

STEPS = st.tuples(
    st.sampled_from([1, 20, 61, 130, 400]),  # seconds
    st.sampled_from(["run", "crash", "pause", "resume", "resume from", "trigger"]),
    st.lists(st.sampled_from(["complete", "fail", "go on"]), min_size=1, max_size=3),
)


class Reference:
    """The completed runs, from which follows which instants are missed."""

    def __init__(self, rule: Rule, within_us: int) -> None:
        self.rule = rule
        self.within_us = within_us
        self.completed_at: dict[int, int] = {}  # of a run of the instant

    def note(self, server: Server, job_id: int, now: int) -> None:
        job = server.job(job_id)
        if job.state is not State.COMPLETED or job.trigger is Trigger.MANUAL:
            return
        assert job.scheduled_for is not None
        due = [instant for instant in self.instants(now) if instant <= job.scheduled_for]
        for instant in due[-1 - job.missed_count :]:
            self.completed_at.setdefault(instant, now)

    def instants(self, now: int) -> list[int]:
        return [*takewhile(lambda instant: instant <= now, instants_after(self.rule, T0))]

    def missed(self, now: int) -> int:
        return sum(
            self.completed_at.get(instant, now + 1) >= instant + self.within_us
            for instant in self.instants(now - self.within_us)
        )


SPECS = st.fixed_dictionaries(
    {
        "rule": st.sampled_from([every(60), Rule(cron="*/20 * * * * *")]),
        "catchup": st.sampled_from(Catchup),
        "catchup_max": st.sampled_from([1, 100]),
        "catchup_window_us": st.sampled_from([200 * SECOND, DAY]),
        "overlap": st.sampled_from(Overlap),
        "job": st.just(make_spec(retry=tries(2))),
    }
)


@settings(max_examples=100)
@given(
    spec=SPECS,
    within_us=st.sampled_from([30 * SECOND, 300 * SECOND, 1_000 * SECOND]),
    steps=st.lists(STEPS, min_size=8, max_size=16),
)
def test_the_misses_are_those_of_a_simple_reference(
    spec: dict[str, Any], within_us: int, steps: list[tuple[int, str, list[str]]]
) -> None:
    server, now, reference = Server(), 1, Reference(spec["rule"], within_us)
    schedule = made(server, expect=Expect(within_us=within_us), **spec)

    for seconds, verb, outcomes in steps:
        now += seconds * SECOND
        change_schedule(server, verb, now)
        for job_id, outcome in zip(sorted(server.run(now)), cycle(outcomes), strict=False):
            if outcome == "complete":
                server.complete(job_id, now)
                reference.note(server, job_id, now)
            elif outcome == "fail":
                server.report(job_id, GIVE_UP, now)
        server.settle(now)
        server.round(now)

        assert of(server, schedule.id).missed == reference.missed(now)


def change_schedule(server: Server, verb: str, now: int) -> None:
    match verb:
        case "crash":
            server.crash(now)
            server.attach(worker_spec())
        case "pause":
            server.apply(PauseSchedule("s"), now)
        case "resume":
            server.apply(ResumeSchedule("s"), now)
        case "resume from":
            server.apply(ResumeSchedule("s", now - 100 * SECOND), now)
        case "trigger":
            server.trigger("s", now, Overlap.ALLOW)
