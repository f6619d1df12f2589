"""Streams of events with what happens in both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from schedo.cluster import streams
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_gathering import register
from tests.cluster.workers import HandWorker
from tests.web.connecting import turn


class Listener:
    """A client of a stream over a socket."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.text = b""

    async def until(self, part: bytes) -> bytes:
        """Read until the stream has had this part; return all of it."""
        async with asyncio.timeout(10):
            while part not in self.text:
                more = await self._reader.read(65_536)
                assert more, self.text
                self.text += more
        return self.text

    async def end(self) -> bytes:
        """Read to the end of the connection, or of the body."""
        async with asyncio.timeout(10):
            while not self.text.endswith(b"0\r\n\r\n"):
                more = await self._reader.read(65_536)
                if not more:
                    break
                self.text += more
        return self.text


@asynccontextmanager
async def listening(
    world: MemberWorld, query: str = "", header: str = ""
) -> AsyncIterator[Listener]:
    port = int(world.cluster.me.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v1/events{query} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n"
    writer.write(head.encode())
    try:
        listener = Listener(reader)
        await listener.until(b"retry: 2000")
        yield listener
    finally:
        writer.transport.abort()


async def has_streams(world: MemberWorld, count: int) -> None:
    """Wait until the server has this number of streams."""
    async with asyncio.timeout(10):
        while (hub := world.app.context.events) is None or hub.streams != count:
            await turn()


async def test_a_stream_has_the_jobs_of_both_servers(cluster: Cluster) -> None:
    _, first, second = cluster
    async with listening(second, "?topics=jobs") as listener:
        await has_streams(first, 1)
        own = await second.submit(queue="own")
        theirs = await first.submit(queue="theirs")

        await listener.until(own["id"].encode())
        text = await listener.until(theirs["id"].encode())

    events = [event for event in text.split(b"\n\n") if theirs["id"].encode() in event]
    assert b"event: jobs" in events[0]
    assert b"id: " not in events[0]


def find_data(text: bytes, name: str) -> list[Any]:
    """Return the data of the events of this name, oldest first."""
    events = [event.partition(b"event: " + name.encode()) for event in text.split(b"\n\n")]
    return [orjson.loads(rest.partition(b"data: ")[2]) for _, found, rest in events if found]


async def test_the_figures_of_a_stream_are_those_of_all_servers(cluster: Cluster) -> None:
    _, first, second = cluster
    first.attach_worker(slots=7)
    second.attach_worker(slots=3)
    async with listening(second, "?topics=tick") as listener:
        text = await listener.until(b'"slots":10')

    assert all(each["running"] == 0 for each in find_data(text, "tick"))


async def test_an_event_about_a_queue_has_the_jobs_of_all_servers(cluster: Cluster) -> None:
    _, first, second = cluster
    for _ in range(2):
        await first.submit(queue="mail")
    async with listening(second, "?topics=queues") as listener:
        await has_streams(first, 1)
        for _ in range(3):
            await second.submit(queue="mail")

        text = await listener.until(b'"waiting":{"queued":5}')

    found = find_data(text, "queues")[-1]["queues"]
    assert [(each["name"], each["running"]) for each in found] == [("mail", 0)]


async def test_an_event_about_a_worker_names_its_server(cluster: Cluster) -> None:
    _, first, second = cluster
    async with listening(second, "?topics=workers") as listener:
        await has_streams(first, 1)
        await register(first, "far")
        await register(second, "near")

        await listener.until(b'"near"')
        text = await listener.until(b'"far"')

    found = [each for data in find_data(text, "workers") for each in data["workers"]]
    servers = {each["name"]: each["server"] for each in found}
    assert servers == {"far": "host 1", "near": "host 2"}


async def test_a_worker_of_two_servers_is_told_once_with_its_slots(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker("w", slots=3)
    lease = await worker.take(first, task="demo")
    await worker.poll(second, lease)
    async with listening(second, "?topics=tick,workers") as listener:
        await has_streams(first, 1)
        await worker.poll(first, lease, draining=True)
        await worker.poll(second, lease, draining=True)

        text = await listener.until(b'"slots":0')

    ticks = find_data(text, "tick")
    changed = [each for data in find_data(text, "workers") for each in data["workers"]]
    assert {each["slots"] for each in ticks} <= {0, 3}
    assert {each["running"] for each in changed} == {1}


async def test_a_stream_ends_when_another_server_dies(cluster: Cluster) -> None:
    _, first, second = cluster
    async with listening(second) as listener:
        await has_streams(first, 1)
        await first.http.stop(grace_s=0.1)

        assert await listener.end()


async def test_a_quiet_stream_ends_when_a_server_joins(cluster: Cluster) -> None:
    everything, first, second = cluster
    async with listening(second, "?topics=schedules") as listener:
        await has_streams(first, 1)
        joined = everything.members[0]._replace(no=3, name="host 3", epoch=3)
        everything.members.append(joined)
        everything.give((), None)

        assert await listener.end()

    everything.members.remove(joined)


async def test_the_stream_of_a_server_alone_ends_when_another_one_joins(cluster: Cluster) -> None:
    everything, first, second = cluster
    joining = everything.members.pop(0)
    async with listening(second, "?topics=jobs") as listener:
        everything.members.insert(0, joining)
        everything.give((), None)

        assert await listener.end()

    async with listening(second, "?topics=jobs") as listener:
        await has_streams(first, 1)
        job = await first.submit()
        assert await listener.until(job["id"].encode())


def hold_streams(world: MemberWorld, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the streams of the other servers begin only when the event is set."""
    goes_on, stream = asyncio.Event(), world.router.servers.peers.stream

    async def begin_late(*arguments: Any) -> AsyncGenerator[bytes, None]:
        await goes_on.wait()
        async for part in stream(*arguments):
            yield part

    monkeypatch.setattr(world.router.servers.peers, "stream", begin_late)
    return goes_on


async def test_a_client_reads_again_when_the_stream_of_a_slow_server_begins(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, second = cluster
    monkeypatch.setattr(streams, "BEGIN_S", 0.0)
    goes_on = hold_streams(second, monkeypatch)
    async with listening(second, "?topics=jobs") as listener:
        job = await second.submit(delay="1h")
        assert b"event: reset" not in await listener.until(job["id"].encode())

        goes_on.set()

        await listener.until(b"event: reset")


async def test_a_client_reads_nothing_again_before_all_streams_have_begun(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, second = cluster
    goes_on = hold_streams(second, monkeypatch)
    async with listening(second, "?topics=jobs", "Last-Event-ID: 1-1\r\n") as listener:
        reading = asyncio.create_task(listener.until(b"event: reset"))
        await asyncio.wait([reading], timeout=0.05)
        assert not reading.done()

        goes_on.set()

        assert (await reading).count(b"event: reset") == 1


async def test_a_client_that_comes_back_must_read_everything_again(cluster: Cluster) -> None:
    _, _, second = cluster
    async with listening(second, header="Last-Event-ID: 1-1\r\n") as listener:
        assert b"event: reset" in await listener.until(b"event: reset")


def find_last_id(text: bytes) -> str:
    """Return the header with which the client of a stream connects again."""
    *_, last_id = [line for line in text.splitlines() if line.startswith(b"id: ")]
    return f"Last-Event-ID: {last_id.removeprefix(b'id: ').decode()}\r\n"


async def test_a_client_that_had_events_of_other_servers_only_must_read_again_too(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    async with listening(second, "?topics=jobs") as listener:
        await has_streams(first, 1)
        job = await first.submit(delay="1h")
        text = await listener.until(job["id"].encode())

    async with listening(second, "?topics=jobs", find_last_id(text)) as listener:
        assert b"event: reset" in await listener.until(b"event: reset")


async def test_a_client_must_read_again_when_the_last_other_server_has_gone(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    async with listening(second, "?topics=jobs") as listener:
        await has_streams(first, 1)
        job = await second.submit(delay="1h")
        text = await listener.until(job["id"].encode())
        everything.members.pop(0)
        everything.give((), None)
        await listener.end()

    async with listening(second, "?topics=jobs", find_last_id(text)) as listener:
        await second.submit(delay="1h")
        assert b"event: reset" in await listener.until(b"event: ")


async def test_a_stream_about_an_unknown_job_is_refused_as_elsewhere(cluster: Cluster) -> None:
    _, _, second = cluster

    assert (await second.get("/v1/events?job=0000000000000")).code == "not-found"
