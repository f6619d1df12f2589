"""Every kind of exception that a handler can raise, and handlers that raise it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable

from schedo.tasks.current_job import Discard, Snooze


class Stray(BaseException):
    """No Exception, and none of Python's own."""


class Mute(Exception):
    """An exception whose message raises SystemExit."""

    def __str__(self) -> str:
        raise SystemExit("no message")


class Renamed(Exception):
    """An exception whose class name cannot be encoded."""


Renamed.__qualname__ = "\ud800" * 1_000


class Unnameable(type):
    """A class of classes without a name."""

    def __getattribute__(cls, name: str) -> object:
        if name == "__qualname__":
            raise GeneratorExit
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Unnameable):
    """An exception whose class has no name."""


class Endless(Snooze):
    """A snooze that forgot its delay."""

    def __init__(self) -> None:
        """Leave everything out."""


def _chained() -> BaseException:
    error = ValueError("the last")
    error.__cause__ = Mute()
    error.__context__ = error
    return error


# The function that raises, and the type in the failure; None if the attempt does not fail.
KINDS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "BaseException": (BaseException, "BaseException"),
    "BaseExceptionGroup": (
        lambda: BaseExceptionGroup("several", [GeneratorExit(), SystemExit(1)]),
        "BaseExceptionGroup",
    ),
    "CancelledError": (asyncio.CancelledError, "CancelledError"),
    "CancelledError of futures": (concurrent.futures.CancelledError, "CancelledError"),
    "GeneratorExit": (GeneratorExit, "GeneratorExit"),
    "InvalidStateError": (asyncio.InvalidStateError, "InvalidStateError"),
    "KeyboardInterrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "MemoryError": (MemoryError, "MemoryError"),
    "StopAsyncIteration": (StopAsyncIteration, "StopAsyncIteration"),
    "StopIteration": (StopIteration, "StopIteration"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit"),
    "TimeoutError": (TimeoutError, "TimeoutError"),
    "a discard with a bad message": (lambda: Discard("\ud800\0"), "discarded"),
    "a long chain": (_chained, "ValueError"),
    "a snooze without a delay": (Endless, "unreadable-exception"),
    "no message": (Mute, "Mute"),
    "no name": (Nameless, "unreadable-exception"),
    "no text": (lambda: ValueError("\ud800\0" * 100_000), "ValueError"),
    "not even an Exception": (Stray, "Stray"),
    "odd name": (Renamed, "?" * 128),
}


async def raise_kind(kind: str) -> None:
    """Raise it in the event loop."""
    raise KINDS[kind][0]()


def raise_kind_plainly(kind: str) -> None:
    """Raise it in a thread."""
    raise KINDS[kind][0]()


def shown(kind: str, *, is_async: bool) -> str:
    """Return the type that the failure shows: Python itself turns a StopIteration into another."""
    wanted = KINDS[kind][1]
    return "RuntimeError" if is_async and kind == "StopIteration" else wanted
