"""The messages of a worker to its server, kept until the server has confirmed them.

Sending a message twice is harmless, so messages that were in flight when a connection broke are
sent again. A message that the server refuses must not hold up the others: after a refused batch the
messages are sent one by one, and a result that is refused alone is replaced by a failure that gives
the reason.

Progress that waits is merged: there is at most one message with it for each attempt, however long
the server is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Literal, NamedTuple, Self

import msgspec

from schedo.core.model import LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.errors import SchedoError
from schedo.protocol.results import ErrorRequest, ResultRequest
from schedo.protocol.work import ProgressRequest, RejectRequest

BATCH_BYTES_MAX = 4_194_304  # unless a single message is larger
BATCH_MESSAGES_MAX = 1_000
_REASON_CHARACTERS_MAX = 500

_FIELDS: dict[type, Literal["results", "reject"]] = {
    ResultRequest: "results",
    RejectRequest: "reject",
}

log = logging.getLogger("schedo.worker")


class Message(NamedTuple):
    """One entry of a list in a request: `field` names the list, `body` is the entry's JSON."""

    field: Literal["results", "progress", "accept", "reject"]
    lease: str
    body: bytes
    progress: tuple[LeaseKey, ProgressUpdate] | None = None

    @classmethod
    def accept(cls, lease: str) -> Self:
        """Return the message that accepts an offer."""
        return cls("accept", lease, msgspec.json.encode(lease))

    @classmethod
    def of(cls, entry: ResultRequest | RejectRequest) -> Self:
        """Return the message with an entry of one of these lists."""
        return cls(_FIELDS[type(entry)], entry.lease, msgspec.json.encode(entry))

    @classmethod
    def of_progress(cls, key: LeaseKey, update: ProgressUpdate) -> Self:
        """Return the message with the progress of an attempt."""
        entry = ProgressRequest.of(key, update)
        return cls("progress", entry.lease, msgspec.json.encode(entry), (key, update))


class Outbox:
    """Messages in order. Those that take() returned are in flight until confirmed or put back."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._progress: dict[LeaseKey, ProgressUpdate] = {}  # waits as well
        self._in_flight: dict[tuple[str, str], Message] = {}
        self._replaced: set[str] = set()
        self._singles = 0  # this many of the next messages are sent alone
        self._has_waiting = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of messages that are not confirmed."""
        return len(self._waiting) + len(self._progress) + len(self._in_flight)

    @property
    def has_messages(self) -> bool:
        return bool(self._waiting or self._progress)

    @property
    def leases(self) -> list[str]:
        """The leases whose results or replies the server may not know yet."""
        messages = (*self._in_flight.values(), *self._waiting)
        return [message.lease for message in messages if message.field != "progress"]

    async def wait(self) -> None:
        """Wait until there is a message to send."""
        await self._has_waiting.wait()

    def add(self, message: Message) -> None:
        self._waiting.append(message)
        self._has_waiting.set()

    def add_progress(self, key: LeaseKey, update: ProgressUpdate) -> None:
        """Add the progress of a running attempt to what waits of it."""
        known = self._progress.get(key)
        self._progress[key] = update if known is None else known.then(update)
        self._has_waiting.set()

    def take(self) -> list[Message]:
        """Return the messages of the next request; they are in flight from now on."""
        messages: list[Message] = []
        count = 1 if self._singles else BATCH_MESSAGES_MAX
        size = 0
        while self.has_messages and len(messages) < count:
            message = self._take_next()
            size += len(message.body)
            if messages and size > BATCH_BYTES_MAX:
                self._put_back(message)
                break
            messages.append(message)
            self._in_flight[message.field, message.lease] = message
        if messages and self._singles:
            self._singles -= 1
        self._note_waiting()
        return messages

    def _take_next(self) -> Message:
        if self._waiting:
            return self._waiting.popleft()
        key = next(iter(self._progress))
        return Message.of_progress(key, self._progress.pop(key))

    def _put_back(self, message: Message) -> None:
        if message.progress is None:
            self._waiting.appendleft(message)
            return
        key, update = message.progress
        later = self._progress.get(key)
        self._progress[key] = update if later is None else update.then(later)

    def _note_waiting(self) -> None:
        (self._has_waiting.set if self.has_messages else self._has_waiting.clear)()

    def confirm(self, messages: list[Message]) -> None:
        """Drop messages that the server has confirmed."""
        for message in messages:
            self._in_flight.pop((message.field, message.lease), None)
            self._replaced.discard(message.lease)

    def put_back(self, messages: list[Message]) -> None:
        """Send these messages again: they may not have arrived."""
        for message in reversed(messages):
            self._in_flight.pop((message.field, message.lease), None)
            self._put_back(message)
        self._note_waiting()

    def refuse(self, messages: list[Message], error: SchedoError) -> None:
        """Send these messages alone to find the bad one; replace it if it is already alone."""
        if len(messages) > 1:
            self.put_back(messages)
            self._singles = max(self._singles, len(messages))
            return
        (message,) = messages
        self._in_flight.pop((message.field, message.lease), None)
        reason = str(error)[:_REASON_CHARACTERS_MAX]
        log.error("the server refused a message about lease %s: %s", message.lease, reason)
        if message.field == "results" and message.lease not in self._replaced:
            self._replaced.add(message.lease)
            detail = f"the server refused the result: {reason}"
            failure = ErrorRequest(type="result-refused", message=detail)
            entry = ResultRequest(message.lease, "failed", error=failure, retryable=False)
            self._waiting.appendleft(Message.of(entry))
            self._singles += 1
            self._note_waiting()
