"""Masks the secrets in the payloads of built-in tasks, for responses."""

from __future__ import annotations

import msgspec

from schedo.core.built_in import BUILT_IN

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
