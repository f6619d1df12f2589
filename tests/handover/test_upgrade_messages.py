"""What an upgrade sends over the control socket: the request, its result, and HTTP connections."""

from __future__ import annotations

import asyncio
import os

import pytest

from schedo.handover import socket_file
from schedo.handover.client import connected, introduce, request_upgrade
from schedo.handover.http_way import HttpWay
from schedo.handover.link import LinkLost
from schedo.handover.messages import Activated, BadMessage, ServeHttp, UpgradeFailed, Welcome
from tests.handover.active import SCHEMA, Served, open_descriptors


async def test_an_operator_gets_the_result_of_an_upgrade(served: Served) -> None:
    activated = await request_upgrade(served.control_path, 1.0, 5.0)

    assert (activated.pid, activated.version, activated.took_ms) == (7, "2.0", 12.0)


async def test_an_operator_gets_the_reason_of_a_failure(served: Served) -> None:
    with pytest.raises(UpgradeFailed, match="the new process has failed"):
        await request_upgrade(served.control_path, 20.0, 5.0)


async def test_an_operator_is_told_where_to_look_if_the_server_dies(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(_: float) -> Activated:
        raise asyncio.CancelledError  # the connection ends

    monkeypatch.setattr(served.active, "upgrade", die)

    with pytest.raises(LinkLost, match=r"has ended during the upgrade; `schedo status` shows"):
        await request_upgrade(served.control_path, 1.0, 5.0)


@pytest.mark.parametrize(("is_trusted", "said"), [(True, b"trusted"), (False, b"client")])
async def test_the_old_process_opens_connections_to_the_new_one(
    served: Served, is_trusted: bool, said: bytes
) -> None:
    way = HttpWay(served.path, SCHEMA, "handover-7")
    for _ in range(2):  # over the same link
        reader, writer = await way.open(is_trusted=is_trusted)
        assert await reader.read() == said
        writer.close()
    way.close()


async def test_the_way_leads_to_the_server_that_follows(served: Served) -> None:
    way = HttpWay(served.path, SCHEMA, "handover-7")
    first, writer = await way.open(is_trusted=True)
    writer.close()
    await first.read()
    await served.socket.close()
    with pytest.raises(OSError, match="No such file"):
        await way.open(is_trusted=True)

    served.socket.open()
    reader, writer = await way.open(is_trusted=True)

    assert await reader.read() == b"trusted"
    writer.close()
    way.close()


async def test_the_server_hears_of_the_old_process_with_its_number_as_the_kernel_knows_it(
    served: Served,
) -> None:
    way = HttpWay(served.path, SCHEMA, "handover-7")

    _, writer = await way.open(is_trusted=True)

    assert served.active.predecessors == [(os.getpid(), "handover-7")]
    writer.close()
    way.close()


async def test_only_a_stream_socket_is_taken(served: Served) -> None:
    before = open_descriptors()
    for descriptors in ([], [os.open("/dev/null", os.O_RDONLY)]):
        async with connected(served.control_path) as link:
            await introduce(link, "predecessor", SCHEMA)
            link.send(ServeHttp(True), descriptors)
            for each in descriptors:
                os.close(each)
            with pytest.raises(BadMessage, match="beside a ServeHttp"):
                await link.expect(Welcome)

    async with asyncio.timeout(5):
        while open_descriptors() - before:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


async def test_a_server_that_was_replaced_leaves_its_socket_to_the_next(
    served: Served,
) -> None:
    path = served.control_path
    served.socket.leave()
    with pytest.raises(ConnectionRefusedError):
        socket_file.connect(path)

    served.socket.open()

    assert (await request_upgrade(path, 1.0, 5.0)).pid == 7
