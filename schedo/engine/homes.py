"""The texts whose shard a command needs: another server may own it by the time of the command.

A command for one job or an existing schedule needs no such check: what is in other shards is not
found. What would make a record is refused, because its home has another owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schedo.core.commands import (
    CommitReservation,
    DeclareSchedules,
    Invoke,
    PutSchedule,
    Submit,
)
from schedo.core.expectation_table import DeclareExpectations, PutExpectation
from schedo.core.model import JobSpec


def texts_of(command: object, has_limit: Callable[[str], bool]) -> Iterable[str]:
    """Return the texts whose shards must belong to the server that carries the command out.

    has_limit: whether the queue of this name has a limit, and with it a home for its jobs.
    """
    if isinstance(command, Submit):
        return [text for spec in command.specs if (text := _text_of(spec, has_limit)) is not None]
    find = _TEXTS.get(type(command))
    return () if find is None else find(command)


def _text_of(spec: JobSpec, has_limit: Callable[[str], bool]) -> str | None:
    if spec.options.unique is not None:
        return spec.options.unique.key
    return spec.queue if has_limit(spec.queue) else None


def makes_jobs(command: object) -> bool:
    """Whether the command makes jobs, which need a shard of this server if they have no home."""
    return isinstance(command, (Submit, Invoke, CommitReservation))


_TEXTS: Mapping[type, Callable[[Any], Iterable[str]]] = {
    PutSchedule: lambda command: [command.spec.name],
    DeclareSchedules: lambda command: [spec.name for spec in command.specs],
    PutExpectation: lambda command: [command.spec.name],
    DeclareExpectations: lambda command: [spec.name for spec in command.specs],
}
