"""The request for a job whose spec was made before: for a process that sends it on over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from schedo.core.model import JobSpec, Unique
from schedo.protocol.options import EventJobRequest, option_fields
from schedo.protocol.retries import retry_request
from schedo.protocol.times import render_duration, render_instant
from schedo.protocol.unique import UniqueRequest


def spec_fields(spec: JobSpec) -> dict[str, Any]:
    """Return the request, as plain JSON data, from which the server makes the same spec."""
    options = spec.options
    shown = option_fields(options)
    shown |= {"task": spec.task, "queue": spec.queue, "priority": spec.priority}
    shown["payload"] = msgspec.json.decode(spec.payload)
    if options.at_most_once is False:
        shown["delivery"] = "at_least_once"
    if options.retry is not None:
        shown["retry"] = msgspec.to_builtins(retry_request(options.retry))
    if options.unique is not None:
        shown["unique"] = msgspec.to_builtins(_unique_request(options.unique))
    if options.on_failure is not None:  # with its secrets, which a response does not show
        shown["on_failure"] = msgspec.to_builtins(EventJobRequest.of(options.on_failure))
    return shown | _times(spec)


def _times(spec: JobSpec) -> dict[str, str]:
    instants = {"run_at": spec.run_at, "expires_at": spec.expires_at}
    durations = {"delay": spec.delay_us or None, "expires_in": spec.expires_in_us}
    return {name: render_instant(at) for name, at in instants.items() if at is not None} | {
        name: render_duration(us) for name, us in durations.items() if us is not None
    }


def _unique_request(unique: Unique) -> UniqueRequest:
    return UniqueRequest(
        unique.key,
        None if unique.states == Unique("").states else list(unique.states),  # type: ignore[arg-type]
        None if unique.for_us is None else render_duration(unique.for_us),
        unique.on_conflict,
    )
