"""Every response matches its Struct, which refuses unknown fields."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from schedo.core.built_in import show_payload
from schedo.core.changes import AttemptRecord
from schedo.core.model import (
    Catchup,
    Decision,
    DecisionRecord,
    Failure,
    Job,
    JobSpec,
    Options,
    Overlap,
    Queue,
    Retry,
    Rule,
    Schedule,
    ScheduleSpec,
    Trigger,
    Unique,
)
from schedo.core.states import State
from schedo.errors import BadJson, Invalid, NoCapacity, Overloaded, Problem, SchedoError, StoreError
from schedo.protocol.invocations import ShortResponse
from schedo.protocol.jobs import (
    AttemptResponse,
    JobResponse,
    job_fields,
    job_id_in,
    render_job,
)
from schedo.protocol.problems import (
    KINDS,
    ProblemResponse,
    get_kind,
    problem_headers,
    render_problem,
)
from schedo.protocol.queues import QueueResponse
from schedo.protocol.schedules import DecisionResponse, ScheduleResponse
from tests.job_requests import FIRST, meaning

T0 = 1_795_172_645_000_000
FULL = Job(
    id=7,
    task="t",
    payload=b'{"command":"x"}',
    state=State.COMPLETED,
    options=meaning(FIRST).options,
    created_at=T0,
    due_at=T0 + 1,
    picked_at=T0 + 2,
    started_at=T0 + 3,
    ended_at=T0 + 4,
    attempt=1,
    worker="w",
    schedule_id=9,
    scheduled_for=T0,
    trigger=Trigger.CATCHUP,
    missed_count=2,
    unique_key="k",
    expires_at=T0 + 9,
    cancel_requested_at=T0 + 5,
    result=b'{"exit_code":0}',
    failure=Failure("signal", "killed", signal="SIGKILL"),
)
PLAIN = Job(id=8, task="t", created_at=T0, due_at=T0)


def read(text: bytes, shape: type[msgspec.Struct]) -> msgspec.Struct:
    return msgspec.json.decode(text, type=shape)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("job", [FULL, PLAIN])
def test_a_job_has_its_documented_shape_in_every_state(job: Job, state: State) -> None:
    changed = job.copy()
    changed.state = state

    read(render_job(changed), JobResponse)
    read(msgspec.json.encode(ShortResponse.of(changed)), ShortResponse)


def test_a_job_with_every_field_set_shows_every_field() -> None:
    answer = orjson.loads(render_job(FULL, {9: "daily"}))

    assert set(answer) == set(JobResponse.__struct_fields__) - {
        "failed_at",
        "cancelled_at",
        "expired_at",
        *("conflict", "warnings"),  # of the response to a submit
    }
    assert answer["schedule"] == "daily"
    assert answer["completed_at"] == "2026-11-20T11:04:05.000004Z"
    assert answer["error"] == {"type": "signal", "message": "killed", "signal": "SIGKILL"}
    assert answer["delivery"] == "at_most_once"


def test_fields_that_are_not_set_are_left_out() -> None:
    assert "null" not in render_job(PLAIN).decode().replace('"payload":null', "")


def test_large_payloads_and_results_are_left_out_of_lists() -> None:
    job = PLAIN.copy()
    job.attempt = 1
    job.payload = job.result = b'"' + b"x" * 100 + b'"'

    assert job_fields(job, {}, 50).keys().isdisjoint({"payload", "result"})
    assert {"payload", "result"} <= job_fields(job).keys()


@pytest.mark.parametrize(
    ("task", "payload", "shown"),
    [
        ("http", b'{"url": "u", "secret": "whsec_x"}', {"url": "u", "secret": "***"}),
        ("http", b'{"secr\\u0065t":"whsec_x"}', {"secret": "***"}),
        ("http", b'{"secret": null}', {"secret": None}),
        ("http", b'{"body": {"secret": "mine"}}', {"body": {"secret": "mine"}}),
        ("http", b'["secret"]', ["secret"]),
        ("other", b'{"secret": "mine"}', {"secret": "mine"}),
    ],
)
def test_the_secret_of_an_http_job_is_masked(task: str, payload: bytes, shown: object) -> None:
    job = PLAIN.copy()
    job.task, job.payload = task, payload

    assert orjson.loads(render_job(job))["payload"] == shown
    assert job.payload == payload


def test_the_id_is_found_in_a_rendered_job_without_parsing_it() -> None:
    assert job_id_in(render_job(FULL)) == "0000000000007"


def test_the_short_form_of_a_job_shows_its_command_and_how_it_ended() -> None:
    answer = ShortResponse.of(FULL)

    assert (answer.command, answer.exit_code, answer.error) == ("x", 0, "killed")


def test_a_schedule_has_its_documented_shape() -> None:
    spec = ScheduleSpec(
        name="s",
        rule=Rule(cron="0 9 * * *", tz="Europe/Paris", start_at=T0, end_at=T0 + 5, jitter_us=5),
        job=JobSpec("t", expires_in_us=5, options=Options(Retry(3), 5, unique=Unique("k"))),
        cron_source="@daily",
        overlap=Overlap.BUFFER_ONE,
        catchup=Catchup.ALL,
    )
    schedule = Schedule(1, spec, T0, T0, T0, None, note="n", last_fired_at=T0, last_job_id=7)

    for rule in (spec.rule, Rule(every_us=5), Rule(at=T0)):
        changed = msgspec.structs.replace(spec, rule=rule)
        schedule.spec = changed
        answer = ScheduleResponse.of(schedule, [T0], "words", ["careful"])
        read(msgspec.json.encode(answer), ScheduleResponse)
    assert answer.at == "2026-11-20T11:04:05.000000Z"


def test_the_other_responses_have_their_documented_shapes() -> None:
    failure = Failure("timeout", "too late")
    answers: tuple[msgspec.Struct, ...] = (
        QueueResponse.of(Queue("q"), 1, {"queued": 2}, 0),
        DecisionResponse.of(DecisionRecord(1, T0, T0, Decision.FIRED, 7)),
        DecisionResponse.of(DecisionRecord(1, T0, T0, Decision.MISSED)),
        AttemptResponse.of(AttemptRecord(1, 1, 1, "w", T0, T0, "failed", failure)),
        AttemptResponse.of(AttemptRecord(1, 1, 1, None, None, T0, "lost", None)),
        get_kind("invalid"),
    )
    for answer in answers:
        assert read(msgspec.json.encode(answer), type(answer)) == answer


def test_a_problem_names_its_fields_and_its_parameters() -> None:
    error = Invalid("two", Problem("/a", "bad"), Problem("?limit", "worse"))

    text = render_problem(error, "r-1")

    read(text, ProblemResponse)
    assert orjson.loads(text) == {
        "type": "/problems/invalid",
        "title": "Invalid",
        "status": 422,
        "detail": "two",
        "code": "invalid",
        "errors": [
            {"pointer": "/a", "detail": "bad"},
            {"parameter": "limit", "detail": "worse"},
        ],
        "request_id": "r-1",
    }


def test_every_kind_of_problem_has_a_description_and_an_error_status() -> None:
    assert KINDS[BadJson.code].status == 400
    assert KINDS["internal"].description.startswith("A bug")
    for kind in KINDS.values():
        assert kind.description
        assert 400 <= kind.status < 600


def test_an_overload_problem_has_retry_after() -> None:
    assert problem_headers(Overloaded("full", 7)) == [(b"retry-after", b"7")]
    assert problem_headers(StoreError("it flickered")) == [(b"retry-after", b"1")]
    assert problem_headers(NoCapacity("busy", retry_after_s=2)) == [(b"retry-after", b"2")]
    assert problem_headers(SchedoError()) == []


def test_a_large_payload_with_a_secret_is_masked_without_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense = b"[" + b",".join([b"[]"] * 100_000) + b"]"
    payload = b'{"url":"http://a/","\\u0073ecret":"whsec_x","body":%b}' % dense

    def refuse(text: bytes) -> object:
        raise AssertionError(f"{len(text)} bytes were read at once")

    with monkeypatch.context() as patch:
        patch.setattr(orjson, "loads", refuse)
        shown = show_payload("http", payload)

    assert orjson.loads(shown) == {
        "url": "http://a/",
        "secret": "***",
        "body": orjson.loads(dense),
    }
