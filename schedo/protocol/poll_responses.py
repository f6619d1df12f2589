"""The response of the worker protocol: leases, stops, revoked leases and refused results."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import orjson

from schedo.core.ids import render_id
from schedo.core.leases import Lease, StopRequest
from schedo.core.limits import SECOND
from schedo.core.model import PLAIN, LeaseKey, Options
from schedo.errors import StaleLease
from schedo.protocol.lease_keys import render_lease
from schedo.protocol.times import render_instant
from schedo.protocol.work import PROTOCOL

HEARTBEATS_PER_TIMEOUT = 3


class EngineResponse(Protocol):
    """The response as the engine makes it."""

    @property
    def leases(self) -> Iterable[Lease]: ...

    @property
    def offers(self) -> AbstractSet[LeaseKey]: ...  # leases to accept or reject

    @property
    def stops(self) -> Iterable[StopRequest]: ...

    @property
    def revoked(self) -> Iterable[LeaseKey]: ...

    @property
    def refused(self) -> Iterable[tuple[LeaseKey, str]]: ...

    @property
    def drain(self) -> bool: ...


def render_work(response: EngineResponse, epoch: int, session_timeout_s: float) -> bytes:
    """Return the response to a worker as JSON."""
    return orjson.dumps(
        {
            "protocol": PROTOCOL,
            "epoch": epoch,
            "leases": [
                lease_fields(lease, lease.key in response.offers) for lease in response.leases
            ],
            "stop": [
                {"lease": render_lease(stop.key), "reason": stop.reason.value}
                for stop in response.stops
            ],
            "revoked": [render_lease(key) for key in response.revoked],
            "refused": [_refusal_fields(key, reason) for key, reason in response.refused],
            "heartbeat": _seconds(session_timeout_s / HEARTBEATS_PER_TIMEOUT),
            "session_timeout": _seconds(session_timeout_s),
            "drain": response.drain,
        }
    )


def lease_fields(lease: Lease, is_offer: bool = False) -> dict[str, Any]:
    """Return the fields of a lease, with everything that the worker needs to run the attempt."""
    answer: dict[str, Any] = {
        "lease": render_lease(lease.key),
        "job": render_id(lease.key.job_id),
        "attempt": lease.key.attempt,
        "task": lease.task,
        "queue": lease.queue,
        "payload": orjson.Fragment(lease.payload or b"null"),
        "scheduled_for": render_instant(lease.scheduled_for),
        "trigger": lease.trigger.value,
    }
    if lease.missed_count:
        answer["missed_count"] = lease.missed_count
    if lease.options is not PLAIN:
        _add_options(answer, lease.options)
    if lease.is_suspect:
        answer["suspect"] = True
    if is_offer:
        answer["offer"] = True
    return answer


def _add_options(answer: dict[str, Any], options: Options) -> None:
    if options.timeout_us is not None:
        answer["timeout"] = _seconds(options.timeout_us / SECOND)
    if options.tags:
        answer["tags"] = options.tags
    if options.meta:
        answer["meta"] = options.meta
    if options.traceparent is not None:
        answer["traceparent"] = options.traceparent
    if options.tracestate is not None:
        answer["tracestate"] = options.tracestate
    if options.at_most_once:
        answer["at_most_once"] = True


def _refusal_fields(key: LeaseKey, reason: str) -> dict[str, Any]:
    return {
        "lease": render_lease(key),
        "status": StaleLease.status,
        "code": StaleLease.code,
        "detail": reason,
    }


def _seconds(number: float) -> int | float:
    return int(number) if number.is_integer() else number
