"""Signatures of outgoing webhook calls, by Standard Webhooks 1.0.0.

A secret is "whsec_" and the base64 of 24 to 64 bytes. The signed text is "{id}.{timestamp}.{body}".
Several secrets make several signatures, so that a receiver can rotate its secret without a gap.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

_PREFIX = "whsec_"
_SECRET_BYTES_MIN = 24
_SECRET_BYTES_MAX = 64
SECRETS_MAX = 4


def parse_secrets(text: str) -> list[bytes]:
    """Return the keys of secrets separated by spaces; a ValueError never quotes a secret."""
    words = text.split()
    if not 1 <= len(words) <= SECRETS_MAX:
        raise ValueError(f"give 1 to {SECRETS_MAX} secrets, separated by spaces")
    return [_parse_secret(word) for word in words]


def _parse_secret(word: str) -> bytes:
    if word.startswith("whsk_"):
        raise ValueError("ed25519 keys (whsk_) are not supported; use a whsec_ secret")
    if not word.startswith(_PREFIX):
        raise ValueError('a secret must begin with "whsec_"')
    try:
        key = base64.b64decode(word.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError('the part after "whsec_" must be base64') from None
    if not _SECRET_BYTES_MIN <= len(key) <= _SECRET_BYTES_MAX:
        raise ValueError(
            f"a secret must be the base64 of {_SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX} bytes"
        )
    return key


def render_signature(keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the webhook-signature header: one v1 signature for each key."""
    text = f"{message_id}.{timestamp_s}.".encode() + body
    digests = (hmac.digest(key, text, hashlib.sha256) for key in keys)
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)
