"""What the log of a database holds, as SQLite left it.

The formats of the log and of its index (the file -shm) are described at
https://www.sqlite.org/walformat.html. The index begins with the numbers of the last commit, in the
byte order of the machine; the log is big-endian.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

INDEX_BYTES = 48  # of the index: its header
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24


def count_frames(index: bytes | None) -> int:
    """Return how many frames of the log belong to commits, by the header of the index."""
    if index is None or len(index) < INDEX_BYTES:
        return 0
    frames: int = struct.unpack_from("=I", index, 16)[0]
    return frames


def has_pages(log_path: str, index: bytes | None, pages: range, page_bytes: int) -> bool:
    """Return whether commits in the log hold each of these pages of the database.

    Only headers are read, so this takes about a microsecond for each frame.
    """
    frames = count_frames(index)
    if index is None or not frames:
        return False
    salts, missing = index[32:40], set(pages)
    with suppress(FileNotFoundError), open(log_path, "rb", buffering=0) as log:
        if os.pread(log.fileno(), _LOG_HEADER_BYTES, 0)[16:24] != salts:
            return False  # the index is that of an earlier log
        for number in range(frames):
            start = _LOG_HEADER_BYTES + number * (_FRAME_HEADER_BYTES + page_bytes)
            header = os.pread(log.fileno(), _FRAME_HEADER_BYTES, start)
            if len(header) < _FRAME_HEADER_BYTES or header[8:16] != salts:
                return False
            missing.discard(struct.unpack_from(">I", header)[0])
            if not missing:
                return True
    return False
