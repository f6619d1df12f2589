"""Leases that come late to a child process that does not respond any more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Released
from schedo.core.model import LeaseKey
from schedo.protocol import frames
from schedo.worker.process.child_slots import ChildSlots
from schedo.worker.process.connection import FrameConnection
from tests.worker.site import HASTY, Site, write_to

# The check of a blocked process before the one that counts it as stalled.
LAST_CHECK = round(HASTY.stalled_s / HASTY.pulse_s)


class Times:
    """Until when the child may start each lease, and when the server releases it."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.start_by: dict[LeaseKey, float] = {}
        self.released_at: dict[LeaseKey, float] = {}
        send, report = FrameConnection.send, site.engine.report

        def note_sent(connection: Any, frame: Any) -> None:
            if isinstance(frame, frames.Leases):
                self.start_by.update({lease.key: frame.start_by for lease in frame.leases})
            send(connection, frame)

        def note_released(result: AttemptResult) -> None:
            if isinstance(result.outcome, Released):
                self.released_at[result.key] = time.monotonic()
            report(result)

        monkeypatch.setattr(FrameConnection, "send", note_sent)
        monkeypatch.setattr(site.engine, "report", note_released)


def load_payloads_late(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no payload until the process is about to count as stalled."""
    dispatcher = site.engine._loop.dispatcher
    load, adapt = dispatcher._load_payload, ChildSlots.adapt
    may_load, checks = asyncio.Event(), [None] * LAST_CHECK

    async def load_late(job_id: int) -> bytes:
        await may_load.wait()
        return await load(job_id)

    def count(slots: ChildSlots, sent: int, started: int) -> bool:
        del checks[:1]
        if not checks:
            may_load.set()
        return adapt(slots, sent, started)

    monkeypatch.setattr(dispatcher, "_load_payload", load_late)
    monkeypatch.setattr(ChildSlots, "adapt", count)


async def test_a_lease_is_released_only_when_its_blocked_process_cannot_start_it_any_more(
    hasty: Site, pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_payloads_late(hasty, monkeypatch)
    times = Times(hasty, monkeypatch)
    blocked, late = await hasty.submit_together(
        ("block", {"pipe": str(pipe)}), ("echo", {"text": "x" * 100_000})
    )

    ended = await hasty.end(late)
    await write_to(pipe, "unblocked")
    await hasty.end(blocked)

    [(key, at)] = times.released_at.items()
    assert ended["attempt"] == key.attempt + 1
    assert at > times.start_by[key]
