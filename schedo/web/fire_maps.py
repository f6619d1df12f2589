"""The fires of all schedules, computed at most once a minute for each range of time."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from schedo.core.fire_map import RuleUsers, map_fires
from schedo.core.limits import SECOND
from schedo.core.model import Rule
from schedo.engine.engine import Engine
from schedo.engine.sharing import in_steps
from schedo.protocol.fires import FireMapRequest, FireMapResponse

SCHEDULES_MAX = 20_000  # the map leaves out the others
_RULES_AT_ONCE = 250  # in one read of the store
_KEPT_US = 60 * SECOND
_KEPT_MAX = 4


class KnownRules(NamedTuple):
    """The rules of the schedules that are not paused."""

    users: dict[Rule, RuleUsers]
    schedules: int
    is_complete: bool  # no schedule was left out


async def load_rules(engine: Engine, except_for: str | None = None) -> KnownRules:
    """Return the rules of all schedules but one."""
    users: dict[Rule, RuleUsers] = {}
    count, after = 0, 0
    while count < SCHEDULES_MAX:
        found = await engine.store.list_rules(after, _RULES_AT_ONCE)
        if not found:
            return KnownRules(users, count, True)
        for schedule in found:
            if schedule.name != except_for:
                users.setdefault(schedule.rule, RuleUsers()).add(schedule.name)
                count += 1
        after = found[-1].id
    return KnownRules(users, count, False)


class FireMaps:
    """The last responses, by their requests; one is computed at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._kept: dict[FireMapRequest, tuple[int, bytes]] = {}

    async def get(self, engine: Engine, wanted: FireMapRequest) -> bytes:
        """Return the response to the request, at most a minute old, as JSON."""
        async with self._turn:
            now = engine.clock.now()
            computed_at, body = self._kept.get(wanted, (now - _KEPT_US, b""))
            if now - computed_at >= _KEPT_US:
                self._kept.pop(wanted, None)
                body = await _compute(engine, wanted, now)
                if len(self._kept) == _KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
                self._kept[wanted] = now, body
            return body


async def _compute(engine: Engine, wanted: FireMapRequest, now: int) -> bytes:
    known = await load_rules(engine)
    found = await in_steps(map_fires(known.users, wanted.span, wanted.width, wanted.limit))
    response = await in_steps(
        FireMapResponse.of(
            wanted, found, now, schedules=known.schedules, complete=known.is_complete
        )
    )
    return msgspec.json.encode(response)
