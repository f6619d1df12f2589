"""Items that wait until the changes which were made with them are durable."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class CommitQueue(Generic[T]):
    """Items in order: new ones, those that are being committed, and durable ones."""

    __slots__ = ("_committing", "_durable", "_new")

    def __init__(self) -> None:
        self._new: list[T] = []
        self._committing: list[T] = []
        self._durable: list[T] = []

    @property
    def needs_commit(self) -> bool:
        """Whether an item waits for the next commit, even if that changes nothing."""
        return bool(self._new)

    def add(self, item: T) -> None:
        """Add an item that belongs to the next commit."""
        self._new.append(item)

    def begin_commit(self) -> None:
        """Note that the changes so far are being committed."""
        self._committing, self._new = self._new, []

    def committed(self) -> None:
        """Note that the changes that were being committed are durable."""
        self._durable += self._committing
        self._committing = []

    def __iter__(self) -> Iterator[T]:
        """Yield the items that were not taken yet."""
        return chain(self._durable, self._committing, self._new)

    def take(self) -> list[T]:
        """Return the items that have become durable since the last call."""
        if not self._durable:
            return []
        durable, self._durable = self._durable, []
        return durable
