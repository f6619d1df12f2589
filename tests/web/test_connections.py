"""If clients do not read, the server closes the slowest connections."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from schedo.core.limits import CLAIMED_BYTES
from schedo.web.bytes_in_flight import BytesInFlight
from schedo.web.connection import Connection
from schedo.web.connections import Connections

KIB = 1_024
CLAIMS = sum(share for _, share in CLAIMED_BYTES)


class Wire:
    """A transport whose client reads only as many bytes as the test lets it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.unsent = 0
        self.is_aborted = False
        connection.connection_made(cast(asyncio.Transport, self))

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def write(self, data: bytes) -> None:
        self.unsent += len(data)
        self._connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def read(self, size: int) -> None:
        """Let the client read."""
        self.unsent -= size
        if not self.unsent:
            self._connection.resume_writing()

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


class Line:
    """Connections on such wires, in a time that the test sets."""

    def __init__(self, bytes_max: int = 1_000 * KIB) -> None:
        self.now = 1_000.0
        self.shared = Connections(100)
        self.account = self.shared.in_flight = BytesInFlight(CLAIMS + bytes_max)
        self.shared.loop = cast(Any, self)

    def time(self) -> float:
        return self.now

    def connect(self, answer: int = 0) -> tuple[Connection, Wire]:
        connection = Connection(self.shared)
        wire = Wire(connection)
        if answer:
            connection.write(b"a" * answer)
        return connection, wire

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for connection in list(self.shared.all):
            connection.check_deadline(self.now)
        self.shared.shed()


def test_a_client_that_reads_nothing_is_cut_off_after_30_seconds() -> None:
    line = Line()
    _, wire = line.connect(100 * KIB)

    line.wait(29)
    assert not wire.is_aborted
    line.wait(2)

    assert wire.is_aborted


@pytest.mark.parametrize(("a_second", "stays"), [(2_048, True), (1_024, True), (1, False)])
def test_a_client_that_reads_a_kibibyte_a_second_is_not_closed(a_second: int, stays: bool) -> None:
    line = Line()
    _, wire = line.connect(500 * KIB)

    for _ in range(40):
        wire.read(a_second)
        line.wait(1)

    assert wire.is_aborted is not stays


def test_the_slowest_connection_is_closed_when_memory_is_short() -> None:
    line = Line(bytes_max=1_000 * KIB)
    _, slow = line.connect(400 * KIB)
    line.wait(1)
    _, brisk = line.connect(400 * KIB)
    line.wait(1)
    brisk.read(200 * KIB)

    line.connect(600 * KIB)

    assert (slow.is_aborted, brisk.is_aborted) == (True, False)
    assert line.account.by_connections <= 1_000 * KIB


def test_a_client_that_had_no_time_to_read_is_not_closed() -> None:
    line = Line(bytes_max=100 * KIB)
    _, first = line.connect(400 * KIB)
    _, second = line.connect(400 * KIB)
    assert (first.is_aborted, second.is_aborted) == (False, False)

    second.read(400 * KIB)
    line.wait(0.5)

    assert (first.is_aborted, second.is_aborted) == (True, False)
    assert line.account.by_connections == 0


def test_a_closed_connection_has_no_bytes_in_flight() -> None:
    line = Line()
    connection, _ = line.connect(400 * KIB)
    assert line.account.by_connections == 400 * KIB

    connection.connection_lost(None)

    assert (line.account.by_connections, line.shared.all) == (0, set())
