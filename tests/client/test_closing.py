"""A client that is closed while a request of it is open."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from schedo import AsyncClient, Client
from tests.client.server import JOB_ID, job_record

LONG_S = 10.0


class SlowServer:
    """Responds to one request when the test wants it, and notes the end of its connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.has_request = threading.Event()
        self.may_respond = threading.Event()
        self.is_over = threading.Event()  # the client has closed the connection
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65_536)
            self.has_request.set()
            self.may_respond.wait(LONG_S)
            body = json.dumps(job_record()).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            if not connection.recv(65_536):
                self.is_over.set()

    def stop(self) -> None:
        self._listener.close()
        self._thread.join(LONG_S)


@pytest.fixture
def slow() -> Iterator[SlowServer]:
    server = SlowServer()
    yield server
    server.stop()


def test_the_connection_of_a_request_ends_with_it_after_the_close(slow: SlowServer) -> None:
    client = Client(slow.url)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client.get, JOB_ID)
        assert slow.has_request.wait(LONG_S)

        client.close()
        slow.may_respond.set()

        assert call.result(LONG_S).id == JOB_ID
    assert slow.is_over.wait(LONG_S)


async def test_the_connection_of_a_request_ends_with_it_after_the_close_with_asyncio(
    slow: SlowServer,
) -> None:
    client = AsyncClient(slow.url)
    call = asyncio.create_task(client.get(JOB_ID))
    assert await asyncio.to_thread(slow.has_request.wait, LONG_S)

    await client.close()
    slow.may_respond.set()

    assert (await call).id == JOB_ID
    assert await asyncio.to_thread(slow.is_over.wait, LONG_S)
