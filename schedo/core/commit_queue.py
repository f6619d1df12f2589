"""Items that wait until the changes which were made with them are durable."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")


class CommitQueue(Generic[T]):
    """Items in order: new ones, those that are being committed, and durable ones."""

    __slots__ = ("_committing", "durable", "new")

    def __init__(self) -> None:
        self.new: list[T] = []  # they wait for the next commit, even if that changes nothing
        self._committing: list[T] = []
        self.durable: list[T] = []  # and not taken yet

    def add(self, item: T) -> None:
        """Add an item that belongs to the next commit."""
        self.new.append(item)

    def begin_commit(self) -> None:
        """Note that the changes so far are being committed."""
        self._committing, self.new = self.new, []

    def committed(self) -> None:
        """Note that the changes that were being committed are durable."""
        self.durable += self._committing
        self._committing = []

    def __iter__(self) -> Iterator[T]:
        """Yield the items that were not taken yet."""
        return chain(self.durable, self._committing, self.new)

    def take(self) -> list[T]:
        """Return the items that have become durable since the last call."""
        if not self.durable:
            return []
        durable, self.durable = self.durable, []
        return durable
