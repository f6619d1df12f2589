"""Captures the output of commands: keeps the first and the last bytes, in bounded memory.

A command never waits for its reader, except while the file for the complete output is behind. An
error of that file (a full disk) ends the file, not the job; the job's result has a note about it.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import struct
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from schedo.core.leases import CapturedOutput
from schedo.tasks.head_and_tail import HeadAndTail
from schedo.tasks.threads import call_in_some_thread

_READ_BYTES = 4_096  # small enough for malloc's arena; most commands write little
_READ_BYTES_MAX = 65_536  # the size of a pipe; used after the first full read
_FILE_BEHIND_BYTES_MAX = 1_048_576

Stream = Literal["stdout", "stderr"]


class OutputFile:
    """A file for a complete stream, written in order by a thread; made with the first output."""

    def __init__(self, path: Path, path_if_taken: Path | None = None) -> None:
        self.path = path
        self._path_if_taken = path_if_taken
        self.note: str | None = None  # the error that ended the file
        self.on_room: Callable[[], None] = lambda: None
        self._descriptor: int | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def is_behind(self) -> bool:
        return self._pending_bytes > _FILE_BEHIND_BYTES_MAX

    def write(self, data: bytes) -> None:
        """Queue the bytes; after an error they are dropped."""
        if self.note is not None:
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_pending())

    async def close(self) -> None:
        """Wait until everything is written, or has failed."""
        self._is_closing = True
        if self._writing is None:
            self._close_descriptor()
        else:
            await asyncio.shield(self._writing)  # it closes the descriptor when its thread is done

    def abandon(self) -> None:
        """Drop unwritten bytes, and close the file when the thread no longer uses it."""
        self._is_closing = True
        self._pending.clear()
        if self._writing is None:
            self._close_descriptor()

    async def _write_pending(self) -> None:
        while self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            try:
                await call_in_some_thread(functools.partial(self._append, data))
            except OSError as error:
                self.note = f"{self.path.name} is incomplete: {error.strerror}"
                self._pending.clear()
            self._pending_bytes = sum(map(len, self._pending))
            self.on_room()
        self._writing = None
        if self._is_closing:
            self._close_descriptor()

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = self._create()
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def _create(self) -> int:
        try:
            return _create(self.path)
        except FileExistsError:
            if self._path_if_taken is None:
                raise
            self.path = self._path_if_taken
            return _create(self.path)

    def _close_descriptor(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _create(path: Path) -> int:
    # The directory belongs to the operator, but a job may run as the same user and put a link or a
    # FIFO there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


class PipeReader:
    """The read end of a command's pipe; pass write_end to the command, then call start()."""

    def __init__(self, stream: Stream, file: OutputFile | None = None) -> None:
        self.stream: Stream = stream
        self.file = file
        self.kept = HeadAndTail()
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()  # all writers have closed it
        self._read_bytes = _READ_BYTES
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._is_reading = False
        if file is not None:
            file.on_room = self._resume

    def start(self) -> None:
        """Close this process's copy of the write end and start to read."""
        os.close(self.write_end)
        self.write_end = -1
        self._resume()

    def drain(self) -> None:
        """Read the bytes in the pipe now, and no more: a background process may keep writing."""
        if self._read_end < 0:
            return
        waiting = struct.unpack("i", fcntl.ioctl(self._read_end, termios.FIONREAD, b"\0\0\0\0"))[0]
        while waiting > 0 and (count := self._read()):
            waiting -= count

    def close(self) -> None:
        """Stop reading; a process that still writes gets SIGPIPE."""
        self._pause()
        for descriptor in (self._read_end, self.write_end):
            if descriptor >= 0:
                os.close(descriptor)
        self._read_end = self.write_end = -1
        if not self.ended.done():
            self.ended.set_result(None)

    def capture(self) -> CapturedOutput:
        """Return the kept bytes of the stream."""
        kept = self.kept
        return CapturedOutput(self.stream, kept.head, kept.tail, kept.total_bytes)

    def _read(self) -> int:
        try:
            data = os.read(self._read_end, self._read_bytes)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        if len(data) == self._read_bytes:
            self._read_bytes = _READ_BYTES_MAX
        self.kept.feed(data)
        if self.file is not None:
            self.file.write(data)
        return len(data)

    def _on_readable(self) -> None:
        self._read()
        if self.file is not None and self.file.is_behind:
            self._pause()

    def _resume(self) -> None:
        if self._read_end >= 0 and not self._is_reading:
            self.loop.add_reader(self._read_end, self._on_readable)
            self._is_reading = True

    def _pause(self) -> None:
        if self._is_reading:
            self.loop.remove_reader(self._read_end)
            self._is_reading = False
