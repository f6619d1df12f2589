"""A machine that starts no more threads."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest


@pytest.fixture
async def no_new_thread(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The machine refuses every new thread; the pause of a shortage is short."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("schedo.tasks.shortage.PAUSE_S", 0.01)
    with monkeypatch.context() as machine:
        machine.setattr(threading.Thread, "start", refuse)
        yield
