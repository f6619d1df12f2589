"""A connection that has ended, in words for the log of a standby."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator

import pytest

from schedo.handover.link import Link, LinkLost
from schedo.handover.messages import Ping

ENDED = "^the other process has ended, or has closed the connection$"


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Link, Link]]:
    ours, theirs = map(Link, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    yield ours, theirs
    ours.close()
    theirs.close()


def send_many(link: Link) -> None:
    for number in range(100_000):
        link.send(Ping(number))


async def test_one_that_the_other_process_has_closed_takes_nothing_and_brings_nothing(
    ends: tuple[Link, Link],
) -> None:
    ours, theirs = ends
    theirs.close()

    with pytest.raises(LinkLost, match=ENDED):
        ours.send(Ping(1))
    with pytest.raises(LinkLost, match=ENDED):
        await ours.receive()


async def test_one_that_was_reset_has_ended(ends: tuple[Link, Link]) -> None:
    ours, theirs = ends
    ours.send(Ping(1))  # it is not read
    theirs.close()

    with pytest.raises(LinkLost, match=ENDED):
        await ours.receive()


async def test_a_process_that_reads_nothing_is_not_one_that_has_ended(
    ends: tuple[Link, Link],
) -> None:
    ours, _ = ends

    with pytest.raises(LinkLost, match=r"^the other process leaves messages unread$"):
        send_many(ours)


async def test_any_other_error_is_named(
    ends: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = ends

    def fail() -> tuple[bytes, list[int]]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ours, "_receive_now", fail)

    with pytest.raises(LinkLost, match=r"^the connection has failed: Input/output error$"):
        async with asyncio.timeout(5):
            await ours.receive()
