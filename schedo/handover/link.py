"""A connection of the control socket: whole messages with descriptors, in both directions.

The socket keeps the bounds of messages, so there are no halves: a message that is longer than the
limit, no JSON or of an unknown type ends the connection. Descriptors beside a message that takes
none are closed, and end it too.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from schedo.handover.messages import (
    DESCRIPTORS_MAX,
    MESSAGE_BYTES_MAX,
    BadMessage,
    Message,
    Refused,
    decode,
    encode,
)

M = TypeVar("M")
_CREDENTIALS = struct.Struct("3i")  # ucred of unix(7): pid, uid, gid
_INTEGER_BYTES = 4


class LinkLost(ConnectionError):
    """The connection has ended, or the peer does not read."""


class LinkRefused(BadMessage):
    """The server refuses this client, and will refuse it again."""

    code = "refused"


class Peer(NamedTuple):
    """The process at the other end when it connected or listened, as the kernel knows it."""

    pid: int  # 0: it is not visible from here, as in another container
    uid: int


class Link:
    """One end of a connection; the owner closes it."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._readable: asyncio.Future[None] | None = None
        sock.setblocking(False)
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        self.peer = Peer(pid, uid)

    def close(self) -> None:
        """Close the connection, which ends a receive with LinkLost; harmless if it is closed."""
        if self._readable is not None:
            self._loop.remove_reader(self._socket.fileno())
            _wake(self._readable)
        self._socket.close()

    @property
    def is_alive(self) -> bool:
        """Whether the peer has not closed the connection, and has sent nothing."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send the message at once; raise LinkLost if the peer is gone or does not read."""
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))]
        try:
            self._socket.sendmsg([encode(message)], beside if descriptors else [])
        except OSError as error:
            raise _lost(error) from error

    async def receive(self) -> Message:
        """Return the next message; raise BadMessage, also for one with descriptors, or LinkLost."""
        data, descriptors = await self._receive()
        close_all(descriptors)
        if descriptors:
            raise BadMessage("there are descriptors beside a message that takes none")
        return decode(data)

    def receive_last(self) -> Message | None:
        """Refuse all further messages; return the next one of those that have come, or None.

        The peer notices it as LinkLost when it sends the next one, while `is_alive` stays true.
        """
        try:
            self._socket.shutdown(socket.SHUT_RD)
            data, descriptors = self._receive_now()
        except OSError:  # it has ended, too
            return None
        close_all(descriptors)
        return decode(data)

    async def expect(self, kind: type[M]) -> M:
        """Return the next message, which must be of this kind; raise as receive does."""
        return _check_kind(await self.receive(), kind)

    async def expect_descriptors(self, kind: type[M]) -> tuple[M, list[int]]:
        """Return the next message, of this kind, and the descriptors, which the caller owns."""
        data, descriptors = await self._receive()
        try:
            return _check_kind(decode(data), kind), descriptors
        except BaseException:
            close_all(descriptors)
            raise

    async def _receive(self) -> tuple[bytes, list[int]]:
        while True:
            try:
                return self._receive_now()
            except BlockingIOError:
                await self._wait_readable()
            except OSError as error:
                raise _lost(error) from error

    def _receive_now(self) -> tuple[bytes, list[int]]:
        room = socket.CMSG_SPACE(DESCRIPTORS_MAX * _INTEGER_BYTES)
        data, ancillary, flags, _ = self._socket.recvmsg(
            MESSAGE_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC
        )
        descriptors = _find_descriptors(ancillary)
        if data and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            return data, descriptors
        close_all(descriptors)
        if data:
            raise BadMessage("the message is too long, or has too many descriptors")
        raise ConnectionResetError

    async def _wait_readable(self) -> None:
        self._readable = self._loop.create_future()
        self._loop.add_reader(self._socket.fileno(), _wake, self._readable)
        try:
            await self._readable
        finally:
            self._readable = None
            if self._socket.fileno() >= 0:
                self._loop.remove_reader(self._socket.fileno())


def close_all(descriptors: Iterable[int]) -> None:
    """Close the descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def _check_kind(message: Message, kind: type[M]) -> M:
    if isinstance(message, Refused):
        raise LinkRefused(message.reason)
    if not isinstance(message, kind):
        raise BadMessage(f"a message {type(message).__name__} does not belong here")
    return message


def _lost(error: OSError) -> LinkLost:
    """Return the error as an operator can read it in a log."""
    if isinstance(error, BlockingIOError):
        return LinkLost("the other process leaves messages unread")
    if isinstance(error, BrokenPipeError | ConnectionResetError):
        return LinkLost("the other process has ended, or has closed the connection")
    return LinkLost(f"the connection has failed: {error.strerror}")


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _find_descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    found: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            count = len(data) // _INTEGER_BYTES
            found += struct.unpack_from(f"{count}i", data)
    return found
