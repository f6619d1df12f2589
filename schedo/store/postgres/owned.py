"""The shards that a server owns, and those of its new records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle

from schedo.core.model import Job, Queue
from schedo.core.shards import shard_of
from schedo.errors import StoreError


class Owned:
    """What a server owns from one snapshot to the next.

    A record whose order or number must be exact has a home: the shard of the text that it shares
    with the others of its kind. A run is with its schedule. Anything else is wherever there is
    room. A home that belongs to another server gets no record from this one, which does not know
    what is there: the record goes to one of the own shards.
    """

    def __init__(self, no: int, shards: Sequence[int] = (), queues: Iterable[Queue] = ()) -> None:
        """no: of the server. shards: all that it owns. queues: all that have settings."""
        self.no = no
        self.shards, self.shard_set = list(shards), frozenset(shards)
        self.pruned: dict[str, int] = {}  # up to where pruning has looked; see pruning.py
        self.passed: set[str] = set()  # where it has come to the end in this pass
        self._next = cycle(self.shards)
        self._limited: set[str] = set()
        self.note_queues(queues)

    def note_queues(self, queues: Iterable[Queue]) -> None:
        """Note the settings of queues that are stored from now on."""
        for queue in queues:
            if queue.concurrency is None:
                self._limited.discard(queue.name)
            else:
                self._limited.add(queue.name)

    def place(self, job: Job) -> int:
        """Return the shard of a new job; raise StoreError if this server owns none any more."""
        home: str | None
        if job.schedule_id is not None:
            home = job.options.schedule
        elif job.unique_key is not None:
            home = job.unique_key
        else:
            home = job.queue if job.queue in self._limited else None
        if home is not None:
            shard = shard_of(home)
            if shard in self.shard_set:
                return shard
        if not self.shards:
            raise StoreError("other servers have taken all shards of this one; nothing was written")
        return next(self._next)

    def limited_queues(self) -> list[str]:
        """Return the queues whose jobs have one home."""
        return [*self._limited]
