"""Leases in the worker protocol: their names, and the entry that gives one to a worker.

The name of a lease is <job id>.<attempt>.<epoch>. It never names another attempt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Self

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schedo.core.ids import parse_id, render_id
from schedo.core.leases import Lease, StopReason, StopRequest
from schedo.core.limits import SECOND
from schedo.core.model import PLAIN, LeaseKey, Options, Trigger
from schedo.errors import Invalid, NotFound
from schedo.protocol.fields import Id, Instant
from schedo.protocol.options import CARRIED, CarriedOptions, carried_fields
from schedo.protocol.reading import Steps
from schedo.protocol.times import parse_instant, render_instant

LeaseText = Annotated[
    str,
    Meta(
        description="Names one attempt: job id, attempt and epoch.",
        examples=["0CR5KPDD15T00.1.7"],
        extra_json_schema={"pattern": "^[0-9A-Za-z]{13}[.][0-9]{1,9}[.][0-9]{1,15}$"},
    ),
]
# A newer server may send more values, so a worker takes any text.
TriggerText = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in Trigger]})]
ReasonText = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in StopReason]})]
_LEASE = re.compile(r"([0-9A-Za-z]{13})\.([0-9]{1,9})\.([0-9]{1,15})\Z")


def render_lease(key: LeaseKey) -> str:
    return f"{render_id(key.job_id)}.{key.attempt}.{key.epoch}"


def parse_lease(text: str, pointer: str = "/lease") -> LeaseKey:
    """Return the lease with this name; raise Invalid for the field at the pointer."""
    found = _LEASE.match(text)
    if found is not None:
        try:
            return LeaseKey(parse_id(found[1]), int(found[2]), int(found[3]))
        except NotFound:
            pass
    raise Invalid.field(pointer, f"{text[:60]!a} is no lease; send it as the server did")


def read_leases(pointer: str, texts: Sequence[str]) -> Steps[list[LeaseKey]]:
    """Return the leases with these names, in steps; raise Invalid for one below the pointer."""
    found = []
    for at, text in enumerate(texts):
        found.append(parse_lease(text, f"{pointer}/{at}"))
        yield
    return found


class LeaseResponse(CarriedOptions, kw_only=True):
    """An attempt that the worker has to run."""

    lease: LeaseText
    job: Id
    attempt: int
    task: str
    queue: str
    payload: Raw
    timeout: Annotated[float, Meta(description="Seconds.")] | UnsetType = UNSET
    scheduled_for: Instant
    trigger: TriggerText
    schedule: Annotated[str, Meta(description="Its name.")] | UnsetType = UNSET
    missed_count: int | UnsetType = UNSET
    failures: Annotated[int, Meta(description="Of earlier attempts.")] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(description="The failure with this number is final.")] = 1
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET
    at_most_once: bool | UnsetType = UNSET
    suspect: Annotated[bool, Meta(description="Run it isolated.")] | UnsetType = UNSET
    offer: Annotated[bool, Meta(description="Accept or reject it first.")] | UnsetType = UNSET

    @classmethod
    def of(cls, lease: Lease, is_offer: bool = False) -> Self:
        """Return the entry for a lease, with everything that the worker needs to run it."""
        key = lease.key
        entry = cls(
            lease=render_lease(key),
            job=render_id(key.job_id),
            attempt=key.attempt,
            task=lease.task,
            queue=lease.queue,
            payload=Raw(lease.payload or b"null"),
            scheduled_for=render_instant(lease.scheduled_for),
            trigger=lease.trigger.value,
            max_attempts=lease.max_attempts,
        )
        if lease.failures:
            entry.failures = lease.failures
        if lease.missed_count:
            entry.missed_count = lease.missed_count
        if lease.options is not PLAIN:
            entry._set_options(lease.options)
        if lease.is_suspect:
            entry.suspect = True
        if is_offer:
            entry.offer = True
        return entry

    def _set_options(self, options: Options) -> None:
        if options.timeout_us is not None:
            self.timeout = whole_seconds(options.timeout_us / SECOND)
        if options.at_most_once:
            self.at_most_once = True
        for name, value in carried_fields(options).items():
            setattr(self, name, value)

    def read(self, worker: str, now: int) -> Lease:
        """Return the lease for a runner; raise ValueError or Invalid for a bad field."""
        carried = {name: getattr(self, name) for name in CARRIED}
        return Lease(
            key=parse_lease(self.lease),
            worker=worker,
            task=self.task,
            queue=self.queue,
            payload=bytes(self.payload),
            options=Options(
                timeout_us=None if self.timeout is UNSET else round(self.timeout * SECOND),
                at_most_once=self.at_most_once is True,
                **{name: value for name, value in carried.items() if value is not UNSET},
            ),
            scheduled_for=parse_instant(self.scheduled_for),
            trigger=Trigger(self.trigger) if self.trigger in _TRIGGERS else Trigger.SUBMIT,
            missed_count=self.missed_count or 0,
            is_suspect=self.suspect is True,
            failures=self.failures or 0,
            max_attempts=self.max_attempts,
            started_at=now,
        )


_TRIGGERS = frozenset(each.value for each in Trigger)


class StopResponse(Struct):
    """An attempt that the worker has to stop."""

    lease: LeaseText
    reason: ReasonText

    @classmethod
    def of(cls, stop: StopRequest) -> Self:
        return cls(render_lease(stop.key), stop.reason.value)

    def read_reason(self) -> StopReason:
        """Return why the attempt has to stop; an unknown reason counts as a cancel."""
        return StopReason.TIMEOUT if self.reason == "timeout" else StopReason.CANCEL


def whole_seconds(seconds: float) -> int | float:
    """Return the number without a fraction if it has none."""
    return int(seconds) if seconds.is_integer() else seconds
