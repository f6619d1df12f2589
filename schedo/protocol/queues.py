"""Queues: the request that changes their limits, and the responses that show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.core import limits
from schedo.core.model import Queue
from schedo.core.queue_pause import QueuePause
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, DurationText, Instant
from schedo.protocol.keep import KeepRequest, read_keep
from schedo.protocol.schedules import Note
from schedo.protocol.system import read_end
from schedo.protocol.times import render_duration, render_instant

_WEIGHT_MAX = 1_000
Concurrency = Annotated[
    int,
    Meta(ge=1, le=limits.QUEUE_CONCURRENCY_MAX, description="How many of its jobs run at once."),
]

Weight = Annotated[int, Meta(ge=1, le=_WEIGHT_MAX)]


class QueuePatch(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """New limits for a queue; absent fields keep their value."""

    concurrency: Concurrency | UnsetType | None = UNSET  # null: as many as there are slots
    weight: Weight | UnsetType = UNSET
    priority_step: Duration | UnsetType = UNSET
    keep: KeepRequest | UnsetType | None = UNSET  # null: as the general retention says

    def read(self) -> dict[str, Any]:
        """Return the changes by the name of a Queue's field."""
        if self == QueuePatch():
            raise Invalid(
                "there is nothing to change: give concurrency, weight, priority_step or keep"
            )
        changes: dict[str, Any] = {}
        if not isinstance(self.concurrency, UnsetType):
            changes["concurrency"] = self.concurrency
        if not isinstance(self.weight, UnsetType):
            changes["weight"] = self.weight
        if not isinstance(self.priority_step, UnsetType):
            step_us = fields.read_duration("/priority_step", self.priority_step)
            if step_us > limits.DAY:
                raise Invalid.field("/priority_step", "this must be at most a day")
            changes["priority_step_us"] = step_us
        if not isinstance(self.keep, UnsetType):
            changes["keep"] = read_keep("/keep", self.keep)
        return changes


class PauseQueueRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A pause of a queue; it may end by itself, at `until` or after `duration`."""

    note: Note | None = None
    until: Instant | None = None
    duration: Duration | None = None

    def read_until(self, now: int) -> int | None:
        """Return the end, or None; raise Invalid."""
        return read_end(self.until, self.duration, now)


class QueuePauseResponse(Struct, forbid_unknown_fields=True):
    """Since when a queue is paused, why, and when the pause ends by itself."""

    since: Instant
    note: str | None
    until: Instant | None

    @classmethod
    def of(cls, pause: QueuePause) -> Self:
        until = None if pause.until is None else render_instant(pause.until)
        return cls(render_instant(pause.since), pause.note, until)


class QueueResponse(Struct, forbid_unknown_fields=True):
    """The current state of a queue; concurrency null means no limit but the slots.

    `oldest_due_at` is the due instant of its oldest due job, if jobs are due and wait.
    """

    name: str
    concurrency: int | None
    paused: bool
    weight: int
    priority_step: DurationText
    running: int
    waiting: dict[str, int]
    counted_at: Instant
    keep: KeepRequest | UnsetType = UNSET
    pause: QueuePauseResponse | UnsetType = UNSET
    oldest_due_at: Instant | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        queue: Queue,
        running: int,
        waiting: Mapping[str, int],
        counted_at: int,
        oldest_due_at: int | None = None,
    ) -> Self:
        return cls(
            queue.name,
            queue.concurrency,
            queue.paused,
            queue.weight,
            render_duration(queue.priority_step_us),
            running,
            dict(waiting),
            render_instant(counted_at),
            UNSET if queue.keep is None else KeepRequest.of(queue.keep),
            UNSET if queue.pause is None else QueuePauseResponse.of(queue.pause),
            fields.instant_or_unset(oldest_due_at),
        )


class QueuePage(Struct, forbid_unknown_fields=True):
    """All queues that are configured or in use."""

    items: list[QueueResponse]
