"""Masks the secrets in the payloads of built-in tasks, for responses."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from schedo.core.built_in import BUILT_IN
from schedo.core.model import Expect, JobSpec, Schedule, ScheduleSpec
from schedo.core.strict_json import is_same_json

_MASK = msgspec.Raw(b'"***"')
_NULL = msgspec.Raw(b"null")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])  # whose values stay undecoded


def show_payload(task: str, payload: bytes) -> bytes:
    """Return a payload as it was sent, with the secret of a built-in task masked."""
    built_in = BUILT_IN.get(task)
    if built_in is None or built_in.secret is None:
        return payload
    # A key may also be written with escapes, so a backslash calls for an exact look.
    if f'"{built_in.secret}"'.encode() in payload or b"\\" in payload:
        try:
            members = _MEMBERS.decode(payload)
        except msgspec.ValidationError:  # no object
            members = {}
        if members.get(built_in.secret, _NULL) != _NULL:
            members[built_in.secret] = _MASK
            return msgspec.json.encode(members)
    return payload


def has_mask(body: bytes) -> bool:
    """Return whether a request may have the mask of a secret, which stands for the stored one."""
    return bytes(_MASK) in body


def reuse_payload(spec: JobSpec, stored: JobSpec) -> JobSpec:
    """Return the spec of a job with the payload of the stored one if both are equal.

    The mask of a secret is equal to the secret, so what a response has shown can be sent back; the
    order of keys does not matter. The same goes for the job of `on_failure`.
    """
    if spec.task != stored.task:
        return spec
    payload = _restore_secret(spec, stored.payload)
    if is_same_json(payload, stored.payload):
        payload = stored.payload
    options, old = spec.options, stored.options
    if options.on_failure is not None and old.on_failure is not None:
        options = replace(options, on_failure=reuse_payload(options.on_failure, old.on_failure))
    return replace(spec, payload=payload, options=options)


def reuse_schedule(spec: ScheduleSpec, stored: Schedule) -> ScheduleSpec:
    """Return the spec with the payloads of the stored schedule where they are equal."""
    expect, old = spec.expect, stored.spec.expect
    if expect is not None and old is not None:
        expect = reuse_expect(expect, old)
    return replace(spec, job=reuse_payload(spec.job, stored.spec.job), expect=expect)


def reuse_expect(expect: Expect, stored: Expect) -> Expect:
    """Return what is expected, with the payloads of the stored event jobs where they are equal."""
    jobs = {
        name: reuse_payload(job, old)
        for name in ("on_miss", "on_back")
        if (job := getattr(expect, name)) and (old := getattr(stored, name))
    }
    return replace(expect, **jobs)


def _restore_secret(spec: JobSpec, stored: bytes) -> bytes:
    built_in = BUILT_IN.get(spec.task)
    if built_in is None or built_in.secret is None:
        return spec.payload
    try:
        members, old = _MEMBERS.decode(spec.payload), _MEMBERS.decode(stored)
    except msgspec.ValidationError:  # no objects
        return spec.payload
    if members.get(built_in.secret) == _MASK and built_in.secret in old:
        return msgspec.json.encode(members | {built_in.secret: old[built_in.secret]})
    return spec.payload
