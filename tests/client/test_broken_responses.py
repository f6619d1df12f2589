"""A response that is late, cut or no HTTP is an error of the connection, also on a kept one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from schedo.client import Client, Unreachable
from tests.client.server import JOB_ID

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"id":"1","state":"s"}'


@contextmanager
def scripted_server(answers: Sequence[bytes], *, closes: bool) -> Iterator[str]:
    """Answer the requests of one connection with these bytes, then close it or be silent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    connection.recv(65_536)
                    connection.sendall(answer)
                if not closes:
                    ended.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(10)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "timed out"),
        (b"220 mail ready\r\n\r\n", "220 mail ready"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "timed out"),
    ],
    ids=["silent", "not HTTP", "half a body"],
)
def test_a_kept_connection_that_fails_is_unreachable(answer: bytes, reason: str) -> None:
    with (
        scripted_server([WHOLE, answer], closes=False) as url,
        Client(url, timeout=0.05) as client,
    ):
        client.get(JOB_ID)

        with pytest.raises(Unreachable, match=rf"broke .*{reason}"):
            client.get(JOB_ID)


@pytest.mark.parametrize("before", [[], [WHOLE]], ids=["new", "kept"])
def test_a_response_that_is_cut_is_unreachable(before: list[bytes]) -> None:
    cut = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"id":1'
    with scripted_server([*before, cut], closes=True) as url, Client(url) as client:
        for _ in before:
            client.get(JOB_ID)

        with pytest.raises(Unreachable, match="broke before the response arrived"):
            client.get(JOB_ID)


@pytest.mark.parametrize("start", [b"", WHOLE[:-22]], ids=["head", "body"])
def test_a_response_that_comes_byte_by_byte_has_the_time_limit_as_a_whole(start: bytes) -> None:
    given_up = threading.Event()

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(start or b"HTTP/1.1 200 OK\r\nName: ")
            for _ in range(20):
                connection.sendall(b" ")
                given_up.wait(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=[listener])
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        with Client(url, timeout=0.2) as client, pytest.raises(Unreachable, match="timed out"):
            client.get(JOB_ID)

        is_early = thread.is_alive()
        given_up.set()
        thread.join(10)
        assert is_early
