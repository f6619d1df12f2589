"""Writes who made a change, in the commit of the change.

The web side announces the author of a request (`acting`), and the calls that people make by hand go
through `change`. If there is an author, the reply of the command and the entry of the log belong
to one turn, so one commit has both. Other calls, such as submits, do not come here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from schedo.core.action_log import LogEntry
from schedo.core.bulk import BulkOperation
from schedo.core.commands import Command, PutEffect, Triggered
from schedo.core.ids import render_id
from schedo.core.log_commands import NoteChange
from schedo.core.model import Job, Queue
from schedo.engine.command_queue import as_is
from schedo.engine.loop import EngineLoop

R = TypeVar("R")
T = TypeVar("T")


class Author(NamedTuple):
    """Who makes a change, by which operation, and of what."""

    who: str
    via: str
    address: str
    action: str
    target: str


_author: ContextVar[Author | None] = ContextVar("schedo_author", default=None)


@contextmanager
def acting(author: Author) -> Iterator[None]:
    """Log the changes of the block, which one task makes, as those of the author."""
    token = _author.set(author)
    try:
        yield
    finally:
        _author.reset(token)


def change(
    loop: EngineLoop, command: Command[R], finish: Callable[[R], T] = as_is
) -> asyncio.Future[T]:
    """As loop.try_enqueue, with an entry of the log if an author is announced."""
    author = _author.get()
    if author is None:
        return loop.try_enqueue(command, finish)

    def finish_and_note(reply: R) -> T:
        entry = _describe(author, reply, loop.turn_at)
        if entry is not None:
            loop.scheduler.apply(NoteChange(entry), entry.at)
        return finish(reply)

    return loop.try_enqueue(command, finish_and_note)


# What a put or a declaration did that changed nothing.
_NOTHING = frozenset({PutEffect.UNCHANGED, PutEffect.KEPT})


class _Effect(NamedTuple):
    answer: str
    target: str | None = None  # if the request could not name it
    changed: int | None = None


def _describe(author: Author, reply: Any, now: int) -> LogEntry | None:
    """Return the entry; None if nothing was changed. now: the instant of the change."""
    effect = (
        _read_effects(author, reply) if isinstance(reply, list | tuple) else _read_effect(reply)
    )
    if effect is None or (reply == [] and author.action == "declare"):
        return None
    target = effect.target or author.target
    return LogEntry(
        at=now,
        who=author.who,
        via=author.via,
        address=author.address,
        action=author.action,
        target=target,
        answer=effect.answer,
        changed=effect.changed,
        is_job=target.startswith("jobs/"),
    )


def _read_effect(reply: Any) -> _Effect:
    match reply:
        case Job():
            return _Effect(reply.state.value)
        case BulkOperation(undoes=int(undone)):
            return _Effect(f"made {render_id(reply.id)}", f"operations/{render_id(undone)}")
        case BulkOperation():
            return _Effect(reply.state.value, f"operations/{render_id(reply.id)}")
        case Queue():
            return _Effect("done", f"queues/{reply.name}")
    return _Effect("done")


def _read_effects(author: Author, reply: Any) -> _Effect | None:
    """Return what a reply of several parts says; None if nothing was changed."""
    match reply:
        case Triggered():
            made = reply.job
            return _Effect("skipped" if made is None else f"made {render_id(made.id)}")
        case (_, PutEffect() as effect):
            return _read_put(effect)
        case [(PutEffect() as effect, *_)] if author.action == "put_schedule":  # for its owner
            return _read_put(effect)
        case [first, *_] if hasattr(first, "effect"):
            count = sum(1 for each in reply if each.effect not in _NOTHING)
            return _Effect("changed", None, count) if count else None
    return _Effect("done")


def _read_put(effect: PutEffect) -> _Effect | None:
    return None if effect in _NOTHING else _Effect(effect.value)
