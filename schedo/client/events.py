"""The events of a server: how a stream of them is parsed, and how a client comes back to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from schedo.client.errors import NotSchedo
from schedo.client.messages import Record
from schedo.errors import SchedoError

RETRY_S = 2.0  # until the server says how long
UNKNOWN_ID = "0-0"  # that of no event: a server responds to it with a `reset`
_LINE_BYTES_MAX = 4_194_304


class Event(NamedTuple):
    """Something that happened: `tick`, `jobs`, `schedules`, `queues` or `workers`.

    Of one followed job or schedule: `job` and `progress`, or `schedule` and `jobs`.
    After `reset` and `gap` events are missing: read again what they would have changed.
    """

    name: str
    data: Record
    id: str | None  # for `last_id` of a later stream


class EventParser:
    """Parses server-sent events, over as many connections as it takes."""

    def __init__(self, last_id: str | None = None) -> None:
        self.last_id = last_id  # of the last whole event
        self._id = last_id
        self.retry_s = RETRY_S
        self.has_begun = False
        self._rest = b""
        self._name, self._data = "", ""

    def begin(self) -> None:
        """Forget what the last connection left unfinished.

        If it brought no id, nothing says what is missing after it, so a `reset` must.
        """
        if self.has_begun and self.last_id is None:
            self.last_id = UNKNOWN_ID
        self._rest, self._name, self._data, self._id = b"", "", "", self.last_id

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that the bytes complete; raise SchedoError if they are none."""
        self.has_begun = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            raise SchedoError("an event of the server has no end")
        for line in lines:
            if line:
                self._read_field(line.decode("utf-8", "replace"))
            elif self._data:
                yield self._end_event()

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._name = value
        elif name == "data":
            self._data += value
        elif name == "retry" and value.isdecimal():
            self.retry_s = int(value) / 1_000

    def _end_event(self) -> Event:
        self.last_id = self._id
        try:
            data = json.loads(self._data)
        except (ValueError, RecursionError):
            raise NotSchedo.because("its events are not JSON") from None
        if not isinstance(data, dict):
            raise NotSchedo.because("its events are not JSON objects")
        event = Event(self._name, data, self.last_id)
        self._name, self._data = "", ""
        return event
