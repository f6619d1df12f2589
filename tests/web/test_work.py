"""POST /v1/work: requests of workers reach the engine, and its responses reach the workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.core.leases import (
    AttemptResult,
    Blame,
    CapturedOutput,
    Completed,
    Failed,
    Lost,
    Released,
    Snoozed,
    Stopped,
    StopReason,
    StopRequest,
)
from schedo.core.model import Failure, LeaseKey, Options, Retry, Trigger
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import PollRequest, PollResponse, Progress
from schedo.errors import Overloaded
from tests.web.placing import KEY, LEASE_TEXT, PlacingWorld, make_lease


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    async with PlacingWorld() as made:
        yield made


OTHER = LeaseKey(8, 2, 7)
OTHER_TEXT = "0000000000008.2.7"


async def test_a_worker_needs_nothing_but_a_name(world: PlacingWorld) -> None:
    answer = await world.work()

    (ask,) = world.sessions.asks
    assert (ask.worker, ask.session, ask.running, ask.max_leases) == ("w1", "", None, None)
    assert (ask.wait_s, ask.session_timeout_s, ask.is_draining) == (0.0, 30.0, False)
    assert (ask.spec.slots, ask.spec.tasks, ask.spec.queues) == (1, None, None)
    assert answer == {
        "protocol": 1,
        "epoch": 1,
        "leases": [],
        "stop": [],
        "revoked": [],
        "refused": [],
        "heartbeat": 10,
        "session_timeout": 30,
        "drain": False,
    }


async def test_the_fields_of_a_worker_become_its_spec(world: PlacingWorld) -> None:
    await world.work(
        session="s",
        tasks=["resize", "crop"],
        queues=["images"],
        slots=4,
        labels={"region": "eu", "vram": 40, "spot": False, "load": 0.5},
        resources={"cpu": 4, "memory": "8GiB", "share": 0.25, "none": 0},
        version="1.2",
        task_defaults={"resize": {"retry": 3, "timeout": "5s", "delivery": "at_most_once"}},
    )

    offer = world.sessions.asks[0].spec
    assert (offer.id, offer.slots, offer.version) == ("w1", 4, "1.2")
    assert (offer.tasks, offer.queues) == (frozenset({"resize", "crop"}), frozenset({"images"}))
    assert offer.labels == {"region": "eu", "vram": "40", "spot": "false", "load": "0.5"}
    assert offer.resources == {"cpu": 4_000, "memory": 8_589_934_592_000, "share": 250}
    assert offer.task_defaults == {
        "resize": Options(retry=Retry(max_attempts=3), timeout_us=5_000_000, at_most_once=True)
    }


async def test_unknown_fields_of_a_poll_are_ignored_at_every_depth(world: PlacingWorld) -> None:
    await world.work(
        colour="green",
        protocol=99,
        results=[{"lease": LEASE_TEXT, "outcome": "stopped", "mood": 1}],
        progress=[{"lease": LEASE_TEXT, "eta": "soon"}],
        task_defaults={"resize": {"colour": "green"}},
    )

    assert world.sessions.asks[0].reports == [AttemptResult(KEY, Stopped())]


async def test_a_field_of_null_counts_as_missing(world: PlacingWorld) -> None:
    names = (
        "protocol session tasks queues slots labels resources version task_defaults running "
        "results progress accept reject draining wait max_leases session_timeout"
    )

    await world.work(**dict.fromkeys(names.split()))
    await world.work()

    first, second = world.sessions.asks
    assert first == second


async def test_the_spec_of_a_worker_that_polls_again_is_stored_once(world: PlacingWorld) -> None:
    await world.work(tasks=["a"], labels={"x": 1})
    await world.work(tasks=["a"], labels={"x": 1})
    await world.work(tasks=["b"], labels={"x": 1})

    first, second, third = (ask.spec for ask in world.sessions.asks)
    assert first is second
    assert third.tasks == frozenset({"b"})


async def test_the_spec_of_a_refused_worker_is_not_kept(world: PlacingWorld) -> None:
    async def refuse(ask: PollRequest, claim: object) -> PollResponse:
        raise Overloaded("there are too many names")

    world.sessions.work = refuse  # type: ignore[method-assign]

    for _ in range(2):
        reply = await world.post("/v1/work", {"worker": "w1", "tasks": ["a"]})

        assert (reply.status, reply.json()["code"]) == (429, "overloaded")
        assert world.app.context.workers["w1"].spec is None


async def test_workers_with_equal_descriptions_share_them_in_memory(world: PlacingWorld) -> None:
    fields: dict[str, Any] = {
        "tasks": ["a", "b"],
        "queues": ["q"],
        "labels": {"x": 1},
        "resources": {"cpu": 1},
        "task_defaults": {"a": {"retry": 3}},
    }

    await world.work(worker="w1", **fields)
    await world.work(worker="w2", **fields)

    first, second = (ask.spec for ask in world.sessions.asks)
    assert (first.id, second.id) == ("w1", "w2")
    assert first.tasks is second.tasks
    assert first.queues is second.queues
    assert first.labels is second.labels
    assert first.resources is second.resources
    assert first.task_defaults is second.task_defaults


RESULTS: list[tuple[dict[str, Any], Any]] = [
    ({"outcome": "completed", "result": {"n": 1}}, Completed(b'{"n":1}')),
    ({"outcome": "completed"}, Completed(None)),
    ({"outcome": "completed", "result": None}, Completed(b"null")),
    (
        {"outcome": "failed", "error": {"type": "ValueError", "message": "no"}},
        Failed(Failure("ValueError", "no")),
    ),
    (
        {
            "outcome": "failed",
            "error": {"message": "x", "exit_code": 3, "signal": "SIGKILL", "http_status": 500},
            "retryable": False,
            "retry_in": "5s",
        },
        Failed(Failure("error", "x", 3, "SIGKILL", 500), retryable=False, retry_in_us=5_000_000),
    ),
    ({"outcome": "snoozed", "delay": "30s"}, Snoozed(30_000_000)),
    ({"outcome": "stopped"}, Stopped()),
    ({"outcome": "released"}, Released()),
    ({"outcome": "lost"}, Lost("the process that ran it on its worker has died", Blame.SOLE)),
    (
        {"outcome": "lost", "blame": "shared", "error": {"message": "it died"}},
        Lost("it died", Blame.SHARED),
    ),
]


@pytest.mark.parametrize(
    ("fields", "outcome"), RESULTS, ids=[str(each[1])[:30] for each in RESULTS]
)
async def test_each_outcome_of_an_attempt_can_be_reported(
    world: PlacingWorld, fields: dict[str, Any], outcome: Any
) -> None:
    await world.work(results=[{"lease": LEASE_TEXT, **fields}])

    assert world.sessions.asks[0].reports == [AttemptResult(KEY, outcome)]


async def test_output_can_be_sent_as_text_or_base64(world: PlacingWorld) -> None:
    output = [
        {"stream": "stdout", "text": "h\u00e9"},
        {"stream": "stderr", "base64": "/w==", "total_bytes": 1},
        {"stream": "body", "text": "abcd", "total_bytes": 9},
    ]

    await world.work(results=[{"lease": LEASE_TEXT, "outcome": "stopped", "output": output}])

    assert world.sessions.asks[0].reports[0].output == (
        CapturedOutput("stdout", b"h\xc3\xa9", b"", 3),
        CapturedOutput("stderr", b"\xff", b"", 1),
        CapturedOutput("body", b"ab", b"cd", 9),
    )


async def test_output_above_the_limit_is_cut_in_the_middle(world: PlacingWorld) -> None:
    half = 524_288
    text = "a" * half + "b" * 10 + "c" * half

    await world.work(
        results=[
            {
                "lease": LEASE_TEXT,
                "outcome": "stopped",
                "output": [{"stream": "stdout", "text": text}],
            }
        ]
    )

    (capture,) = world.sessions.asks[0].reports[0].output
    assert (capture.head, capture.tail) == (b"a" * half, b"c" * half)
    assert capture.total_bytes == 1_048_586


async def test_every_field_of_a_poll_reaches_the_engine(world: PlacingWorld) -> None:
    world.sessions.let_go.set()

    await world.work(
        running=[LEASE_TEXT, LEASE_TEXT],
        progress=[
            {"lease": LEASE_TEXT, "percent": 40, "message": "m", "log": "l", "stdout": "s"},
            {"lease": OTHER_TEXT, "message": "m" * 5_000, "log": "l" * 99_999 + "end"},
        ],
        accept=[LEASE_TEXT],
        reject=[{"lease": OTHER_TEXT, "reason": "busy"}],
        draining=True,
        wait="60s",
        max_leases=0,
        session_timeout="5s",
    )

    (ask,) = world.sessions.asks
    assert ask.running == frozenset({KEY})
    assert ask.progress[0] == Progress(KEY, ProgressUpdate(40.0, "m", "l", "s"))
    assert len(ask.progress[1].update.message or "") == 1_000
    assert (ask.progress[1].update.log or "")[-4:] == "lend"
    assert len(ask.progress[1].update.log or "") == 16_384
    assert (ask.accept, ask.reject) == ([KEY], [(OTHER, "busy")])
    assert (ask.is_draining, ask.wait_s, ask.max_leases, ask.session_timeout_s) == (
        True,
        60.0,
        0,
        5.0,
    )


async def test_an_empty_list_of_running_attempts_differs_from_a_missing_one(
    world: PlacingWorld,
) -> None:
    await world.work(running=[])

    assert world.sessions.asks[0].running == frozenset()


PLAIN_LEASE = {
    "lease": LEASE_TEXT,
    "job": "0000000000007",
    "attempt": 1,
    "task": "resize",
    "queue": "default",
    "payload": {"n": 1},
    "scheduled_for": "2026-11-20T11:04:05.000000Z",
    "trigger": "submit",
    "max_attempts": 1,
}


async def test_a_lease_has_all_that_a_worker_needs_to_run_it(world: PlacingWorld) -> None:
    options = Options(
        timeout_us=1_500_000,
        tags=("a",),
        meta={"m": 1},
        traceparent="00-1",
        tracestate="s",
        at_most_once=True,
    )
    rich = make_lease(options, key=OTHER, missed_count=2, trigger=Trigger.CATCHUP)
    world.sessions.given = PollResponse([make_lease(), rich], {OTHER})

    leases = (await world.work())["leases"]

    assert leases[0] == PLAIN_LEASE
    assert leases[1] == PLAIN_LEASE | {
        "lease": OTHER_TEXT,
        "job": "0000000000008",
        "attempt": 2,
        "trigger": "catchup",
        "timeout": 1.5,
        "missed_count": 2,
        "tags": ["a"],
        "meta": {"m": 1},
        "traceparent": "00-1",
        "tracestate": "s",
        "at_most_once": True,
        "offer": True,
    }


async def test_every_field_of_the_engine_response_is_rendered(world: PlacingWorld) -> None:
    world.sessions.given = PollResponse(
        stops=[StopRequest(KEY, "w1", StopReason.CANCEL)],
        revoked=[OTHER],
        refused=[(KEY, "the attempt has ended")],
        drain=True,
    )

    answer = await world.work(session_timeout="20s")

    assert answer["stop"] == [{"lease": LEASE_TEXT, "reason": "cancel"}]
    assert answer["revoked"] == [OTHER_TEXT]
    assert answer["refused"] == [
        {
            "lease": LEASE_TEXT,
            "status": 409,
            "code": "stale-lease",
            "detail": "the attempt has ended",
        }
    ]
    assert (answer["drain"], answer["session_timeout"], answer["heartbeat"]) == (True, 20, 20 / 3)


async def test_a_worker_that_disconnects_ends_its_poll_in_the_engine(
    world: PlacingWorld,
) -> None:
    await world.hang_up("POST", "/v1/work", {"worker": "w1", "wait": "30s"})

    assert world.sessions.ended == ["w1"]
    assert world.app.context.polls == set()


async def test_a_poll_ends_when_the_server_stops(world: PlacingWorld) -> None:
    waiting = asyncio.create_task(world.post("/v1/work", {"worker": "w1", "wait": "30s"}))
    await world.sessions.waiting.wait()
    world.app.drain()

    reply = await waiting

    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "unavailable", "1")
    assert world.sessions.ended == ["w1"]


async def test_a_poll_that_ends_when_the_server_stops_says_which_results_are_refused(
    world: PlacingWorld,
) -> None:
    world.sessions.given = PollResponse(refused=[(KEY, "the job has moved")])
    results = [{"lease": LEASE_TEXT, "outcome": "stopped"}]
    waiting = asyncio.create_task(world.work(wait="30s", results=results))
    await world.sessions.waiting.wait()
    world.app.drain()

    answer = await waiting

    assert [each["lease"] for each in answer["refused"]] == [LEASE_TEXT]
    assert [ask.reports for ask in world.sessions.asks] == [[AttemptResult(KEY, Stopped())]] * 2


async def test_a_server_that_stops_accepts_results_and_sends_no_leases(world: PlacingWorld) -> None:
    world.app.drain()

    idle = await world.post("/v1/work", {"worker": "w1", "wait": "30s"})
    answer = await world.work(wait="30s", results=[{"lease": LEASE_TEXT, "outcome": "stopped"}])

    assert idle.status == 503
    assert answer["leases"] == []
    assert [(ask.wait_s, ask.max_leases) for ask in world.sessions.asks] == [(0.0, 0), (0.0, 0)]
    assert world.sessions.asks[1].reports == [AttemptResult(KEY, Stopped())]


async def test_a_poll_that_is_cancelled_stays_cancelled(world: PlacingWorld) -> None:
    waiting = asyncio.create_task(world.post("/v1/work", {"worker": "w1", "wait": "30s"}))
    await world.sessions.waiting.wait()

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert world.sessions.ended == ["w1"]
    assert world.app.context.polls == set()
