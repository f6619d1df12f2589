"""What happens to the servers of a run: kills, upgrades, deaths at steps, and SIGSTOP."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from functools import partial

from schedo.handover.client import read_status
from tests.e2e.takeover.evidence import Kill
from tests.e2e.takeover.plan import Outcome
from tests.e2e.takeover.processes import Servers
from tests.e2e.takeover.stepped import SteppedServer
from tests.e2e.takeover.stuck import stop_and_be_killed, stop_and_continue
from tests.e2e.takeover.upgraded import UpgradedServer

WARM_PART = 0.9  # of the kills wait for a warm standby; the others for one that has connected


class Incidents:
    """The incidents of one run, one after the other at uniform instants."""

    def __init__(self, servers: Servers, outcome: Outcome) -> None:
        self._servers = servers
        self._outcome = outcome
        self._plan = outcome.plan
        self._random = random.Random(outcome.plan.seed)

    async def carry_out(self) -> None:
        """Let all happen that the plan says, until it is done or its time is over."""
        deadline = time.monotonic() + self._plan.limit_s
        for happen in self._all():
            if time.monotonic() > deadline:
                break
            await happen()
        await asyncio.sleep(self._plan.quiet_s)

    def _all(self) -> Iterator[Callable[[], Awaitable[None]]]:
        has_turns = self._plan.standby and not self._plan.only_active
        for number in range(self._plan.kills):
            yield partial(self._kill, "standby" if has_turns and number % 2 else "active")
        yield from [self._upgrade] * self._plan.upgrades
        yield from [self._stop] * self._plan.stops
        if isinstance(self._servers, SteppedServer):
            for process, step in self._servers.rounds(self._plan.steps):
                yield partial(self._die_at, self._servers, process, step)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0, self._plan.pause_s))

    async def _kill(self, what: str) -> None:
        await self._servers.wait_standby(warm=self._random.random() < WARM_PART)
        await self._pause()
        kill = await self._servers.kill(what)
        if kill is not None and what == "active" and kill.is_warm and not self._plan.failpoints:
            await self._note_phases(kill)

    async def _note_phases(self, kill: Kill) -> None:
        """Note how long each phase of a warm take-over took."""
        takeover = (await read_status(f"{self._servers.store}.ctl")).last_takeover
        if takeover is None:  # a server that a supervisor has restarted
            return
        steps_s = {step: took_ms / 1_000 for step, took_ms in takeover.steps_ms.items()}
        opened_at = datetime.fromisoformat(takeover.at).timestamp() - time.time() + time.monotonic()
        locked_at = opened_at - steps_s["wake"]
        phases_s = {"kill to lock": locked_at - kill.at, **steps_s}
        for phase, took_s in phases_s.items():
            self._outcome.times_s.setdefault(f"  {phase}", []).append(took_s)

    async def _upgrade(self) -> None:
        await self._pause()
        assert isinstance(self._servers, UpgradedServer), "the plan has no kills"
        made = await self._servers.upgrade()
        self._outcome.upgrades.append(made.output.strip())
        if made.code:
            raise RuntimeError(f"{made}; the log: {self._servers.log()[-4000:]}")

    async def _die_at(self, servers: SteppedServer, process: str, step: str) -> None:
        await self._pause()
        await servers.die_at(process, step)

    async def _stop(self) -> None:
        await self._pause()
        is_killed = self._plan.is_killed_stuck
        made = await (stop_and_be_killed if is_killed else stop_and_continue)(self._servers)
        what = (
            "SIGSTOP until the standby is active" if is_killed else "SIGSTOP until it is reported"
        )
        self._outcome.times_s.setdefault(what, []).append(made.noticed_s)
        if made.fault:
            self._outcome.faults.append(made.fault)
        if made.is_late and self._plan.is_at_rest:
            self._outcome.faults.append(f"{made.noticed_s:.2f} s from {what}")
