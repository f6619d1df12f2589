"""Asks several servers for leases at once, together for no more than the worker has room for.

The room is divided. What a server leaves of its share is for those that have not been asked yet. A
lease starts when the worker gets it, so once one server has given any, late ones are given up: what
they give after that starts again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from schedo.cluster.work_parts import PartResponse
from schedo.store.cluster import Member

# A server says after some 20 ms that it has no job, and has a start on disk some 10 ms later.
LATE_S = 0.25

AskServer = Callable[[Member, int], Awaitable[PartResponse | None]]


async def ask_each(
    members: Iterable[Member], find_room: Callable[[], int], ask: AskServer
) -> list[PartResponse]:
    """Return what the servers respond.

    find_room: returns how many leases the worker has room for. ask: asks one server for this many
    at most; None: it has not responded.
    """
    waiting = deque(members)
    asking: dict[asyncio.Future[PartResponse | None], int] = {}  # with the room of each
    found: list[PartResponse] = []
    try:
        while True:
            room = find_room() - sum(asking.values())
            while waiting and room > 0:
                share = -(-room // len(waiting))
                room -= share
                asking[asyncio.ensure_future(ask(waiting.popleft(), share))] = share
            has_lease = any(response.leases for response in found)
            if not asking or not await _wait(asking, LATE_S if has_lease else None):
                return found
            for each in [each for each in asking if each.done()]:
                del asking[each]
                response = each.result()
                if response is not None:
                    found.append(response)
    finally:
        for each in asking:
            each.cancel()
        # What each of them may have given is noted before the request of the worker ends.
        await asyncio.gather(*asking, return_exceptions=True)


async def _wait(
    asking: Iterable[asyncio.Future[PartResponse | None]], timeout_s: float | None
) -> bool:
    """Wait for the next response; return False if none comes in time."""
    done, _ = await asyncio.wait(asking, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)
