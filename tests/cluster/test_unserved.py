"""What a server of a cluster says of jobs for which only workers of another server are there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schedo.cluster import hops, unserved
from schedo.core.limits import SECOND
from schedo.core.worker_pool import WorkerSpec
from schedo.testing.clock import VirtualClock
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld, running_cluster
from tests.cluster.test_unreachable import standing_in, stay_silent
from tests.cluster.test_worker_reasons import EarlierHop
from tests.cluster.workers import HandWorker
from tests.web.handlers.test_metrics import scrape, values

WAITS = "1 due job of the task demo waits for a worker that can run it."


async def sentences(world: MemberWorld) -> list[str]:
    verdict = (await world.get("/v1/summary")).json()["verdict"]
    return [verdict["text"], *verdict["others"]]


async def unserved_jobs(world: MemberWorld) -> dict[tuple[str, ...], float]:
    page = await scrape(world)
    return values(page["schedo_unserved_jobs"]) if "schedo_unserved_jobs" in page else {}


async def long_waits(world: MemberWorld) -> list[str]:
    return [each["why"] for each in (await world.get("/v1/summary")).json()["long_waits"]]


async def pass_time(world: MemberWorld) -> None:
    """Let a job that waits do so for long."""
    clock = world.engine.clock
    assert isinstance(clock, VirtualClock)
    await clock.run_until(world.engine, clock.now() + 6 * SECOND)


async def test_a_job_waits_for_no_other_worker_if_a_busy_one_of_another_server_can_run_it(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await HandWorker("far", slots=1).take(second, task="demo")
    await first.submit(task="demo")

    await first.router.look()

    assert await unserved_jobs(first) == {}
    for asked in (first, second):
        assert not [text for text in await sentences(asked) if "for a worker that" in text]


async def test_a_job_that_no_worker_of_any_server_can_run_counts_once_the_others_were_asked(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await HandWorker("far").poll(second, tasks=["other"])
    second.engine.attach(WorkerSpec("process-1", 3), second.worker)  # it runs no job of the first
    await first.router.look()
    await first.submit(task="demo")
    before = await unserved_jobs(first)

    await first.router.look()

    assert (before, await unserved_jobs(first)) == ({}, {("demo",): 1})
    for asked in (first, second):
        assert f"host 1: {WAITS}" in await sentences(asked)


async def test_what_waits_for_a_worker_does_so_at_once_at_a_server_alone() -> None:
    async with running_cluster(1) as (_, (world,)):
        await world.router.look()
        await world.submit(task="demo")

        assert await unserved_jobs(world) == {("demo",): 1}


async def test_a_job_that_waits_for_long_waits_for_the_slots_of_a_worker_of_another_server(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    await HandWorker("far", slots=1).take(second, task="demo")
    await first.submit(task="demo")
    await pass_time(first)

    await first.router.look()

    for asked in (first, second):
        assert await long_waits(asked) == ["all 1 slots for task demo are taken"]


async def test_of_many_workers_of_another_server_some_are_enough(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr("schedo.core.explain.FEW", 2)
    for number in range(4):
        await HandWorker(f"far-{number}", slots=1).take(second, task="demo")
    await first.submit(task="demo")
    await pass_time(first)

    await first.router.look()

    assert await long_waits(first) == ["all slots for task demo are taken"]


async def test_a_server_that_does_not_respond_has_no_worker_as_far_as_is_known(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, _, second = cluster
    monkeypatch.setattr(unserved, "ASK_S", 0.05)
    monkeypatch.setattr("schedo.cluster.reachability.PING_S", 0.05)
    await second.submit(task="demo")
    await pass_time(second)
    async with standing_in(everything, 1, stay_silent):
        await second.router.look()

    assert await unserved_jobs(second) == {("demo",): 1}
    missing = "no worker offers task demo on queue default, as far as is known without host 1"
    assert second.engine.summary(SECOND).long_waits[0].reason == missing


async def test_a_server_of_the_version_before_has_no_worker_as_far_as_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster(3) as (_, (first, second, third)):
        check = third.router.servers.signer.check

        def check_as_before(*arguments: Any) -> hops.Hop:
            with monkeypatch.context() as earlier:
                earlier.setattr(hops, "_DECODER", msgspec.json.Decoder(EarlierHop))
                return check(*arguments)

        monkeypatch.setattr(third.router.servers.signer, "check", check_as_before)
        await HandWorker("far", slots=1).take(second, task="demo")
        await first.submit(task="demo")
        await first.submit(task="other")

        await first.router.look()

        assert await unserved_jobs(first) == {}
        await HandWorker("far", slots=1).poll(second, tasks=["demo"])
        await first.router.look()
        assert await unserved_jobs(first) == {("other",): 1}


async def test_only_while_a_job_waits_the_others_are_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, _ = cluster
    asked: list[bytes] = []

    async def note(asking: Any) -> Any:
        asked.append(asking.request.body)
        return await unserved.say_what_is_served(asking)

    monkeypatch.setattr("schedo.cluster.questions.say_what_is_served", note)

    await first.router.look()
    assert not asked
    await first.submit(task="demo")
    await first.router.look()

    assert len(asked) == 1


async def test_one_question_is_about_some_jobs_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(unserved, "KEYS_MAX", 20)
    await HandWorker("far", slots=1).take(second, task="demo")
    for number in range(25):
        await first.submit(task="demo", queue=f"q{number}")

    await first.router.look()

    assert await unserved_jobs(first) == {("demo",): 5}
