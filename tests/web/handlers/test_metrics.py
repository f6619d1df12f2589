"""/metrics, read with the parser of the Prometheus project."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from schedo.core.changes import Changes
from schedo.core.leases import AttemptResult, Completed, Failed
from schedo.core.limits import SCHEDULES_MEASURED_MAX
from schedo.core.model import Failure, JobSpec
from schedo.core.run_history import EndedRun
from schedo.core.states import State
from schedo.engine.engine import Engine
from schedo.engine.gauges import Gauges
from schedo.engine.run_times import TASKS_NAMED_MAX
from tests.factories import make_spec
from tests.web.world import SECOND, T0, World, secured

TOKEN = "a-token-of-enough-characters"


async def scrape(world: World) -> dict[str, Metric]:
    reply = await world.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(reply.body.decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def values(family: Metric, suffix: str = "") -> dict[tuple[str, ...], float]:
    """The samples by the values of their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for sample in family.samples
        if sample.name == family.name + suffix
    }


def series(families: dict[str, Metric]) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    for family in families.values():
        for sample in family.samples:
            yield sample.name, tuple(sorted(sample.labels.items()))


async def test_metrics_count_starts_ends_and_submits(world: World) -> None:
    world.attach_worker()
    await world.submit(queue="mail")
    await world.submit(queue="mail", delay="1h")
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed()))
    await world.engine.flush()

    page = await scrape(world)

    assert values(page["schedo_attempts_started"], "_total") == {(): 1}
    assert values(page["schedo_attempts_ended"], "_total")[("completed",)] == 1
    assert values(page["schedo_jobs_ended"], "_total")[("completed",)] == 1
    assert values(page["schedo_commit_wait_seconds"], "_count") == {("mail",): 2}
    assert values(page["schedo_start_delay_seconds"], "_count") == {("mail",): 1}
    lateness = values(page["schedo_start_lateness_seconds"], "_count")
    assert lateness == {("timer",): 0, ("submit",): 1}
    assert values(page["schedo_queue_waiting_jobs"]) == {
        ("mail", "scheduled"): 1,
        ("mail", "blocked"): 0,
        ("mail", "queued"): 0,
        ("mail", "retrying"): 0,
    }


async def test_the_metrics_include_gauges(world: World) -> None:
    world.attach_worker(slots=3)
    await world.submit(queue="mail")
    await world.worker.first()
    await world.engine.pause_queue("mail")

    page = await scrape(world)

    def one(name: str) -> float:
        return values(page[name])[()]

    assert (one("schedo_ready"), one("schedo_epoch")) == (1, 1)
    assert (one("schedo_workers"), one("schedo_worker_slots")) == (1, 3)
    assert one("schedo_worker_slots_busy") == 1
    assert values(page["schedo_queue_running_jobs"]) == {("mail",): 1}
    assert values(page["schedo_queue_paused"]) == {("mail",): 1}
    assert values(page["schedo_index_entries"]).keys() == {("timers",), ("ready",), ("schedules",)}
    assert one("process_resident_memory_bytes") > 10_000_000
    assert one("process_open_fds") > 3
    assert one("process_start_time_seconds") > 1_700_000_000


async def test_the_metrics_compare_lateness_with_the_objective(world: World) -> None:
    world.attach_worker()
    await world.submit()
    await world.worker.first()
    world.engine.metrics.start_lateness["timer"].observe_many(10_000, 999)
    world.engine.metrics.start_lateness["timer"].observe(10_001)
    world.engine.series.sample()

    page = await scrape(world)

    assert values(page["schedo_lateness_objective_seconds"]) == {(): 0.01}
    assert values(page["schedo_lateness_within_objective_ratio"])[("timer",)] == 0.999
    left = values(page["schedo_lateness_budget_left_ratio"])
    assert left == pytest.approx({("timer",): 0, ("submit",): 1})


async def test_due_jobs_that_no_worker_can_run_are_counted_by_task(world: World) -> None:
    await world.submit(task="nosuch")

    page = await scrape(world)

    assert values(page["schedo_unserved_jobs"]) == {("nosuch",): 1}


async def test_only_the_tasks_with_the_most_unserved_jobs_have_a_series(world: World) -> None:
    for number in range(TASKS_NAMED_MAX + 3):
        await world.submit(task=f"nosuch-{number:02}")
    await world.submit(task="nosuch-34")

    found = values((await scrape(world))["schedo_unserved_jobs"])

    assert len(found) == TASKS_NAMED_MAX + 1
    assert (found["nosuch-34",], found["other",]) == (2, 3)


async def test_run_times_are_measured_by_task_from_the_first_scrape_on(world: World) -> None:
    world.attach_worker()
    await world.submit(task="before")
    first = await world.worker.first()
    world.engine.report(AttemptResult(first.key, Completed()))
    await world.engine.flush()
    await scrape(world)

    for task, outcome in (("resize", Completed()), ("resize", Failed(Failure("Error", "no")))):
        await world.submit(task=task)
        await world.engine.flush()
        world.clock.stall(2 * SECOND)
        world.engine.report(AttemptResult(world.worker.leases[-1].key, outcome))
        await world.engine.flush()

    times = (await scrape(world))["schedo_run_seconds"]
    assert values(times, "_count") == {("resize",): 2}
    assert values(times, "_sum") == {("resize",): 4}


