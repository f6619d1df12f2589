"""The pauses of the whole server and of queues, until a resume or until their end.

A pause is durable, so it outlives the server. While starts are paused, jobs are accepted and become
due as always, and running attempts go on. While schedules are paused, their instants pass as during
a downtime: after the resume the catch-up policy of each schedule decides about them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from schedo.core.commands import CommitReservation, ConfigureQueue, Invoke, Reserve
from schedo.core.job_table import JobTable
from schedo.core.limits import SECOND
from schedo.core.loads import Appliers, Loaded
from schedo.core.model import Pause, PauseScope, Queue
from schedo.core.pause_commands import PauseQueue, PauseServer, ResumeServer
from schedo.core.queue_pause import QueuePause
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
        self._ends: dict[str, int] = {}  # of the pauses of queues
        # Read in each turn.
        self.starts = self.schedules = False
        self.appliers: Appliers = {
            PauseServer: self._pause,
            ResumeServer: self._resume,
            PauseQueue: self._pause_queue,
            ConfigureQueue: self._configure_queue,
            **dict.fromkeys(_AT_ONCE, self._place),
        }

    def all(self) -> list[Pause]:
        """Return the pauses, in the order of their scopes."""
        return [self._by_scope[scope] for scope in PauseScope if scope in self._by_scope]

    def restore(self, pauses: Iterable[Pause], queues: Iterable[Queue]) -> None:
        """Restore the pauses of the store."""
        for pause in pauses:
            self._set(pause.scope, pause)
        for queue in queues:
            self._note_end(queue)

    def end_due(self, now: int) -> None:
        """End the pauses whose end has come."""
        if not (self._by_scope or self._ends):
            return
        for pause in self.all():
            if pause.until is not None and pause.until <= now:
                self._change(pause.scope, None)
        for name in [name for name, until in self._ends.items() if until <= now]:
            self._change_queue(name, paused=False, pause=None)

    def next_at(self) -> int | None:
        """Return the next end of a pause."""
        if not (self._by_scope or self._ends):
            return None
        return earliest(*(pause.until for pause in self._by_scope.values()), *self._ends.values())

    def _pause_queue(self, command: PauseQueue, now: int, loaded: Loaded) -> Queue:
        pause = QueuePause(now, command.note, command.until)
        return self._change_queue(command.name, paused=True, pause=pause)

    def _configure_queue(self, command: ConfigureQueue, now: int, loaded: Loaded) -> Queue:
        if command.fields.get("paused", True):
            return self._change_queue(command.name, **command.fields)
        return self._change_queue(command.name, **{**command.fields, "pause": None})

    def _change_queue(self, name: str, **fields: Any) -> Queue:
        queue = self._jobs.configure_queue(name, fields)
        self._note_end(queue)
        return queue

    def _note_end(self, queue: Queue) -> None:
        self._ends.pop(queue.name, None)
        if queue.pause is not None and queue.pause.until is not None:
            self._ends[queue.name] = queue.pause.until

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
        self.check_starts()
        return self._placing[type(command)](command, now, loaded)

    def check_starts(self) -> None:
        """Raise NoCapacity while starts are paused."""
        if self.starts:
            raise NoCapacity("the server is paused: no job starts until it is resumed")

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


def describe_pause(note: str | None, until: int | None) -> str:
    """Return the note and the end of a pause, as a text behind "paused"."""
    text = f" ({note})" if note else ""
    if until is not None:
        end = datetime.fromtimestamp(until // SECOND, UTC)
        text += f" until {end.strftime('%Y-%m-%dT%H:%M:%SZ')}"
    return text
