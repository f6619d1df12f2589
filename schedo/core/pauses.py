"""The pauses of the whole server: no job starts, no schedule fires, or both, until a resume.

A pause is durable, so it outlives the server. While starts are paused, jobs are accepted and become
due as always, and running attempts go on. While schedules are paused, their instants pass as during
a downtime: after the resume the catch-up policy of each schedule decides about them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schedo.core.commands import CommitReservation, Invoke, PauseServer, Reserve, ResumeServer
from schedo.core.job_table import JobTable
from schedo.core.loads import Appliers, Loaded
from schedo.core.model import Pause, PauseScope
from schedo.core.timers import earliest
from schedo.errors import NoCapacity

_AT_ONCE = (Invoke, Reserve, CommitReservation)


class Pauses:
    """The pauses of one server, at most one of each scope."""

    def __init__(self, jobs: JobTable, placing: Appliers) -> None:
        """placing: what carries out the commands that start jobs at once."""
        self._jobs = jobs
        self._by_scope: dict[PauseScope, Pause] = {}
        self._placing = placing
        # Read in each turn.
        self.starts = self.schedules = False
        self.appliers: Appliers = {
            PauseServer: self._pause,
            ResumeServer: self._resume,
            **dict.fromkeys(_AT_ONCE, self._place),
        }

    def all(self) -> list[Pause]:
        """Return the pauses, in the order of their scopes."""
        return [self._by_scope[scope] for scope in PauseScope if scope in self._by_scope]

    def restore(self, pauses: Iterable[Pause]) -> None:
        """Restore the pauses of the store."""
        for pause in pauses:
            self._set(pause.scope, pause)

    def end_due(self, now: int) -> None:
        """End the pauses whose end has come."""
        if not self._by_scope:
            return
        for pause in self.all():
            if pause.until is not None and pause.until <= now:
                self._change(pause.scope, None)

    def next_at(self) -> int | None:
        """Return the next end of a pause."""
        return earliest(*(pause.until for pause in self._by_scope.values()))

    def _pause(self, command: PauseServer, now: int, loaded: Loaded) -> list[Pause]:
        for scope in command.scopes:
            self._change(scope, Pause(scope, now, command.note, command.until))
        return self.all()

    def _resume(self, command: ResumeServer, now: int, loaded: Loaded) -> list[Pause]:
        for scope in command.scopes:
            if scope in self._by_scope:
                self._change(scope, None)
        return self.all()

    def _place(self, command: Any, now: int, loaded: Loaded) -> Any:
        if self.starts:
            raise NoCapacity("the server is paused: no job starts until it is resumed")
        return self._placing[type(command)](command, now, loaded)

    def _change(self, scope: PauseScope, pause: Pause | None) -> None:
        self._set(scope, pause)
        self._jobs.changes.pauses[scope] = pause

    def _set(self, scope: PauseScope, pause: Pause | None) -> None:
        if pause is None:
            del self._by_scope[scope]
        else:
            self._by_scope[scope] = pause
        self.starts = PauseScope.STARTS in self._by_scope
        self.schedules = PauseScope.SCHEDULES in self._by_scope
