"""The new process of an upgrade, as the old one sees it: it starts it, talks to it, and kills it.

The new process runs the same command with the code that is on the disk now. Until it has read its
settings, what it writes to the standard error goes to a file without a name: if it fails so early,
the last lines of that are the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import TypeVar

from schedo.child_process import describe_exit, write_unnamed_file
from schedo.handover.command import VARIABLE, Command
from schedo.handover.link import Link, LinkLost
from schedo.handover.messages import BadMessage, Failed, Message, UpgradeFailed
from schedo.silence_timer import SilenceTimer

M = TypeVar("M")

_REASON_BYTES_MAX = 2_000
_ENDS_WITHIN_S = 2.0  # after it has closed its connection
_END_CHECK_S = 0.002


class Successor:
    """A new process, from its start until it is active or has failed."""

    def __init__(self, process: subprocess.Popen[bytes], link: Link, errors: int) -> None:
        self._process = process
        self._link = link
        self._errors = errors

    @classmethod
    def start(cls, command: Command) -> Successor:
        """Start the new process; raise OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
            given.callback(theirs.close)
            kept.callback(ours.close)
            errors = write_unnamed_file(b"")
            kept.callback(os.close, errors)
            stderr = os.dup(2)
            given.callback(os.close, stderr)
            descriptors = (theirs.fileno(), stderr)
            process = subprocess.Popen(
                command.arguments,
                env={**command.environment, VARIABLE: ",".join(map(str, descriptors))},
                cwd=command.directory if os.path.isdir(command.directory) else None,
                stdin=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=descriptors,
            )
            kept.pop_all()
        return cls(process, Link(ours), errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send the message; raise UpgradeFailed if the process has ended."""
        try:
            self._link.send(message, descriptors)
        except LinkLost as error:
            raise UpgradeFailed(f"the new process has ended: {error}") from error

    async def expect(self, kind: type[M]) -> M:
        """Return the next message, of this kind; raise UpgradeFailed with the reason."""
        try:
            message = await self._link.receive()
        except LinkLost:
            raise UpgradeFailed(await self._find_reason()) from None
        except BadMessage as error:
            raise UpgradeFailed(f"the new process does not speak this protocol: {error}") from error
        return _check_kind(message, kind)

    async def expect_last(self, kind: type[M], silence_s: float) -> M:
        """Return the last message of the process; raise UpgradeFailed, or TimeoutError.

        silence_s: within which it comes; pauses of this process do not count. After a TimeoutError
        the other process cannot send it any more, so both know how the upgrade has ended.
        """
        silence = asyncio.get_running_loop().create_future()
        timer = SilenceTimer(silence_s, lambda: silence.set_result(None))
        expecting = asyncio.ensure_future(self.expect(kind))
        try:
            await asyncio.wait((expecting, silence), return_when=asyncio.FIRST_COMPLETED)
            if expecting.done():
                return expecting.result()
            return self._take_late(kind)
        finally:
            timer.cancel()
            expecting.cancel()
            await asyncio.gather(expecting, return_exceptions=True)

    def _take_late(self, kind: type[M]) -> M:
        """Return the message if it has come, but was not read yet; else raise TimeoutError."""
        try:
            message = self._link.receive_last()
        except BadMessage as error:
            raise UpgradeFailed(f"the new process does not speak this protocol: {error}") from error
        if message is None:
            raise TimeoutError
        return _check_kind(message, kind)

    async def _find_reason(self) -> str:
        """Return how the process has ended, and the last lines that it has written."""
        try:
            async with asyncio.timeout(_ENDS_WITHIN_S):
                status = await self._wait_ended()
        except TimeoutError:
            return "the new process has closed its connection"
        size = os.fstat(self._errors).st_size
        begin = max(0, size - _REASON_BYTES_MAX)
        text = os.pread(self._errors, size - begin, begin).decode(errors="replace").strip()
        ended = describe_exit(status)
        return f"the new process has failed: {ended}" + (f"; it wrote: {text}" if text else "")

    async def kill(self) -> None:
        """Kill the process, and return when it has ended and so holds nothing any more."""
        self._process.kill()
        await self._wait_ended()
        self.close()

    async def _wait_ended(self) -> int:
        """Return the exit status of the process; a thread might be refused by the system."""
        while (status := self._process.poll()) is None:  # noqa: ASYNC110  # no event
            await asyncio.sleep(_END_CHECK_S)
        return status

    def close(self) -> None:
        """Close the link and the file; the process lives on."""
        self._link.close()
        os.close(self._errors)


def _check_kind(message: Message, kind: type[M]) -> M:
    if isinstance(message, Failed):
        raise UpgradeFailed(message.reason)
    if not isinstance(message, kind):
        raise UpgradeFailed(f"the new process sent an unexpected {type(message).__name__}")
    return message