async def test_the_queue_with_the_oldest_due_job_is_known(world: World) -> None:
    await world.submit(queue="mail")
    await world.submit(queue="later", delay="1h")
    world.clock.stall(90 * SECOND)

    page = await scrape(world)

    waited = values(page["schedo_queue_oldest_due_seconds"])
    assert (waited["mail",], waited["later",]) == (90, 0)


async def test_steps_of_the_clock_are_counted(world: World) -> None:
    world.clock.step(-5 * SECOND)
    for _ in range(4):
        await world.engine.flush()

    assert values((await scrape(world))["schedo_clock_steps"], "_total") == {(): 1}


async def test_every_metric_has_help_and_type_and_a_unit_in_its_name(world: World) -> None:
    await world.submit()

    for family in (await scrape(world)).values():
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        assert family.name.startswith(("schedo_", "process_"))
        assert "_us" not in family.name


async def test_the_buckets_of_a_histogram_are_cumulative(world: World) -> None:
    await world.submit()

    buckets = values((await scrape(world))["schedo_commit_wait_seconds"], "_bucket")

    first, *_, last = buckets
    assert (first, last) == (("default", "0.00005"), ("default", "+Inf"))
    assert all(before <= after for before, after in pairwise(buckets.values()))


async def test_a_hundred_thousand_queues_make_fewer_than_a_thousand_series(
    world: World,
) -> None:
    for start in range(0, 2_000, 1_000):
        specs = [JobSpec(task="t", queue=f"q{start + number}") for number in range(1_000)]
        await world.engine.submit(specs)
    for number in range(100_000):
        world.engine.metrics.queue(f"other-{number}").start_delay.observe(1)

    page = await scrape(world)

    found = list(series(page))
    assert len(found) == len(set(found)) < 1_000
    waiting = values(page["schedo_queue_waiting_jobs"])
    assert sum(waiting.values()) == 2_000
    assert waiting[("other", "queued")] == 2_000 - 16


async def test_metrics_need_the_token() -> None:
    async with World(secured(TOKEN)) as world:
        assert (await world.get("/metrics")).code == "unauthorized"
        authorized = [("authorization", f"Bearer {TOKEN}")]
        assert (await world.get("/metrics", authorized)).status == 200


async def test_concurrent_requests_for_metrics_share_one_text(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    read = type(world.engine).gauges

    async def watch(engine: Engine) -> Gauges:
        nonlocal count
        count += 1
        return await read(engine)

    monkeypatch.setattr(type(world.engine), "gauges", watch)
    replies = await asyncio.gather(*(world.get("/metrics") for _ in range(50)))

    assert {reply.status for reply in replies} == {200}
    assert count <= 2


async def test_the_last_completion_of_each_schedule_can_be_watched(world: World) -> None:
    """With `(last_completion or created)`, an alert also finds a schedule that never completed."""
    await world.put("/v1/schedules/nightly", {"cron": "@daily", "task": "t"})
    await world.put("/v1/schedules/other", {"cron": "@daily", "task": "t", "paused": True})
    nightly = (await world.engine.get_schedule("nightly")).id
    ended = [
        EndedRun(nightly, 1, State.COMPLETED, T0 + SECOND, 5, None),
        EndedRun(nightly, 2, State.FAILED, T0 + 2 * SECOND, 5, None),
    ]
    await world.engine.store.commit(Changes(ended_runs=ended))

    page = await scrape(world)

    completed = values(page["schedo_schedule_last_completion_timestamp_seconds"])
    assert completed == {("nightly",): T0 / SECOND + 1}
    created = values(page["schedo_schedule_created_timestamp_seconds"])
    assert created == {("nightly",): T0 / SECOND, ("other",): T0 / SECOND}
    assert values(page["schedo_schedule_failed_in_row"]) == {("nightly",): 1, ("other",): 0}
    assert values(page["schedo_schedule_paused"]) == {("nightly",): 0, ("other",): 1}
    runs = values(page["schedo_schedule_runs_ended"], "_total")
    assert runs[("nightly", "completed")] == runs[("nightly", "failed")] == 1
    assert runs[("other", "expired")] == 0
    assert values(page["schedo_schedules_beyond_metrics"]) == {(): 0}


async def test_the_schedules_that_were_created_first_have_series(world: World) -> None:
    for number in range(SCHEDULES_MEASURED_MAX + 3):
        spec = make_spec(name=f"s{number:03}" if number else "zz")
        await world.engine.put_schedule(spec)

    page = await scrape(world)

    names = {name for (name,) in values(page["schedo_schedule_paused"])}
    assert len(names) == SCHEDULES_MEASURED_MAX
    assert {"zz", "s001"} <= names
    assert values(page["schedo_schedules_beyond_metrics"]) == {(): 1}
