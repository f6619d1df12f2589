"""Garbage on the control socket ends its connection, and leaves no descriptor open."""

from __future__ import annotations

import os
import socket

import pytest

from schedo.handover import link as links
from schedo.handover.link import Link
from schedo.handover.messages import BadMessage, Message, ServeHttp, decode
from tests.handover.active import open_descriptors

DEEP = b'{"type":"servehttp","is_trusted":true,"x":' + b"[" * 60_000


@pytest.mark.parametrize(
    "data", [DEEP, b"[" * 60_000, b'{"type":"servehttp","x":' + b'{"a":' * 12_000, b"\xff\xfe"]
)
def test_garbage_is_no_message(data: bytes) -> None:
    with pytest.raises(BadMessage, match="no message"):
        decode(data)


async def receive(data: bytes) -> None:
    """Send four descriptors beside the data, and receive them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(ours)
    null = os.open("/dev/null", os.O_RDONLY)
    try:
        with theirs:
            socket.send_fds(theirs, [data], [null] * 4)
            await link.expect_descriptors(ServeHttp)
    finally:
        os.close(null)
        link.close()


async def test_the_descriptors_beside_garbage_are_closed() -> None:
    before = open_descriptors()

    with pytest.raises(BadMessage):
        await receive(DEEP)

    assert not open_descriptors() - before


async def test_the_descriptors_are_closed_whatever_is_wrong_with_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: bytes) -> Message:
        raise MemoryError

    monkeypatch.setattr(links, "decode", fail)
    before = open_descriptors()

    with pytest.raises(MemoryError):
        await receive(b'{"type":"servehttp","is_trusted":true}')

    assert not open_descriptors() - before
