"""What is noted of a commit, and the spans that are made of it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from schedo.core.changes import AttemptRecord, Changes
from schedo.core.model import Decision, DecisionRecord, Job, LeaseKey, Options
from schedo.core.states import State
from schedo.telemetry.notes import AttemptNote, DecisionNote, SubmitNote, take_notes
from schedo.telemetry.span_ids import SpanIds
from schedo.telemetry.spans import SpanMaker

KEY = LeaseKey(7, 2, 3)
SECOND = 1_000_000


def make_job(**fields: Any) -> Job:
    known = {"id": 7, "task": "mail", "attempt": 2, "epoch": 3, "worker": "w", "due_at": SECOND}
    return Job(**{**known, **fields})


def make_changes(job: Job, *attempts: AttemptRecord) -> Changes:
    return Changes(jobs={job.id: job}, attempts=[*attempts])


def make_record(outcome: str, attempt: int = 1) -> AttemptRecord:
    return AttemptRecord(7, attempt, 3, "w", 2 * SECOND, 3 * SECOND, outcome, None, SECOND)


def done(**fields: Any) -> Job:
    return make_job(state=State.COMPLETED, started_at=2 * SECOND, ended_at=3 * SECOND, **fields)


def test_a_result_that_comes_twice_is_one_attempt() -> None:
    (note,) = take_notes(make_changes(done()), [KEY, KEY])

    assert isinstance(note, AttemptNote)
    assert note.record == make_record("completed", 2)


def test_a_completed_job_that_only_changes_again_is_not_noted() -> None:
    assert take_notes(make_changes(done()), []) == []
    assert take_notes(make_changes(done()), [KEY._replace(attempt=1)]) == []


def test_an_attempt_before_the_one_that_completed_is_noted_as_well() -> None:
    changes = make_changes(done(is_new=True), make_record("failed"))

    submitted, completed, failed = take_notes(changes, [KEY])

    assert isinstance(submitted, SubmitNote)
    assert isinstance(completed, AttemptNote)
    assert isinstance(failed, AttemptNote)
    assert (completed.record.outcome, failed.record.outcome) == ("completed", "failed")


def test_a_result_that_came_too_late_is_no_attempt() -> None:
    assert take_notes(make_changes(make_job(), make_record("stale")), []) == []


def test_an_attempt_of_a_deleted_job_is_not_noted() -> None:
    assert take_notes(Changes(attempts=[make_record("failed")]), []) == []


def test_a_decision_without_a_job_is_a_trace_of_its_own() -> None:
    decisions = [DecisionRecord(5, 9, 9, Decision.MISSED), DecisionRecord(5, 8, 9, Decision.PAUSED)]
    notes = take_notes(Changes(decisions=decisions), [])

    spans = [*SpanMaker(Resource.get_empty()).make(notes, 10)]

    assert all(isinstance(note, DecisionNote) for note in notes)
    assert [span.name for span in spans] == ["schedule", "schedule"]
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 2


def attempt_span(maker: SpanMaker, job: Job) -> ReadableSpan:
    (span,) = maker.make(take_notes(make_changes(job), [KEY]), 4 * SECOND)
    return span


def test_two_stores_never_share_a_trace() -> None:
    maker = SpanMaker(Resource.get_empty())
    traces = set()
    for store_id in (1, 2, 1, -(2**63)):
        maker.use_store(store_id)
        context = attempt_span(maker, done()).context
        assert context is not None
        traces.add(context.trace_id)

    assert len(traces) == 3


@pytest.mark.parametrize(("sampler", "count"), [("always_off", 0), ("always_on", 1)])
def test_the_sampler_of_the_environment_decides(
    sampler: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    unsampled = Options(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    maker = SpanMaker(Resource.get_empty())

    for options in (Options(), unsampled):
        notes = take_notes(make_changes(done(options=options)), [KEY])
        assert len([*maker.make(notes, 4 * SECOND)]) == count


def test_ids_are_never_zero_and_differ_by_kind() -> None:
    ids = SpanIds(1)

    numbers = {ids.submit(7), ids.attempt(LeaseKey(7, 1, 1)), ids.attempt(LeaseKey(7, 1, 2))}

    assert len(numbers) == 3
    assert 0 not in numbers
    assert ids.trace(7) == SpanIds(1).trace(7)


def test_a_traceparent_that_is_not_valid_counts_as_none() -> None:
    maker = SpanMaker(Resource.get_empty())

    span = attempt_span(maker, done(options=Options(traceparent="00-1-2-3", tracestate="=,")))

    assert span.context is not None
    assert span.context.trace_id == SpanIds(0).trace(7)
