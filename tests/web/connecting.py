"""Raw connections to a real server, for tests of its HTTP parsing."""

from __future__ import annotations

import asyncio
from functools import partial

from schedo.web.forwarding import Forwarder
from schedo.web.server import HttpServer
from tests.web.world import World

Served = tuple[World, HttpServer, int]
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


async def talk(port: int, *pieces: bytes, read_to_end: bool = True) -> bytes:
    """Send the pieces, each in its own segment, and return all received bytes until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read(-1 if read_to_end else 65_536)
    except (ConnectionResetError, BrokenPipeError):
        return await reader.read()
    finally:
        writer.close()


async def open_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def connected(server: HttpServer, count: int = 1) -> None:
    """Return when the server has this number of connections."""
    async with asyncio.timeout(5):
        while len(server.connections) != count:
            await turn()


async def turn() -> None:
    """Let the loop poll its sockets once."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.001, done.set_result, None)
    await done


def post(body: bytes, *, path: bytes = b"/v1/jobs") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def respond(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    """Return the status of a response, whether the connection closes, and the body."""
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        body = await reader.readexactly(length)
    return int(head.split()[1]), b"connection: close" in head, body


def forwarder(next_served: Served) -> Forwarder:
    return Forwarder(partial(asyncio.open_connection, "127.0.0.1", next_served[2]))


async def waiting(http: HttpServer) -> None:
    """Return when a request waits for its job."""
    while not any(connection.active for connection in http.connections):
        await turn()
    for _ in range(20):
        await turn()
