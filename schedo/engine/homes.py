"""The texts whose shard a command needs: another server may own it by the time of the command.

A command for one job or an existing schedule needs no such check: what is in other shards is not
found. What would make a record is refused, because its home has another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schedo.core.bulk_commands import BeginBulk
from schedo.core.commands import (
    CommitReservation,
    DeclareSchedules,
    Invoke,
    PutSchedule,
    Submit,
)
from schedo.core.expectation_table import DeclareExpectations, PutExpectation


def texts_of(command: object) -> Iterable[str]:
    """Return the texts whose shards must belong to the server that carries the command out."""
    find = _TEXTS.get(type(command))
    return () if find is None else find(command)


def _keys_of(command: Submit) -> Iterable[str]:
    """Return the unique keys of jobs that come from the server itself; others name their shards."""
    if command.home_shards:
        return ()
    return [spec.options.unique.key for spec in command.specs if spec.options.unique is not None]


def needs_shard(command: object) -> bool:
    """Whether the command makes jobs or an operation: without a home, they need an own shard."""
    return isinstance(command, (Submit, Invoke, CommitReservation, BeginBulk))


_TEXTS: Mapping[type, Callable[[Any], Iterable[str]]] = {
    Submit: _keys_of,
    PutSchedule: lambda command: [command.spec.name],
    DeclareSchedules: lambda command: [spec.name for spec in command.specs],
    PutExpectation: lambda command: [command.spec.name],
    DeclareExpectations: lambda command: [spec.name for spec in command.specs],
}
