"""The server's heartbeat: called while the server is ready, and never in its way."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from schedo.config import load_config
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.tasks.http import heartbeat
from schedo.tasks.http.heartbeat import Heartbeat, beating
from tests.tasks.http.servers import Server, answer

MINUTE = 60_000_000


def make(url: str, *, is_ready: bool = True, interval_us: int = MINUTE) -> Heartbeat:
    return Heartbeat(url, interval_us, lambda: is_ready)


async def test_the_url_is_called_once_each_interval_while_the_server_is_ready() -> None:
    ready = iter([True, False, True])
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise asyncio.CancelledError

    async with Server(answer()) as server:
        beating = Heartbeat(server.url("/ping/uuid?x=1"), MINUTE, lambda: next(ready), sleep=sleep)
        with pytest.raises(asyncio.CancelledError):
            await beating.run()

    assert [each.line for each in server.received] == ["GET /ping/uuid?x=1 HTTP/1.1"] * 2
    assert server.received[0].headers["user-agent"].startswith("schedo/")
    assert [round(wait / 60) for wait in waits] == [1, 2, 3]  # the clock stands still here


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (answer(500), "the status is 500, not 2xx"),
        (answer(302, "location: http://elsewhere.test/\r\n"), "the status is 302, not 2xx"),
        (b"nonsense\r\n\r\n", ""),
    ],
)
async def test_a_failed_call_is_logged_once_without_the_path_of_the_url(
    response: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Server(response) as server:
        beating = make(server.url("/secret"))
        for _ in range(3):
            await beating.call()

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"http://127.0.0.1:{server.port} cannot be called: {problem}" in record.message
    assert "secret" not in caplog.text


async def test_a_long_outage_is_logged_again_each_hour_and_its_end_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    responses = iter([answer(500)] * 61 + [answer()] * 2)

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(responses))

    async with Server(respond) as server:
        beating = make(server.url())
        for _ in range(63):
            await beating.call()

    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "answers again" in caplog.records[2].message


async def test_a_url_that_does_not_answer_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "TIMEOUT_S", 0.05)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with Server(hang) as server:
        await make(server.url()).call()

    assert "it takes too long" in caplog.text


async def test_a_host_without_an_address_and_a_closed_port_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Server(answer()) as server:
        closed = server.url()
    await make(closed).call()
    await make("http://no-such-host.invalid/").call()

    assert "cannot be called" in caplog.records[0].message
    assert "the host cannot be resolved" in caplog.records[1].message


async def test_the_calls_last_as_long_as_the_block() -> None:
    async with Server(answer()) as server, beating(server.url(), MINUTE, lambda: True):
        await server.connected.wait()

    assert len(server.received) <= 1


def test_a_heartbeat_comes_at_most_once_a_second() -> None:
    with pytest.raises(Invalid, match=r"heartbeat_interval \(flag .*at least 1s"):
        check_config(load_config({"heartbeat_interval": "500ms"}, {}, []))


@pytest.mark.parametrize(
    ("url", "problem"),
    [("monitor.test", "it must begin with http://"), ("http://ann@monitor.test/", "user name")],
)
def test_a_wrong_url_is_refused_at_the_start(url: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        load_config({"heartbeat_url": url}, {}, [])


def test_the_error_of_a_wrong_url_does_not_show_it() -> None:
    with pytest.raises(Invalid) as caught:
        load_config({"heartbeat_url": "https://ann:hunter2@monitor.test/ping/5f2b"}, {}, [])

    assert str(caught.value).startswith("heartbeat_url (flag --heartbeat-url): it must not contain")
    assert "hunter2" not in str(caught.value)
    assert "5f2b" not in str(caught.value)


async def test_the_calls_go_on_when_the_machine_could_start_no_thread_for_a_look_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with Server(answer()) as server:
        beating = make(server.url("/ping").replace("127.0.0.1", "localhost"))
        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", refuse)
            await beating.call()
        await beating.call()

    assert "can't start new thread" in caplog.text
    assert len(server.received) == 1
