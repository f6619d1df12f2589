"""Checks JSON that a task brought, without holding the event loop."""

from __future__ import annotations

from schedo.core.strict_json import CheckedJson, decode_strictly
from schedo.engine.sharing import jobs_in_steps
from schedo.protocol.pieces import PIECE_BYTES, check_pieces


async def check_json(text: bytes) -> CheckedJson:
    """Return the text as checked; raise BadJson if it is not JSON by the rules of the API."""
    if len(text) <= PIECE_BYTES:
        decode_strictly(text)
    else:
        await jobs_in_steps(check_pieces(text))
    return CheckedJson(text)
