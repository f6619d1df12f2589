"""The room of a child process for large payloads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.worker.process import payload_room
from schedo.worker.process.payload_room import HELD_BYTES_MAX, PayloadRoom
from tests.worker.calls import make_context
from tests.worker.site import LONG_S, serving


def hold(room: PayloadRoom, size: int) -> int:
    lease = msgspec.structs.replace(make_context(None).lease, payload=b"x" * size)
    return room.hold(lease)


def test_a_child_has_no_room_while_it_holds_many_bytes_of_payloads() -> None:
    room = PayloadRoom()

    first, second = hold(room, HELD_BYTES_MAX - 5_000), hold(room, 5_000)
    was_full = not room.event.is_set()
    room.release(second)

    assert (first, second, was_full) == (HELD_BYTES_MAX - 5_000, 5_000, True)
    assert room.event.is_set()


def test_small_payloads_take_no_room() -> None:
    assert hold(PayloadRoom(), PAYLOAD_INLINE_BYTES_MAX) == 0


def test_a_child_has_no_room_while_it_does_not_read() -> None:
    room = PayloadRoom()

    room.note_reading(False)
    was_full = not room.event.is_set()
    room.note_reading(True)

    assert was_full
    assert room.event.is_set()


def test_a_retired_child_takes_the_leases_that_wait_for_room() -> None:
    room = PayloadRoom()
    room.note_reading(False)

    room.retire()
    hold(room, HELD_BYTES_MAX)

    assert room.event.is_set()


async def test_jobs_with_large_payloads_run_though_their_child_holds_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_room, "HELD_BYTES_MAX", 150_000)
    text = "x" * 100_000
    async with serving(tmp_path, slots=1, async_slots=50) as site, asyncio.timeout(LONG_S):
        jobs = [await site.submit("echo", text=text) for _ in range(10)]
        results = [(await site.end(job))["result"] for job in jobs]

    assert results == [text] * 10
