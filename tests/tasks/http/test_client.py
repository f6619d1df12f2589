"""One exchange with servers of every kind: each framing, each fault, each flood."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Failed, Stopped, StopReason
from schedo.tasks.http.client import _Incoming
from tests.tasks.http.servers import Server, answer, call_server, make_runner, read_request, run
from tests.worker.calls import both_loops, capture_of, failure_of, make_context, result_of

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
OK = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (OK + b"\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (CHUNKED + b"2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: x\r\n\r\n", b"abc"),
        (INTERIM + answer(200, body=b"x"), b"x"),
        (answer(200, body=b"x") + b"garbage", b"x"),
        (answer(200, body=b"x") + answer(500, body=b"y"), b"x"),
        (answer(200, "connection: close\r\n", b"x") + b"garbage", b"x"),
    ],
    ids=["close", "1.0", "chunked", "interim", "garbage", "second", "after close"],
)  # fmt: skip
async def test_a_response_body_of_each_framing_is_read(response: bytes, body: bytes) -> None:
    async with Server(response) as server:
        report = await call_server(server)

    assert result_of(report)["status"] == 200
    assert capture_of(report, "body").head == body


async def test_a_response_to_head_has_no_body() -> None:
    async def keep_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 1000\r\n\r\n")
        await asyncio.Event().wait()

    async with Server(keep_open) as server:
        report = await call_server(server, method="HEAD")

    assert result_of(report)["headers"] == {"content-length": "1000"}


@pytest.mark.parametrize(
    ("response", "kind", "message"),
    [
        (b"", "network", "closed before the response was complete"),
        (b"SSH-2.0-OpenSSH\r\n", "bad-response", "does not speak HTTP/1.1"),
        (OK + b"Content-Length: 10\r\n\r\nshort", "network", "closed before"),
        (OK + b"Content-Le", "network", "closed before"),
        (CHUNKED + b"5\r\nab", "network", "closed before"),
        (CHUNKED + b"zz\r\nab", "bad-response", "chunk size"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na", "bad-response", "Length"),
        (OK + b"Content-Length: -1\r\n\r\n", "bad-response", "Length"),
        (b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "bad-response", "upgrade"),
        (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "bad-response", "status 999"),
        (OK + b"A: b\r\n c\r\n\r\n", "bad-response", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", "bad-response", "header is larger"),
    ],
)  # fmt: skip
async def test_broken_responses_fail_and_can_be_retried(
    response: bytes, kind: str, message: str
) -> None:
    async with Server(response) as server:
        report = await call_server(server)

    failure = failure_of(report)
    assert failure.type == kind
    assert message in failure.message
    assert isinstance(report.outcome, Failed)
    assert report.outcome.retryable


async def flood_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"a: " + b"b" * 1_000 + b"\r\n")
        await writer.drain()


async def flood_one_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(OK + b"a: ")
    while True:
        writer.write(b"b" * 1_000)
        await writer.drain()


async def flood_interim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 50)
        await writer.drain()


async def flood_trailers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED + b"0\r\n")
    while True:
        writer.write(b"a: b\r\n" * 50)
        await writer.drain()


@pytest.mark.parametrize("flood", [flood_headers, flood_one_header, flood_interim, flood_trailers])
async def test_endless_headers_are_cut_off(flood: Any) -> None:
    async with Server(flood) as server:
        report = await call_server(server)
        async with asyncio.timeout(10):
            await server.closed.wait()

    assert failure_of(report).type == "bad-response"
    assert "header is larger than 32768 bytes" in failure_of(report).message


@pytest.mark.parametrize(
    ("header", "total_bytes"),
    [
        (b"Content-Length: 10737418240", 10_737_418_240),
        (b"Content-Length: 9007199254740993", 9_007_199_254_740_991),
        (b"Content-Length: 9223372036854775807", 9_007_199_254_740_991),
        (b"Content-Length: 9223372036854775808", 9_007_199_254_740_991),
        (b"Content-Length: 18446744073709551614", 9_007_199_254_740_991),
        (b"Content-Length: " + b"0" * 5_000 + b"10737418240", 10_737_418_240),
        (b"X: y", None),
        (b"Transfer-Encoding: chunked", None),
    ],
    ids=["announced", "2^53", "2^63-1", "2^63", "2^64-2", "zeros", "until close", "chunked"],
)
async def test_an_endless_body_is_kept_up_to_one_mebibyte(
    header: bytes, total_bytes: int | None
) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n")
        block = b"8000\r\n" + b"x" * 32_768 + b"\r\n" if b"chunked" in header else b"x" * 32_768
        while True:
            writer.write(block)
            await writer.drain()

    async with Server(flood) as server:
        report = await call_server(server)
        async with asyncio.timeout(10):
            await server.closed.wait()

    capture = capture_of(report, "body")
    assert result_of(report)["status"] == 200
    assert capture.head == b"x" * 1_048_576
    assert total_bytes is None or capture.total_bytes == total_bytes
    assert capture.total_bytes > 1_048_576


async def test_a_body_in_chunks_of_one_byte_is_bounded_with_its_framing() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while True:
            writer.write((b"1;" + b"e" * 60 + b"\r\nx\r\n") * 500)
            await writer.drain()

    async with Server(flood) as server:
        report = await call_server(server)

    assert failure_of(report).type == "bad-response"
    assert "more than 8388608 bytes" in failure_of(report).message


async def test_a_connection_reset_in_the_middle_of_a_body_can_be_retried_and_keeps_the_status() -> (
    None
):
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK + b"Content-Length: 1000\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()

    async with Server(reset) as server:
        report = await call_server(server)

    failure = failure_of(report)
    assert failure.type == "network"
    assert isinstance(report.outcome, Failed)
    assert report.outcome.retryable


async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000:
        writer.write(bytes([byte]))
        await writer.drain()
        with contextlib.suppress(TimeoutError):  # reads nothing, so it only takes its time
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)


@both_loops
@pytest.mark.parametrize("slow", [never, drip])
def test_the_timeout_covers_the_whole_request(make_loop: MakeLoop, slow: Any) -> None:
    async def scenario() -> AttemptResult:
        async with Server(slow) as server:
            report = await call_server(server, timeout="100ms")
            await server.closed.wait() if slow is drip else None
            return report

    with asyncio.Runner(loop_factory=make_loop) as runner:
        report = runner.run(scenario())

    failure = failure_of(report)
    assert failure.type == "request-timeout"
    assert "took longer than 100ms" in failure.message
    assert isinstance(report.outcome, Failed)
    assert report.outcome.retryable


async def test_a_large_body_that_is_never_read_does_not_hang() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(413))
        await writer.drain()
        await asyncio.Event().wait()

    async with Server(refuse) as server:
        report = await call_server(server, body="x" * 1_000_000)

    assert failure_of(report).http_status == 413


@both_loops
def test_a_stop_cancels_the_request_at_once(make_loop: MakeLoop) -> None:
    async def scenario() -> AttemptResult:
        async with Server(never) as server, asyncio.timeout(10):
            call = make_context({"url": server.url(), "timeout": "1h"}, task="http")
            running = asyncio.create_task(make_runner()(call))
            await server.connected.wait()
            call.stop.set(StopReason.CANCEL)
            return await running

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(scenario()).outcome == Stopped()


async def test_a_refused_connection_can_be_retried() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        report = await run({"url": f"http://127.0.0.1:{port}/"})

    failure = failure_of(report)
    assert failure.type == "network"
    assert failure.message.startswith(f"http://127.0.0.1:{port}: the connection failed: ")


async def test_300_calls_leave_no_descriptor_open() -> None:
    async with Server(answer(200, body=b"x")) as server:
        await call_server(server)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(15):
            await asyncio.gather(*(call_server(server) for _ in range(20)))
        async with asyncio.timeout(10):
            while server.is_busy:
                await server.gone()

        assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("response", [answer(200, body=b"x" * 100_000), b"SSH-2.0-OpenSSH\r\n"])
async def test_a_response_is_freed_without_the_collector(response: bytes) -> None:
    async with Server(response) as server:
        gc.collect()
        gc.disable()
        try:
            await call_server(server)
            kept = [each for each in gc.get_objects() if isinstance(each, _Incoming)]
        finally:
            gc.enable()

    assert not kept
