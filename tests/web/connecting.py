"""Raw connections to a real server, for tests of its HTTP parsing."""

from __future__ import annotations

import asyncio

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
