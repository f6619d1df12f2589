"""What may watch an engine from outside: the telemetry of a server.

Without an observer a commit and a turn have one comparison more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from schedo.core.changes import Changes
from schedo.core.leases import Lease
from schedo.core.model import LeaseKey


class Observer(Protocol):
    """Sees the leases and the commits of an engine; its methods return at once and never raise."""

    def use_store(self, store_id: int) -> None:
        """Note the number of the store whose jobs follow."""

    def mark(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Return the leases as the workers get them, with a trace context."""

    def note(self, changes: Changes, ended: Iterable[LeaseKey]) -> Any:
        """Return what is worth noting of a commit that is about to be written.

        The records are as the turn left them; later turns change them. ended: the attempts whose
        results are in it.
        """

    def durable(self, notes: Any, now: int) -> None:
        """Take the notes of a commit that is on the disk."""

    @property
    def dropped(self) -> int:
        """How many spans were dropped."""
