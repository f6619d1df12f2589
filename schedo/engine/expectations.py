"""The calls of the engine about expectations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from schedo.core.commands import PutEffect
from schedo.core.expectation_table import (
    Beat,
    DeclaredExpectation,
    DeclareExpectations,
    DeleteExpectation,
    PutExpectation,
)
from schedo.core.expectations import Expectation, ExpectationSpec, ExpectationState
from schedo.core.model import Schedule
from schedo.engine.action_log import change
from schedo.engine.loop import EngineLoop
from schedo.errors import NotFound

if TYPE_CHECKING:
    from schedo.store.base import Store
    from schedo.store.cluster import ClusterStore


class Expectations:
    """The expectations of one engine. All of them are in memory; those of other servers are not."""

    def __init__(self, loop: EngineLoop, store: Store) -> None:
        self._loop = loop
        # The store, if other servers share it.
        is_shared = getattr(store, "cluster", None) is not None
        self._shared = cast("ClusterStore", store) if is_shared else None

    async def put(self, spec: ExpectationSpec) -> tuple[Expectation, PutEffect]:
        """Create the named expectation or change it to the spec; return it and what that did."""
        return await change(
            self._loop, PutExpectation(spec), lambda reply: (reply[0].copy(), reply[1])
        )

    async def declare(self, command: DeclareExpectations) -> list[DeclaredExpectation]:
        """Carry out the command; return what it did to each one, the removed ones last."""
        return await change(
            self._loop,
            command,
            lambda reply: [each._replace(expectation=each.expectation.copy()) for each in reply],
        )

    def preview(self, command: DeclareExpectations) -> list[DeclaredExpectation]:
        """Return what the command would do now; change nothing."""
        known, now = {each.name: each for each in self.named()}, self._loop.clock.now()
        done = []
        for spec in command.specs:
            before = known.get(spec.name)
            effect = PutEffect.CREATED if before is None else PutEffect.CHANGED
            if before is not None and before.spec == spec:
                effect = PutEffect.UNCHANGED
            after = Expectation(0, spec.name, False, spec.rule, spec.expect, now, now, now, now)
            after.cron_source = spec.cron_source
            done.append(DeclaredExpectation(effect, after, before))
        return done + [
            DeclaredExpectation(PutEffect.REMOVED, known[name], known[name])
            for name in command.removed
        ]

    async def delete(self, name: str) -> None:
        """Delete the named expectation."""
        await change(self._loop, DeleteExpectation(name))

    async def beat(self, name: str) -> Expectation:
        """Note a beat of the named expectation; return its record."""
        return await self._loop.try_enqueue(Beat(name), Expectation.copy)

    def get(self, name: str) -> Expectation:
        """Return the named expectation; raise NotFound."""
        found = next((each for each in self.named() if each.name == name), None)
        if found is None:
            raise NotFound(f"there is no expectation {name!r}")
        return found

    def named(self) -> list[Expectation]:
        """Return the named expectations, by name; raise why the engine has failed, if it has."""
        if self._loop.failure is not None:
            raise self._loop.failure  # it does not know them now
        return sorted(
            (each for each in self.all() if not each.of_schedule), key=lambda each: each.name
        )

    async def of_schedules(self, schedules: Iterable[Schedule]) -> Mapping[int, Expectation]:
        """Return the expectations of those of the schedules that have one, by id."""
        if self._loop.failure is not None:
            return {}
        find = self._loop.scheduler.expectations.find
        found = {each.id: find(each.id) for each in schedules}
        known = {ident: each for ident, each in found.items() if each is not None}
        if self._shared is not None and len(known) < len(found):
            missing = [*(found.keys() - known.keys())]
            known |= {each.id: each for each in await self._shared.list_expectations(missing)}
        return known

    async def overdue(self) -> tuple[int, ...]:
        """Return the schedules whose expectation is missed, by id."""
        own = [each for each in self.all() if each.of_schedule]
        missed = [each.id for each in own if each.state is ExpectationState.MISSED]
        if self._shared is not None:
            known = {each.id for each in own}
            missed += [each for each in await self._shared.list_overdue() if each not in known]
        return tuple(missed)

    def all(self) -> list[Expectation]:
        """Return all expectations; none while the engine has failed."""
        if self._loop.failure is not None:
            return []
        return list(self._loop.scheduler.expectations.all())
