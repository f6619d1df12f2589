"""What a worker still has to tell, kept until the server has confirmed it.

Telling twice is harmless, so whatever was on its way when a connection broke is told again. A word
that the server cannot take must not hold up the others: a batch that is refused goes out one by
one, and a result that is refused alone is replaced by a failure that says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from schedo.errors import SchedoError
from schedo.worker.remote.messages import Message, render_failure

BATCH_BYTES_MAX = 4_194_304  # unless a single word is larger
BATCH_WORDS_MAX = 1_000
_REASON_CHARACTERS_MAX = 500

log = logging.getLogger("schedo.worker")


class Outbox:
    """Words in order; those that were taken are on their way until confirmed or put back."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._on_the_way: dict[tuple[str, str], Message] = {}
        self._replaced: set[str] = set()
        self._singles = 0  # so many of the next words go out alone
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """Return how many words are not confirmed."""
        return len(self._waiting) + len(self._on_the_way)

    @property
    def has_messages(self) -> bool:
        return bool(self._waiting)

    @property
    def leases(self) -> list[str]:
        """Leases of which the server may not know yet how they ended."""
        words = (*self._on_the_way.values(), *self._waiting)
        return [word.lease for word in words if word.field != "progress"]

    async def wait(self) -> None:
        """Return when there is something to tell."""
        await self._news.wait()

    def add(self, word: Message) -> None:
        """Tell this soon."""
        self._waiting.append(word)
        self._news.set()

    def take(self) -> list[Message]:
        """Return the words of the next request."""
        words: list[Message] = []
        count = 1 if self._singles else BATCH_WORDS_MAX
        size = 0
        while self._waiting and len(words) < count:
            size += len(self._waiting[0].body)
            if words and size > BATCH_BYTES_MAX:
                break
            word = self._waiting.popleft()
            words.append(word)
            self._on_the_way[word.field, word.lease] = word
        if words and self._singles:
            self._singles -= 1
        if not self._waiting:
            self._news.clear()
        return words

    def confirm(self, words: list[Message]) -> None:
        """Forget words that the server has taken."""
        for word in words:
            self._on_the_way.pop((word.field, word.lease), None)
            self._replaced.discard(word.lease)

    def put_back(self, words: list[Message]) -> None:
        """Tell these again: it is not known whether they arrived."""
        for word in words:
            self._on_the_way.pop((word.field, word.lease), None)
        self._waiting.extendleft(reversed(words))
        if words:
            self._news.set()

    def refuse(self, words: list[Message], error: SchedoError) -> None:
        """Find the word that the server cannot take, and tell something in its place."""
        self.put_back(words)
        if len(words) > 1:
            self._singles = max(self._singles, len(words))
            return
        word = self._waiting.popleft()
        if not self._waiting:
            self._news.clear()
        reason = str(error)[:_REASON_CHARACTERS_MAX]
        log.error("the server cannot take a word of lease %s: %s", word.lease, reason)
        if word.field == "results" and word.lease not in self._replaced:
            self._replaced.add(word.lease)
            message = f"the server could not take the result: {reason}"
            self._waiting.appendleft(render_failure(word.lease, "result-refused", message))
            self._singles += 1
            self._news.set()
