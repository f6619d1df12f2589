"""The asyncio client against a real HTTP server."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from schedo.client import AsyncClient, AsyncJobHandle, JobFailed, Unreachable
from schedo.client.async_transport import Streams, open_streams
from schedo.client.messages import HttpResponse
from schedo.client.rest import get
from schedo.errors import Invalid, NotFound, SchedoError
from tests.client.server import JOB_ID, FakeServer, Reply, job_record, problem, schedule_record

JOB = f"/v1/jobs/{JOB_ID}"


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, "t0ken-t0ken-t0ken", timeout=10) as client:
        yield client


async def test_submit_returns_the_job(server: FakeServer, client: AsyncClient) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    job = await client.submit("email.send", {"to": "ada"}, delay="5m")

    (request,) = server.requests
    assert job.id == JOB_ID
    assert request.json == {"task": "email.send", "payload": {"to": "ada"}, "delay": "5m"}
    assert request.headers["authorization"] == "Bearer t0ken-t0ken-t0ken"
    assert request.headers["host"] == server.url.removeprefix("http://")


async def test_a_batch_returns_its_jobs_in_order(server: FakeServer, client: AsyncClient) -> None:
    refused = problem(422, "invalid", "priority is too large")
    items = [{"status": 201, "job": job_record()}, {"status": 422, "problem": refused}]
    server.on("POST", "/v1/jobs:batch", 200, {"items": items})

    made, error = await client.submit_many([{"task": "a"}, {"task": "b"}])

    assert isinstance(made, AsyncJobHandle)
    assert isinstance(error, Invalid)


async def test_the_result_of_an_ended_job_that_holds_the_key_is_fetched(
    server: FakeServer, client: AsyncClient
) -> None:
    brief = {"id": JOB_ID, "state": "completed", "task": "a", "queue": "q", "conflict": True}
    server.on("POST", "/v1/jobs:batch", 200, {"items": [{"status": 200, "job": brief}]})
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed", result={"sum": 3}))

    (made,) = await client.submit_many([{"task": "a", "unique": "key"}])

    assert isinstance(made, AsyncJobHandle)
    assert (made.is_conflict, made.is_final, await made.result()) == (True, True, {"sum": 3})
    assert server.requests[0].headers["prefer"] == "return=minimal"


async def test_result_waits_until_the_job_has_ended(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record())
    server.on("GET", f"{JOB}/wait", 200, job_record(state="running"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed", result={"sum": 3}))

    job = await client.get(JOB_ID)

    assert await job.result() == {"sum": 3}


async def test_a_wait_that_ends_early_is_repeated_after_a_pause(
    server: FakeServer, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def note(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr("schedo.client.aio.asyncio.sleep", note)
    server.on("GET", f"{JOB}/wait", 202, job_record(state="running"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed"))

    assert (await client.wait(JOB_ID)).is_final
    assert pauses == [0.5]


async def test_a_result_that_does_not_come_in_time_raises_a_timeout(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record(state="running"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="running"))
    job = await client.get(JOB_ID)

    with pytest.raises(TimeoutError, match="is still running"):
        await job.result(timeout=0)


async def test_the_result_of_a_failed_job_is_its_error(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record(state="failed", error={"message": "boom"}))
    job = await client.get(JOB_ID)

    with pytest.raises(JobFailed, match="boom"):
        await job.result()


async def test_a_list_goes_through_all_pages(server: FakeServer, client: AsyncClient) -> None:
    server.on("GET", "/v1/jobs", 200, {"items": [job_record(id="A")], "next_cursor": "c1"})
    server.on("GET", "/v1/jobs", 200, {"items": [job_record(id="B")]})

    assert [job.id async for job in client.list_jobs()] == ["A", "B"]


async def test_schedules_and_queues_can_be_managed(server: FakeServer, client: AsyncClient) -> None:
    server.on("PUT", "/v1/schedules/nightly", 201, schedule_record())
    server.on("GET", "/v1/schedules", 200, {"items": [schedule_record()]})
    server.on("POST", "/v1/schedules/nightly:trigger", 201, {"job": job_record()})
    server.reply("DELETE", "/v1/schedules/nightly", Reply(204))
    server.on("POST", "/v1/queues/mail:pause", 200, {"name": "mail", "paused": True})

    _, is_new = await client.put_schedule("nightly", cron="0 3 * * *", task="t")
    triggered = await client.trigger_schedule("nightly")
    await client.delete_schedule("nightly")

    assert is_new
    assert triggered.job is not None
    assert [record["name"] async for record in client.list_schedules()] == ["nightly"]
    assert (await client.pause_queue("mail"))["paused"]


async def test_an_error_response_is_raised_with_the_servers_message(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 404, problem(404, "not-found", "there is no such job"))

    with pytest.raises(NotFound, match="there is no such job"):
        await client.get(JOB_ID)


# Connections.


async def test_requests_one_after_the_other_share_a_connection(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record())

    await client.get(JOB_ID)
    await client.get(JOB_ID)

    assert len({request.connection for request in server.requests}) == 1


async def test_requests_at_the_same_time_do_not_wait_for_each_other(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record())

    jobs = await asyncio.gather(*(client.get(JOB_ID) for _ in range(5)))

    assert [job.id for job in jobs] == [JOB_ID] * 5
    assert len({request.connection for request in server.requests}) == 5


async def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(
    server: FakeServer, client: AsyncClient
) -> None:
    body = json.dumps(job_record()).encode()
    server.reply("POST", f"{JOB}:retry", Reply(200, body, {"Connection": "close"}, closes=True))
    server.reply("POST", f"{JOB}:retry", Reply(200, body))

    await client.retry(JOB_ID)
    await client.retry(JOB_ID)

    assert len({request.connection for request in server.requests}) == 2


async def test_a_submit_is_repeated_once_when_a_reused_connection_drops(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record())
    server.reply("POST", "/v1/jobs", Reply(0))
    server.on("POST", "/v1/jobs", 201, job_record())
    await client.get(JOB_ID)

    await client.submit("t")

    keys = [request.headers["idempotency-key"] for request in server.requests[1:]]
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_a_request_that_is_not_repeatable_is_not_repeated(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record())
    server.reply("POST", f"{JOB}:retry", Reply(0))
    await client.get(JOB_ID)

    with pytest.raises(Unreachable, match="may or may not have been carried out"):
        await client.retry(JOB_ID)

    assert len(server.requests) == 2


async def test_a_refused_connection_has_a_plain_message() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with AsyncClient(url) as client:
            with pytest.raises(Unreachable, match=f"^cannot reach schedo at {url}: connection ref"):
                await client.get(JOB_ID)


async def test_a_request_to_a_server_that_never_responds_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with AsyncClient(url, timeout=0.05) as client:
            with pytest.raises(Unreachable, match="timed out"):
                await client.get(JOB_ID)


async def test_a_response_that_is_not_http_is_an_error() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, AsyncClient(url) as client:
        with pytest.raises(Unreachable, match="broke before the response arrived"):
            await client.get(JOB_ID)


@pytest.mark.parametrize(
    ("answer", "is_whole"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[]", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", False),
        (b"HTTP/1.1 200 O", False),
    ],
    ids=["until the end", "cut", "chunked", "chunks cut", "half a head"],
)
async def test_a_response_ends_at_its_declared_length(answer: bytes, is_whole: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, AsyncClient(url) as client:
        if is_whole:
            assert await client.send(get("/whole", HttpResponse.json)) == []
        else:
            with pytest.raises(Unreachable, match="the response is incomplete"):
                await client.get(JOB_ID)


async def test_a_cancelled_call_leaves_no_half_used_connection(
    server: FakeServer, client: AsyncClient
) -> None:
    server.on("GET", JOB, 200, job_record())
    call = asyncio.create_task(client.get(JOB_ID))
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call

    assert (await client.get(JOB_ID)).id == JOB_ID


async def test_a_response_of_another_kind_of_server_is_recognized(
    server: FakeServer, client: AsyncClient
) -> None:
    server.reply("GET", JOB, Reply(200, b"<html>", {"Content-Type": "text/html"}))

    with pytest.raises(SchedoError, match="not a schedo server"):
        await client.get(JOB_ID)


def test_a_cancelled_look_up_of_a_name_leaves_no_error_behind() -> None:
    reported: list[dict[str, object]] = []

    async def look_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        connecting = asyncio.create_task(open_streams("no such host", 80, None))
        loop.call_soon(connecting.cancel)  # after its first step
        await asyncio.wait((connecting,))
        with pytest.raises(OSError, match="not known"):  # by then, the first look-up has ended, too
            await open_streams("no such host", 80, None)
        gc.collect()

    uvloop.run(look_up())

    assert reported == []


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", JOB, 200, job_record())
    loop, connect = asyncio.get_running_loop(), asyncio.open_connection
    tried: list[str] = []

    async def look_up(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, port)) for address in ("192.0.2.1", "127.0.0.1")]

    async def open_connection(address: str, port: int, **options: Any) -> Streams:
        tried.append(address)
        if address == "192.0.2.1":
            await asyncio.Event().wait()
        return await connect(address, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    monkeypatch.setattr("asyncio.open_connection", open_connection)
    monkeypatch.setattr("schedo.client.async_transport.CONNECT_S", 0.01)
    async with AsyncClient(server.url) as client:
        assert (await client.get(JOB_ID)).id == JOB_ID

    assert tried == ["192.0.2.1", "127.0.0.1"]
