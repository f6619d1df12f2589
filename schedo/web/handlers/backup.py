"""The backup of the store, sent as one file.

The copy is written beside the store before the first byte is sent. So a slow client holds neither
the store's log nor memory, only room on the disk until it has received the file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import BinaryIO

from schedo.errors import Unavailable
from schedo.protocol.operation import SQLITE_TYPE
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.http import Request, Response

INSTANT_HEADER = b"schedo-instant"
_PIECE_BYTES = 262_144


async def create_backup(context: AppContext, request: Request) -> Response:
    await request.claim.take(_PIECE_BYTES)
    made = await context.run_until_drain(context.engine.backup(), request.gone())
    if made is None:
        raise Unavailable("the server is stopping")
    file, instant = made
    headers = (
        (b"content-length", b"%d" % os.fstat(file.fileno()).st_size),
        (INSTANT_HEADER, render_instant(instant).encode()),
        (b"content-disposition", b'attachment; filename="schedo.db"'),
    )
    return Response(200, b"", headers, content_type=SQLITE_TYPE.encode(), pieces=_read_pieces(file))


async def _read_pieces(file: BinaryIO) -> AsyncGenerator[bytes, None]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
