"""The places of a pool of child processes, which it keeps filled."""

from __future__ import annotations

import os
import signal

import pytest

from schedo.child_process import ChildHandle
from tests.worker.site import Site


async def test_a_process_is_replaced_though_no_thread_can_be_started_at_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, shortages = ChildHandle._watch, [RuntimeError("can't start new thread")]

    def fail_once(process: ChildHandle) -> None:
        if shortages:
            raise shortages.pop()
        watch(process)

    monkeypatch.setattr(ChildHandle, "_watch", fail_once)
    os.kill((await site.run("where"))["result"], signal.SIGKILL)

    assert (await site.run("add", a=1, b=2))["result"] == 3
    assert not shortages
