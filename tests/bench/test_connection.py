"""The HTTP client of the benches."""

from __future__ import annotations

import asyncio

import pytest

from bench.server.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
PLAIN = HEAD + b'content-length: 9\r\n\r\n{"n":123}'
CHUNKED = HEAD + b'transfer-encoding: chunked\r\n\r\n4\r\n{"n"\r\n5\r\n:123}\r\n0\r\n\r\n'


class Written(asyncio.Transport):
    """A transport that drops what is written."""

    def write(self, data: object) -> None:
        """Drop the data."""


@pytest.mark.parametrize("response", [PLAIN, CHUNKED], ids=["plain", "chunked"])
@pytest.mark.parametrize("size", [1, 7, 1000], ids="in parts of {}".format)
async def test_a_response_is_read_whole_in_parts_of_any_size(response: bytes, size: int) -> None:
    connection = Connection()
    connection.connection_made(Written())
    for _ in range(2):  # a connection carries one request after the other
        reply = connection.ask(b"")
        for at in range(0, len(response), size):
            assert not reply.done()
            connection.data_received(response[at : at + size])

        assert (await reply).json() == {"n": 123}
