"""A lease that comes in the moment in which its child process ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.core.leases import Lease
from schedo.core.model import PLAIN, LeaseKey, Trigger
from schedo.worker.process.supervisor import ChildSupervisor
from tests.worker.calls import end_pass
from tests.worker.site import Site

LEASE = Lease(LeaseKey(1, 1, 1), "w", "echo", "default", b"{}", PLAIN, 0, Trigger.SUBMIT, 0)


async def test_a_lease_of_the_pass_in_which_its_child_ends_is_not_sent_to_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    (child,) = site.children._children
    end_held = ChildSupervisor._end_held

    def start_and_end(ending: ChildSupervisor, loss: str) -> None:
        if ending is child:
            child.start(LEASE)
        end_held(ending, loss)

    monkeypatch.setattr(ChildSupervisor, "_end_held", start_and_end)

    child.terminate()
    await child.gone.wait()
    await end_pass()

    assert faults == []
