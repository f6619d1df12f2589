"""GET /v1/summary: the verdict, the figures, and their bounds."""

from __future__ import annotations

from typing import Any

from schedo.core.leases import AttemptResult, Completed, Failed
from schedo.core.model import Failure, JobSpec
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.summary import QUEUES_MAX, WORKERS_MAX
from schedo.protocol.roles import Role
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.world import SECOND, T0, World

TOKEN = "a-token-of-enough-characters"


async def read(world: World) -> Any:
    reply = await world.get("/v1/summary")
    assert reply.status == 200, reply
    return reply.json()


def pass_second(world: World, seconds: int = 1) -> None:
    world.clock.stall(seconds * SECOND)
    world.engine.series.sample()


async def test_a_server_without_jobs_is_well(world: World) -> None:
    found = await read(world)

    text = "Jobs start on time. None was due in the last 5 minutes."
    assert found["verdict"] == {"level": "ok", "text": text, "others": []}
    assert found["caller"] == {"name": "anyone", "role": "admin"}
    assert found["features"] == {
        "shell": True,
        "strict": False,
        "tokens": False,
        "test_clock": True,
    }
    assert found["objective"] == {"lateness_us": 10_000, "target": 0.999}
    assert found["memory_bytes"] > 10_000_000
    assert (found["queues"], found["workers"]) == ([], [])


async def test_the_summary_counts_what_happened(world: World) -> None:
    world.attach_worker(slots=2)
    await world.engine.gauges()
    await world.submit(queue="mail")
    await world.submit(queue="mail", delay="1h")
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed()))
    await world.engine.flush()
    pass_second(world)

    found = await read(world)

    assert found["verdict"]["text"] == (
        "Jobs start on time. The only start of the last 5 minutes was within 10 ms."
    )
    assert found["recent"]["submitted"] == found["day"]["submitted"] == 2
    assert found["quarter"]["completed"] == 1
    assert found["recent_seconds"] == 1
    assert found["lateness"]["submit"]["recent"] == {
        "starts": 1,
        "within": 1,
        "share": 1.0,
        "budget_left": 1.0,
    }
    assert found["lateness"]["timer"]["p99_us"] is None
    assert found["states"] == {
        "blocked": 0,
        "queued": 0,
        "retrying": 0,
        "running": 0,
        "scheduled": 1,
    }
    [queue] = found["queues"]
    assert (queue["name"], queue["waiting"]) == ("mail", {"scheduled": 1})
    [worker] = found["workers"]
    assert (worker["name"], worker["slots"], worker["running"]) == ("hands", 2, 0)
    assert (found["running"], found["slots"]) == (0, 2)


async def test_failures_late_starts_and_unserved_jobs_are_said(world: World) -> None:
    world.engine.attach(WorkerSpec("hands", 1, frozenset({"demo"})), world.worker)
    await world.engine.gauges()
    await world.submit()
    lease = await world.worker.first()
    failed = Failed(Failure("boom", "it broke"), retryable=False)
    world.engine.report(AttemptResult(lease.key, failed))
    await world.submit(task="train")
    world.engine.metrics.start_lateness["timer"].observe_many(20_000, 50)
    await world.engine.flush()
    pass_second(world)

    verdict = (await read(world))["verdict"]

    assert verdict["level"] == "warning"
    assert [verdict["text"], *verdict["others"]] == [
        "Jobs start late. Only 0.00 % of the 50 timed jobs started within 10 ms"
        " in the last 5 minutes.",
        "1 due job of the task train waits for a worker that can run it.",
        "1 job failed in the last 15 minutes.",
    ]


async def test_a_beat_that_did_not_come_is_said_first_where_the_rest_is_well(world: World) -> None:
    await world.put("/v1/expectations/nas", {"every": "1m", "within": "1s"})
    await world.clock.run_until(world.engine, T0 + 90 * SECOND)

    verdict = (await read(world))["verdict"]

    assert verdict["level"] == "warning"
    assert verdict["text"] == "What is expected of nas has not come in time."


async def test_jobs_that_are_due_for_more_than_five_seconds_are_named(world: World) -> None:
    await world.engine.gauges()
    job = await world.submit(task="train", queue="ml")
    assert (await read(world))["long_waits"] == []
    pass_second(world, 6)

    found = await read(world)

    assert found["long_waits"] == [
        {
            "job": job["id"],
            "task": "train",
            "queue": "ml",
            "due_at": job["scheduled_at"],
            "why": "no worker offers task train on queue ml",
        }
    ]
    assert found["queues"][0]["oldest_due_at"] == job["scheduled_at"]


async def test_a_pause_is_said(world: World) -> None:
    await world.post("/v1/server:pause", {"note": "we move"})

    verdict = (await read(world))["verdict"]

    assert verdict["text"].startswith("The server is paused: ")
    assert "we move" in verdict["text"]


async def test_queues_and_workers_are_bounded(world: World) -> None:
    specs = [JobSpec(task="t", queue=f"q{number}") for number in range(QUEUES_MAX + 9)]
    await world.engine.submit(specs)
    await world.engine.gauges()
    for number in range(WORKERS_MAX + 9):
        world.engine.attach(WorkerSpec(f"w{number}", 1, frozenset({"other"})), world.worker)
    await world.engine.flush()

    found = await read(world)

    assert (len(found["queues"]), found["has_more_queues"]) == (QUEUES_MAX, True)
    assert (len(found["workers"]), found["has_more_workers"]) == (WORKERS_MAX, True)


async def test_the_summary_names_the_caller() -> None:
    viewer = TokenPermission(Role.VIEWER, "wall")
    async with World(WebSettings(tokens={digest(TOKEN): viewer}, anyone=None)) as world:
        assert (await world.get("/v1/summary")).code == "unauthorized"
        reply = await world.get("/v1/summary", [("authorization", f"Bearer {TOKEN}")])

    assert reply.json()["caller"] == {"name": "wall", "role": "viewer"}
