"""A wait for jobs is cut short while the store passes, and goes on with the server that follows."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Lease
from schedo.core.model import Failure
from schedo.web import server
from tests.web.connecting import Served, forwarder, open_connection, post, respond, waiting

AT_ONCE_S = 10.0
Invocation = tuple[asyncio.StreamReader, asyncio.StreamWriter, Lease]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wait_for_a_job_goes_on_with_the_next_server(
    served: Served, next_served: Served, method: str
) -> None:
    world, http, port = served
    reader, writer = await open_connection(port)
    if method == "POST":
        writer.write(post(b'{"task":"demo","delay":"1h"}', path=b"/v1/jobs?wait=30s"))
    else:
        job = await world.submit(delay="1h")
        path = f"/v1/jobs/{job['id']}/wait".encode()
        writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    await waiting(http)
    await http.hold(world.engine.freezing.end_waits)

    http.pass_on(forwarder(next_served))

    status, _, body = await respond(reader)  # of another server, which does not know the job
    assert (status, orjson.loads(body)["code"]) == (404, "not-found")
    writer.close()


async def test_a_wait_that_cannot_go_on_here_ends_with_the_record_of_the_job(
    served: Served,
) -> None:
    """The process that would forward it ends at once."""
    world, http, port = served
    reader, writer = await open_connection(port)
    writer.write(post(b'{"task":"demo","delay":"1h"}', path=b"/v1/jobs?wait=30s"))
    await waiting(http)

    await http.hold(world.engine.freezing.end_waits, waits_s=0.0)

    assert (await respond(reader))[:2] == (202, True)
    await http.resume()
    writer.close()


async def test_a_wait_for_a_job_goes_on_when_the_server_goes_on(served: Served) -> None:
    world, http, port = served
    reader, writer = await open_connection(port)
    writer.write(post(b'{"task":"demo","delay":"1h"}', path=b"/v1/jobs?wait=30s"))
    await waiting(http)
    await http.hold(world.engine.freezing.end_waits)
    await http.resume()
    [job] = (await world.get("/v1/jobs")).json()["items"]
    await waiting(http)
    await world.post(f"/v1/jobs/{job['id']}:cancel")

    head = (await reader.readuntil(b"\r\n\r\n")).lower()

    assert head.startswith(b"http/1.1 200")
    assert f"location: /v1/jobs/{job['id'].lower()}".encode() in head
    writer.close()


async def test_a_wait_that_has_gone_on_here_once_does_not_delay_the_next_upgrade(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PROGRESS_S", 60.0)
    world, http, port = served
    reader, writer = await open_connection(port)
    writer.write(post(b'{"task":"demo","delay":"1h"}', path=b"/v1/jobs?wait=30s"))
    for _ in range(3):
        await waiting(http)
        async with asyncio.timeout(AT_ONCE_S):
            await http.hold(world.engine.freezing.end_waits)
        await http.resume()
    await waiting(http)
    [job] = (await world.get("/v1/jobs")).json()["items"]

    await world.post(f"/v1/jobs/{job['id']}:cancel")

    assert (await respond(reader))[0] == 200
    writer.close()


async def begin_invocation(served: Served, path: bytes, body: bytes) -> Invocation:
    """Invoke a task, hold the server when the job runs, and return the connection and the lease."""
    world, http, port = served
    world.attach_worker()
    reader, writer = await open_connection(port)
    writer.write(post(body, path=path))
    lease = await world.worker.first()
    await world.engine.flush()
    await http.hold(world.engine.freezing.end_waits)
    return reader, writer, lease


INVOCATIONS = [
    (b"/v1/invoke", b'{"task":"demo","wait":"30s"}'),
    (b"/schedule", b'{"Task":"demo","Payload":{}}'),
]


@pytest.mark.parametrize(("path", "body"), INVOCATIONS)
async def test_an_invocation_that_waits_goes_on_with_the_next_server(
    served: Served, next_served: Served, path: bytes, body: bytes
) -> None:
    reader, writer, _ = await begin_invocation(served, path, body)

    served[1].pass_on(forwarder(next_served))

    status, _, problem = await respond(reader)  # of another server, which does not know the job
    assert (status, orjson.loads(problem)["code"]) == (404, "not-found")
    writer.close()


@pytest.mark.parametrize(("path", "body"), INVOCATIONS)
async def test_an_invocation_that_waits_has_its_own_response_if_the_server_goes_on(
    served: Served, path: bytes, body: bytes
) -> None:
    world, http, _ = served
    reader, writer, lease = await begin_invocation(served, path, body)
    await http.resume()
    await waiting(http)

    world.engine.report(AttemptResult(lease.key, Completed(b'{"Num":2}')))

    status, _, found = await respond(reader)
    record = orjson.loads(found)
    assert (status, record if path == b"/schedule" else record["result"]) == (200, {"Num": 2})
    writer.close()


@pytest.mark.parametrize(("path", "body"), INVOCATIONS)
async def test_an_invocation_that_fails_after_its_wait_has_moved_is_a_failed_one(
    served: Served, path: bytes, body: bytes
) -> None:
    world, http, _ = served
    reader, writer, lease = await begin_invocation(served, path, body)
    await http.resume()
    await waiting(http)

    world.engine.report(AttemptResult(lease.key, Failed(Failure("broken", "it broke"))))

    _, _, found = await respond(reader)
    problem = orjson.loads(found)
    assert problem["code"] == "invocation-failed"
    assert problem["detail"].endswith("is failed: it broke")
    assert problem["job"]["error"]["message"] == "it broke"
    writer.close()
