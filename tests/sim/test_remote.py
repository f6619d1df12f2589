"""What a simulated remote worker concludes from a response."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from schedo.core.model import LeaseKey
from schedo.core.worker_messages import PollResponse
from schedo.errors import StoreError
from tests.sim.remote import RemoteWorker
from tests.sim.trace import Kept, Revoked

KEY = LeaseKey(7, 1, 1)


class Setting:
    """A worker whose server has died before the start of its attempt was on disk."""

    def __init__(self) -> None:
        self.records: list[object] = []
        world: Any = SimpleNamespace(
            connections=0,
            disk=SimpleNamespace(begun=set(), ended=set()),
            random=Random(1),
            record=lambda kind, *what: self.records.append(kind),
        )
        self.worker = RemoteWorker(world, 0)
        self.worker.running[KEY] = cast(Any, None)
        self.worker.note_death()
        self.records.clear()

    def respond(self, failure: StoreError | None = None, **fields: Any) -> list[object]:
        """Let the next server respond; return what the worker records."""
        server: Any = SimpleNamespace(
            engine=SimpleNamespace(_loop=SimpleNamespace(failure=failure))
        )
        before = len(self.records)
        self.worker._take(server, PollResponse(**fields), [])
        return self.records[before:]


def test_a_response_that_does_not_revoke_a_doubted_attempt_lets_it_go_on() -> None:
    setting = Setting()

    assert [setting.respond(), setting.respond()] == [[Kept], []]


def test_the_empty_response_of_a_server_that_fails_decides_nothing() -> None:
    setting = Setting()

    assert setting.respond(failure=StoreError("it flickered")) == []
    assert setting.respond(revoked=[KEY]) == [Revoked]
