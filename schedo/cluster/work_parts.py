"""The request of a worker as parts, one for each server that owns some of its jobs.

All parts describe the worker; each has those leases, results and so on that are for one server. The
responses to the parts become one. What a newer worker or server adds to a message stays in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Raw, Struct

from schedo.core.limits import SMALL_BODY_BYTES_MAX
from schedo.core.worker_messages import PollRequest
from schedo.engine.sharing import jobs_in_steps
from schedo.protocol.reading import FIELD_BYTES_MAX, at_once
from schedo.protocol.work import WorkRequest
from schedo.web.http import Request


class _Entry(Struct):
    lease: str


class _Result(_Entry):
    outcome: object = None


class _Fields(Struct):
    """The fields of a request that say which servers it is for; the handler checks all of them."""

    worker: str
    running: list[str] | None = None
    results: list[_Result] | None = None
    progress: list[_Entry] | None = None
    accept: list[str] | None = None
    reject: list[_Entry] | None = None
    slots: int | None = None
    max_leases: int | None = None
    draining: bool | None = None


COMPLETED = "completed"
_FIELDS = msgspec.json.Decoder(_Fields)
_RAW = msgspec.json.Decoder(dict[str, Raw])
_ENTRIES = msgspec.json.Decoder(list[Raw])
_LISTS = ("running", "results", "progress", "accept", "reject")
# Only a server may send the last ones.
_OF_ONE_REQUEST = frozenset(
    (*_LISTS, "wait", "max_leases", "elsewhere", "relayed", "age_us", "hold", "number")
)


class WorkerRequest:
    """The request of a worker, by the leases that it names."""

    def __init__(self, body: bytes) -> None:
        """Raise an exception of UNDECODABLE for a body that is no request."""
        self._body = body
        fields = self.fields = _FIELDS.decode(body)
        self._named: Mapping[str, Sequence[str]] = {
            "running": fields.running or (),
            "results": [each.lease for each in fields.results or ()],
            "progress": [each.lease for each in fields.progress or ()],
            "accept": fields.accept or (),
            "reject": [each.lease for each in fields.reject or ()],
        }

    @property
    def is_poll(self) -> bool:
        """Whether the worker asks for leases."""
        return self.fields.max_leases != 0 and not self.fields.draining

    @property
    def has_ended(self) -> bool:
        """Whether the worker takes nothing more and runs nothing."""
        fields = self.fields
        return bool(fields.draining) and fields.running == [] and not fields.accept

    @cached_property
    def leases(self) -> Collection[str]:
        """All leases that the request names, each once."""
        return dict.fromkeys(lease for named in self._named.values() for lease in named).keys()

    @cached_property
    def changed(self) -> Set[str]:
        """The leases whose results and decisions must arrive before the worker gets a response."""
        named = self._named
        return {*named["results"], *named["accept"], *named["reject"]}

    @property
    def completed(self) -> Set[str]:
        """The leases whose attempts have been the last ones of their jobs: none begins again."""
        return {each.lease for each in self.fields.results or () if each.outcome == COMPLETED}

    def make_part(self, leases: Collection[str], **fields: Any) -> bytes:
        """Return the part with what names one of the leases, and with further fields."""
        raw, leases = self._raw, frozenset(leases)
        part = self._describe()
        if self.fields.running is not None:
            part["running"] = [lease for lease in self.fields.running if lease in leases]
        for name in _LISTS[1:]:
            named = self._named[name]
            if named:
                entries = zip(named, _ENTRIES.decode(raw[name]), strict=True)
                part[name] = [entry for lease, entry in entries if lease in leases]
        return msgspec.json.encode(part | fields)

    def _describe(self) -> dict[str, Any]:
        """Return what all requests of one process of the worker say: its session, tasks, ..."""
        return {name: raw for name, raw in self._raw.items() if name not in _OF_ONE_REQUEST}

    def hash_description(self) -> int:
        """Return the hash of what all requests of one process of the worker say.

        Nothing of the request is kept for that: it may be large.
        """
        return hash(frozenset((name, bytes(raw)) for name, raw in self._describe().items()))

    @property
    def ended(self) -> Set[str]:
        """The leases that the worker runs no more, by their results or because it rejects them."""
        return {*self._named["results"], *self._named["reject"]}

    def make_next(self, ended: Collection[str] = ()) -> WorkerRequest:
        """Return the request without what has arrived: the worker, and what it runs.

        ended: leases that it lists, and that the worker runs no more.
        """
        left: dict[str, Any] = {n: value for n, value in self._raw.items() if n not in _LISTS[1:]}
        if ended and self.fields.running is not None:
            left["running"] = [lease for lease in self.fields.running if lease not in ended]
        return WorkerRequest(msgspec.json.encode(left))

    def make_report(self) -> WorkerRequest:
        """Return the request as one that asks for nothing and does not say what runs."""
        left = {name: value for name, value in self._raw.items() if name != "running"}
        return WorkerRequest(msgspec.json.encode(left | {"max_leases": 0, "wait": 0}))

    @cached_property
    def _raw(self) -> dict[str, Raw]:
        return _RAW.decode(self._body)


class _Stop(Struct):
    lease: str
    reason: str


class _Refused(Struct):
    lease: str
    status: int
    code: str
    detail: str


class PartResponse(Struct):
    """The response of one server to its part of a request."""

    protocol: int
    epoch: int
    leases: list[Raw]
    stop: list[_Stop]
    revoked: list[str]
    refused: list[_Refused]
    heartbeat: int | float
    session_timeout: int | float
    drain: bool

    @property
    def says_anything(self) -> bool:
        """Whether a worker that asks for jobs learns anything from it."""
        return bool(self.leases or self.stop or self.revoked or self.refused or self.drain)

    @property
    def denied(self) -> Sequence[str]:
        """The leases that the server says the worker does not hold."""
        return [*self.revoked, *(each.lease for each in self.refused)]

    @property
    def new_leases(self) -> Sequence[str]:
        """The names of the leases that it gives to the worker."""
        return [_ENTRY.decode(lease).lease for lease in self.leases]

    def followed_by(self, later: PartResponse) -> PartResponse:
        """Return a later response of the same server with what it does not say again."""
        return msgspec.structs.replace(
            later,
            revoked=[*dict.fromkeys((*self.revoked, *later.revoked))],
            refused=[*self.refused, *later.refused],
        )

    def without_denials(self, owned: Collection[str]) -> PartResponse:
        """Return the response without what it denies, except these leases."""
        return msgspec.structs.replace(
            self,
            revoked=[lease for lease in self.revoked if lease in owned],
            refused=[each for each in self.refused if each.lease in owned],
        )


def is_long(request: Request) -> bool:
    """Whether the body may hold more than one step should decode, until it has been read."""
    return len(request.body) > FIELD_BYTES_MAX


async def read_poll(request: Request) -> PollRequest:
    """Return the whole request, or raise what is wrong with it before a part has an effect."""
    fields = await request.read(WorkRequest)
    if len(request.body) <= SMALL_BODY_BYTES_MAX:
        return at_once(fields.to_poll())
    return await jobs_in_steps(fields.to_poll())


_ENTRY = msgspec.json.Decoder(_Entry)
_RESPONSE = msgspec.json.Decoder(PartResponse)
_NOTHING_DENIED = b'"revoked":[],"refused":[]'


def read_response(body: bytes) -> PartResponse:
    """Return the response in a body of the status 200."""
    return _RESPONSE.decode(body)


def denies_nothing(body: bytes) -> bool:
    """Whether the response in the body says of no lease that the worker does not hold it."""
    # The last of these names is that of the response: a payload may have it, too, but comes before.
    return body.startswith(_NOTHING_DENIED, body.rfind(b'"revoked":'))


def merge_responses(own: PartResponse, others: Iterable[PartResponse]) -> PartResponse:
    """Return the response of this server with what the others have said."""
    responses = (own, *others)
    return msgspec.structs.replace(
        own,
        leases=[lease for each in responses for lease in each.leases],
        stop=[stop for each in responses for stop in each.stop],
        revoked=[lease for each in responses for lease in each.revoked],
        refused=[refused for each in responses for refused in each.refused],
        drain=any(each.drain for each in responses),
    )
