"""The targets of http jobs: the refusal of private ones, and TLS."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Failed, Released
from tests.tasks.http.servers import FixedNames, Server, answer, call_server, make_runner, run
from tests.worker.calls import both_loops, failure_of, result_of

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
CERTIFICATE = Path(__file__).with_name("hook.test.pem")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::1]",
        "[::ffff:127.0.0.1]", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.0.0.192",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fec0::1]", "224.0.0.1", "0.0.0.0",
    ],
)  # fmt: skip
async def test_private_targets_fail_the_job_without_a_retry(host: str) -> None:
    async with Server(answer(200)) as server:
        report = await run({"url": f"http://{host}:{server.port}/"}, make_runner(allow=()))

    assert failure_of(report).type == "target-refused"
    assert isinstance(report.outcome, Failed)
    assert not report.outcome.retryable
    assert not server.connected.is_set()


async def test_the_log_of_a_refused_call_contains_no_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payload = {
        "url": "http://169.254.169.254:8080/latest/t0ken?key=s3cret#part",
        "headers": {"authorization": "Bearer s3cret"},
    }
    with caplog.at_level(logging.INFO, "schedo"):
        await run(payload, make_runner(allow=()))

    (line,) = [record.getMessage() for record in caplog.records]
    assert "may not call http://169.254.169.254:8080: " in line
    assert re.match(r"job [0-9A-Z]{13} \(queue default\) ", line)
    assert "t0ken" not in line
    assert "s3cret" not in line


async def test_an_attempt_that_gets_no_thread_for_its_lookup_is_released(
    no_new_thread: None,
) -> None:
    report = await run({"url": "http://localhost:1/"}, make_runner())

    assert report.outcome == Released()


async def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    names = FixedNames(mixed=["8.8.8.8", "127.0.0.1"])
    async with Server(answer(200)) as server:
        runner = make_runner(allow=(), resolve=names)
        report = await run({"url": f"http://mixed.test:{server.port}/"}, runner)

    assert failure_of(report).type == "target-refused"
    assert not server.connected.is_set()


async def test_the_vetted_address_is_called_without_a_second_lookup() -> None:
    names = FixedNames(hook=["127.0.0.1"])
    async with Server(answer(200)) as server:
        runner = make_runner(allow=("hook.test",), resolve=names)
        report = await run({"url": f"http://hook.test:{server.port}/"}, runner)

    assert result_of(report)["status"] == 200
    assert server.received[0].headers["host"] == f"hook.test:{server.port}"
    assert names.asked == 1


async def test_the_allow_list_can_name_one_port() -> None:
    async with Server(answer(200)) as open_one, Server(answer(200)) as other:
        runner = make_runner(allow=(f"127.0.0.1:{open_one.port}",))
        allowed = await run({"url": open_one.url()}, runner)
        refused = await run({"url": other.url()}, runner)

    assert result_of(allowed)["status"] == 200
    assert failure_of(refused).type == "target-refused"
    assert not other.connected.is_set()


async def test_the_next_address_is_tried_when_one_does_not_respond() -> None:
    async with Server(answer(200)) as server:
        runner = make_runner(
            allow=("127.0.0.0/8",), resolve=FixedNames(two=["127.0.0.9", "127.0.0.1"])
        )
        report = await run({"url": f"http://two.test:{server.port}/"}, runner)

    assert result_of(report)["status"] == 200


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = asyncio.open_connection

    async def open_connection(address: str, *place: Any, **options: Any) -> Any:
        if address == "127.0.0.9":
            await asyncio.Event().wait()
        return await connect(address, *place, **options)

    monkeypatch.setattr("asyncio.open_connection", open_connection)
    monkeypatch.setattr("schedo.tasks.http.client.CONNECT_S", 0.01)
    async with Server(answer(200)) as server:
        runner = make_runner(
            allow=("127.0.0.0/8",), resolve=FixedNames(two=["127.0.0.9", "127.0.0.1"])
        )
        report = await run({"url": f"http://two:{server.port}/", "timeout": "5s"}, runner)

    assert result_of(report)["status"] == 200


async def test_a_name_that_does_not_resolve_can_be_retried() -> None:
    async def fail(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    report = await run({"url": "http://none.test/"}, make_runner(resolve=fail))

    failure = failure_of(report)
    assert (failure.type, failure.message) == (
        "dns",
        "none.test cannot be resolved: Name or service not known",
    )
    assert isinstance(report.outcome, Failed)
    assert report.outcome.retryable


async def test_a_lookup_that_hangs_ends_with_the_timeout() -> None:
    async def hang(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    report = await run({"url": "http://a.test/", "timeout": 0.05}, make_runner(resolve=hang))

    assert failure_of(report).type == "request-timeout"


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(answer(200)) as server, Server(answer(200)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url())
        monkeypatch.setenv("http_proxy", proxy.url())
        monkeypatch.setenv("ALL_PROXY", proxy.url())
        report = await call_server(server)

    assert result_of(report)["status"] == 200
    assert not proxy.connected.is_set()


def make_server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@both_loops
@pytest.mark.parametrize(
    ("host", "is_trusted", "message"),
    [
        ("hook.test", True, None),
        ("hook.test", False, "self-signed certificate"),
        ("other.test", True, "Hostname mismatch"),
    ],
    ids=["trusted", "unknown", "wrong name"],
)
def test_a_certificate_that_is_not_trusted_fails_the_call(
    make_loop: MakeLoop, host: str, is_trusted: bool, message: str | None
) -> None:
    async def scenario() -> AttemptResult:
        names = FixedNames(hook=["127.0.0.1"], other=["127.0.0.1"])
        tls = ssl.create_default_context(cafile=str(CERTIFICATE)) if is_trusted else None
        async with Server(answer(200), tls=make_server_tls()) as server:
            runner = make_runner(resolve=names, tls=tls)
            return await run({"url": f"https://{host}:{server.port}/"}, runner)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        report = runner.run(scenario())

    if message is None:
        assert result_of(report)["status"] == 200
    else:
        assert failure_of(report).type == "tls"
        assert message in failure_of(report).message


async def test_https_to_a_server_without_tls_fails() -> None:
    async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with Server(speak_first) as server:
        report = await run({"url": f"https://127.0.0.1:{server.port}/"})

    assert failure_of(report).type == "tls"
