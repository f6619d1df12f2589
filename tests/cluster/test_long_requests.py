"""Requests of workers that are too long to be decoded in one step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.cluster import gateway
from schedo.cluster.work_parts import read_poll
from schedo.core.worker_messages import PollRequest
from schedo.protocol.leases import parse_lease
from schedo.protocol.reading import FIELD_BYTES_MAX
from schedo.web.http import Request
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker, holds, lease_of, result

LONG = "x" * FIELD_BYTES_MAX  # in a request, so that it is long


@pytest.mark.parametrize(
    ("fields", "status", "pointer"),
    [
        ({"running": ["a"] * 80_000}, 422, "/running"),
        ({"accept": ["a"] * 80_000}, 422, "/accept"),
        ({"results": [{"lease": "a"}] * 20_000}, 422, "/results"),
        ({"zz": [{}] * 400_000}, 400, None),
    ],
)
async def test_a_request_with_too_many_entries_is_refused_before_they_are_decoded(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    status: int,
    pointer: str | None,
) -> None:
    def decode(_: bytes) -> None:
        raise AssertionError("it is decoded in one step")

    monkeypatch.setattr(gateway, "WorkerRequest", decode)

    reply = await HandWorker().send(cluster[1], **fields)

    assert reply.status == status, reply
    assert [each["pointer"] for each in reply.json().get("errors", ())] == [pointer] * bool(pointer)


async def test_a_long_result_is_read_once_and_reaches_the_owner_of_its_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, task="demo")
    read: list[str] = []

    async def read_and_note(request: Request) -> PollRequest:
        read.append(request.path)
        return await read_poll(request)

    monkeypatch.setattr(gateway, "read_poll", read_and_note)

    answer = await worker.poll(second, results=[result(lease, result=LONG)])

    assert (answer["refused"], read) == ([], ["/v1/work"])
    job = await first.engine.get(parse_lease(lease).job_id)
    assert job.result == f'"{LONG}"'.encode()


async def test_a_long_poll_does_not_take_the_place_of_one_that_came_while_it_was_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=1)
    is_read, may_go_on = asyncio.Event(), asyncio.Event()

    async def read_later(request: Request) -> PollRequest:
        found = await read_poll(request)
        if LONG.encode() in request.body:
            is_read.set()
            await may_go_on.wait()
        return found

    monkeypatch.setattr(gateway, "read_poll", read_later)
    old = asyncio.create_task(worker.poll(second, wait=20, zz=LONG))
    await is_read.wait()
    new = worker.begin_poll(second)
    await second.engine.flush()
    may_go_on.set()

    assert (await old)["leases"] == []
    await first.submit(task="demo")
    assert holds(first, lease_of(await new))
