"""Puts stored secrets in the place of the masks that responses have shown."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from schedo.core.built_in import MASK, SECRETS
from schedo.core.model import Expect, JobSpec, Schedule, ScheduleSpec
from schedo.core.strict_json import is_same_json

_MASK = msgspec.Raw(MASK)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])  # whose values stay undecoded


def has_mask(body: bytes) -> bool:
    """Return whether a request may have the mask of a secret, which stands for the stored one."""
    return MASK in body


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
    secret = SECRETS.get(spec.task)
    if secret is None:
        return spec.payload
    try:
        members, old = _MEMBERS.decode(spec.payload), _MEMBERS.decode(stored)
    except msgspec.ValidationError:  # no objects
        return spec.payload
    if members.get(secret) == _MASK and secret in old:
        return msgspec.json.encode(members | {secret: old[secret]})
    return spec.payload
