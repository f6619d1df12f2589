"""The checker of the take-over runs finds each kind of broken promise, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import pytest

from tests.e2e.takeover.checker import Findings, Recorded, check, check_remote, find_first_fires
from tests.e2e.takeover.evidence import ClientLog, Kill, Line, Row, StreamEvent, Submission

SINCE, UNTIL = 998.5, 1_002.0  # the schedule must have fired at 1000 and 1001
DUE = "1970-01-01T00:16:4{}.000000Z"


def start(token: str, job: str, **changes: object) -> Line:
    return Line("start", token, job, 1, 1, DUE.format(0), 10.0, "child")._replace(**changes)  # type: ignore[arg-type]


def end(token: str, job: str, **changes: object) -> Line:
    return start(token, job, **changes)._replace(what="end")


class Run:
    """What a run without any fault shows; a test changes it."""

    def __init__(self) -> None:
        self.one = Submission("one-1", "child", job="A")
        self.log = ClientLog(submissions=[self.one], schedules={"tick": SINCE})
        self.lines = [start("one-1", "A"), end("one-1", "A")]
        self.rows = [Row("A", "completed", None, None)]
        for second, job in ((0, "S0"), (1, "S1")):
            self.rows.append(Row(job, "completed", "tick", (1_000 + second) * 1_000_000))
            due = DUE.format(second)
            self.lines += [start("tick", job, due=due), end("tick", job, due=due)]
        self.events = [
            StreamEvent("begin", "", 1.0),
            StreamEvent("tick", "1-7", 2.0),
            StreamEvent("jobs", "1-8", 2.5),
            StreamEvent("reset", "2-0", 4.0),  # another server
            StreamEvent("tick", "2-1", 4.5),
            StreamEvent("end", "", 5.0),
        ]
        self.log.streams.append(self.events)

    def check(self, recorded: Recorded = MappingProxyType({})) -> Findings:
        return check(self.log, self.lines, self.rows, UNTIL, recorded=recorded)


def test_a_run_without_faults_is_valid() -> None:
    findings = Run().check()

    assert findings.violations == []
    assert (findings.counts["acknowledged"], findings.counts["instants"]) == (1, 2)


def lose_the_row(run: Run) -> None:
    del run.rows[0]


def lose_the_run(run: Run) -> None:
    del run.lines[:2]


def fail_the_job(run: Run) -> None:
    run.rows[0] = Row("A", "failed", None, None)


def leave_the_job(run: Run) -> None:
    run.rows[0] = Row("A", "running", None, None)


def end_the_attempt_twice(run: Run) -> None:
    run.lines.append(end("one-1", "A", at=11.0))


def start_the_same_attempt_again(run: Run) -> None:
    run.lines.append(start("one-1", "A", at=11.0))


def start_in_an_earlier_epoch(run: Run) -> None:
    run.lines[0] = start("one-1", "A", epoch=2)
    run.lines.append(start("one-1", "A", at=11.0))


def start_a_later_attempt_in_an_earlier_epoch(run: Run) -> None:
    run.lines[0] = start("one-1", "A", epoch=2)
    run.lines.append(start("one-1", "A", attempt=2, at=11.0))


def repeat_at_most_once(run: Run) -> None:
    run.one.delivery = "at_most_once"
    run.lines.append(start("one-1", "A", epoch=2, at=11.0))


def lose_a_remote_attempt(run: Run) -> None:
    run.lines.append(start("one-1", "A", attempt=2, place="remote", at=11.0))


def make_a_second_job(run: Run) -> None:
    run.lines += [start("one-1", "B"), end("one-1", "B")]


def run_an_unknown_job(run: Run) -> None:
    run.lines.append(start("one-7", "C"))


def run_a_rejected_job(run: Run) -> None:
    run.log.submissions.append(Submission("one-2", "child", is_rejected=True))
    run.lines.append(start("one-2", "D"))


def run_after_the_cancel(run: Run) -> None:
    run.one.cancelled_at = 9.0
    run.rows[0] = Row("A", "cancelled", None, None)


def complete_a_cancelled_job(run: Run) -> None:
    run.one.cancelled_at = 12.0


def miss_an_instant_in_the_store(run: Run) -> None:
    del run.rows[2]


def miss_an_instant_in_the_handlers(run: Run) -> None:
    run.lines = [line for line in run.lines if line.due != DUE.format(1)]


def store_an_instant_twice(run: Run) -> None:
    run.rows.append(Row("S2", "completed", "tick", 1_000_000_000))


def run_an_instant_twice(run: Run) -> None:
    run.lines.append(start("tick", "S2"))


def fire_between_instants(run: Run) -> None:
    run.rows.append(Row("S2", "completed", "tick", 1_000_500_000))


def lose_an_event(run: Run) -> None:
    del run.events[2]
    run.events[2:] = [StreamEvent("jobs", "1-9", 3.0)]


def follow_the_next_server_without_a_reset(run: Run) -> None:
    del run.events[3]


def be_silent(run: Run) -> None:
    run.events[-1] = StreamEvent("end", "", 36.0)


FAULTS: dict[Callable[[Run], None], str] = {
    lose_the_row: "lost",
    lose_the_run: "lost",
    fail_the_job: "lost",
    leave_the_job: "unfinished",
    end_the_attempt_twice: "same attempt twice",
    start_the_same_attempt_again: "stale run",
    start_in_an_earlier_epoch: "stale run",
    start_a_later_attempt_in_an_earlier_epoch: "stale run",
    repeat_at_most_once: "at_most_once ran twice",
    lose_a_remote_attempt: "remote attempt lost",
    make_a_second_job: "second job",
    run_an_unknown_job: "ghost",
    run_a_rejected_job: "ghost",
    run_after_the_cancel: "cancel",
    complete_a_cancelled_job: "cancel",
    miss_an_instant_in_the_store: "missed instant",
    miss_an_instant_in_the_handlers: "missed instant",
    store_an_instant_twice: "second job for an instant",
    run_an_instant_twice: "second job for an instant",
    fire_between_instants: "ghost",
    lose_an_event: "events",
    follow_the_next_server_without_a_reset: "events",
    be_silent: "events",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_checker_finds(fault: Callable[[Run], None]) -> None:
    run = Run()
    fault(run)

    assert [text.split(":")[0] for text in run.check().violations] == [FAULTS[fault]]


def test_a_start_in_a_later_epoch_is_counted_and_allowed() -> None:
    run = Run()
    run.lines[1:1] = [start("one-1", "A", epoch=2, at=11.0)]
    findings = run.check()

    assert (findings.violations, findings.counts["redone, child"]) == ([], 1)


def test_an_earlier_attempt_in_a_later_epoch_is_counted_and_allowed() -> None:
    """Neither start was durable."""
    run = Run()
    run.lines[0] = start("one-1", "A", attempt=2)
    run.lines[1:2] = [start("one-1", "A", epoch=2, at=11.0), end("one-1", "A", epoch=2, at=12.0)]
    findings = run.check()

    assert (findings.violations, findings.counts["redone, child"]) == ([], 1)


def test_a_remote_run_may_not_repeat_because_a_cancel_was_lost() -> None:
    run = Run()
    run.one.may_be_cancelled = True
    run.lines[1:1] = [start("one-1", "A", attempt=2, epoch=2, place="remote", at=11.0)]

    [violation] = run.check().violations

    assert violation.startswith("remote attempt lost")


@pytest.mark.parametrize(("epochs", "violations"), [({2}, 0), ({1, 2}, 1)])
def test_a_remote_run_may_repeat_if_another_server_has_begun_the_attempt_anew_for_no_worker(
    epochs: set[int], violations: int
) -> None:
    run = Run()
    run.lines[1:1] = [start("one-1", "A", attempt=2, epoch=2, place="remote", at=11.0)]

    assert len(run.check({("A", 1): epochs}).violations) == violations


@pytest.mark.parametrize(("kills", "violations"), [(10, 0), (9, 1)])
def test_at_rest_one_remote_run_in_ten_kills_may_repeat(kills: int, violations: int) -> None:
    findings = Findings()
    findings.counts["redone, remote-shell"] = 1
    check_remote(findings, kills)

    assert len(findings.violations) == violations


def test_a_lost_attempt_of_a_child_is_counted_and_allowed() -> None:
    run = Run()
    run.lines[1:1] = [start("one-1", "A", attempt=2, epoch=2, at=11.0)]
    findings = run.check()

    assert (findings.violations, findings.counts["repeated, child"]) == ([], 1)


def test_a_job_without_an_acknowledgement_may_run_once_or_not() -> None:
    run = Run()
    run.log.submissions += [Submission("one-2", "child"), Submission("one-3", "child")]
    run.rows.append(Row("B", "completed", None, None))
    run.lines += [start("one-2", "B"), end("one-2", "B")]

    assert run.check().violations == []


def test_the_first_fire_is_the_first_start_of_a_later_epoch() -> None:
    lines = [
        start("a", "A", epoch=3, at=9.0),
        start("b", "B", epoch=3, at=10.01),  # the lease was given before the kill
        start("c", "C", epoch=4, at=10.03),
        start("d", "D", epoch=4, at=10.04),
    ]
    kills = [Kill("standby", 1, 9.5, 9.5), Kill("active", 2, 10.0, 10.1)]

    assert find_first_fires(kills, lines) == [pytest.approx(0.03)]
