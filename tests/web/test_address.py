"""The address of a client."""

from __future__ import annotations

import asyncio
import socket
import struct

import uvloop

from schedo.web.credentials import find_address
from tests.passes import one_pass

RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: a close resets the connection


async def addresses(*, is_reset: bool) -> tuple[str, str]:
    """Return the address of a client while it is connected, and after the connection is closed.

    is_reset: the client has reset the connection before it is accepted.
    """
    loop = asyncio.get_running_loop()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        accepted, _ = server.accept()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
        connected = find_address(transport)
        transport.abort()
        for _ in range(2):  # then it is closed
            await one_pass()
    return connected, find_address(transport)


def test_a_client_that_was_gone_when_it_was_accepted_has_no_address() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(addresses(is_reset=False)) == ("127.0.0.1", "127.0.0.1")
        assert runner.run(addresses(is_reset=True)) == ("", "")
